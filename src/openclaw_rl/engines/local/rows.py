"""A request inside the engine, from its arrival to its last token."""

from __future__ import annotations

from dataclasses import dataclass, field

from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines.local.cache import Block, Ids, ids
from openclaw_rl.engines.local.masks import Guided
from openclaw_rl.engines.local.sampler import LogitAdjuster
from openclaw_rl.engines.local.wire import ScoreJob, Submit, Top


@dataclass(slots=True, eq=False)
class Row:
    """What is known of one request. `stored` of its tokens have keys and values in `block`."""

    id: int
    tokens: list[int]
    prompt: Ids  # what was asked, or what is read again after the row lost its place
    version: PolicyVersion  # as the cache keys it: the base model is one version under every scope
    slot: int
    goal: int  # tokens to read before the first is sampled, or all that a score needs
    reusable: int  # leading tokens whose keys and values may come from elsewhere
    sampling: Sampling | None = None
    seed: int = 0
    drawn: int = 0
    left: int = 0
    stops: frozenset[int] = frozenset()
    score: ScoreJob | None = None
    block: Block | None = None
    stored: int = 0
    cached: int = 0
    has_spoken: bool = False
    is_flushed: bool = False  # nothing of it is kept when it ends, and nobody goes on from it
    logp: list[float] = field(default_factory=list)
    top: list[Top] = field(default_factory=list)
    guide: Guided | None = None
    leanings: LogitAdjuster | None = None

    @property
    def place(self) -> Block:
        """The block of a row that has one."""
        if self.block is None:
            raise RuntimeError(f"row {self.id} has no block")
        return self.block

    @property
    def unread(self) -> int:
        """Tokens still to be read."""
        return self.goal - self.stored

    def take(self, token: int) -> None:
        """One more token was sampled."""
        self.tokens.append(token)
        self.drawn += 1
        self.left -= 1
        if self.guide is not None:
            self.guide.take(token)
        if self.leanings is not None:
            self.leanings.take(token)

    @property
    def is_said(self) -> bool:
        """Whether the token taken last ends the answer by the model's or its grammar's word."""
        return self.tokens[-1] in self.stops or (self.guide is not None and self.guide.is_over)

    def read_again(self) -> None:
        """The row lost its block: all of its tokens are its prompt now."""
        self.block, self.stored = None, 0
        self.prompt = ids(self.tokens)
        self.goal, self.reusable = len(self.tokens), len(self.tokens) - 1


def sampling_row(ask: Submit, slot: int, context: int, *, vocab_size: int, guide: Guided | None = None) -> Row:
    """The row of a request; it may sample up to what fits into the context."""
    size = len(ask.tokens)
    before = size - ask.drawn
    leaning = ask.sampling.leaning
    return Row(
        id=ask.id,
        tokens=list(ask.tokens),
        prompt=ids(ask.tokens),
        version=BASE if ask.version.is_base else ask.version,
        slot=slot,
        goal=size,
        reusable=size - 1,
        sampling=ask.sampling,
        seed=ask.seed,
        drawn=ask.drawn,
        left=min(ask.sampling.max_tokens, context - size),
        stops=frozenset(ask.sampling.stop_ids),
        guide=guide,
        leanings=None
        if leaning is None
        else LogitAdjuster(leaning, ask.tokens[:before], ask.tokens[before:], vocab_size),
    )


def scoring_row(job: ScoreJob, slot: int) -> Row:
    """The row of a score: the last token is only looked up, and what is scored must be computed."""
    return Row(
        id=job.id,
        tokens=list(job.tokens),
        prompt=ids(job.tokens),
        version=BASE if job.version.is_base else job.version,
        slot=slot,
        goal=len(job.tokens) - 1,
        reusable=job.start - 1,
        score=job,
    )
