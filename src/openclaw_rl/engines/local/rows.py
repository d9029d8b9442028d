"""Requests inside the engine, from arrival to the last token, and which block of the cache each has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines.local.cache import UNIT, Block, BlockAllocator, Cache, CachedPrefix, Ids, Prefixes, ids, shared
from openclaw_rl.engines.local.masks import Guided
from openclaw_rl.engines.local.sampler import LogitAdjuster
from openclaw_rl.engines.local.wire import ScoreJob, Submit, Top

WORTH_REUSE = 16  # tokens; a shorter prefix is read again
WORTH_WAITING = 128  # tokens that another row is reading now, which a row waits for to copy
WIPED_AT_ONCE = 16 << 20  # bytes overwritten between two steps: a few milliseconds
AHEAD = 512  # tokens of answer that a row gets room for at first; then it moves to a block twice as large


@dataclass(slots=True, eq=False)
class Row:
    """One request. `stored` of its tokens have keys and values in `block`."""

    id: int
    tokens: list[int]
    prompt: Ids  # the request's prompt, or what is read again after the row lost its place
    version: PolicyVersion  # as the cache keys it: the base model is one version under every scope
    slot: int
    goal: int  # tokens to read before the first is sampled, or all that a score needs
    reusable: int  # leading tokens whose keys and values may come from another row
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
    is_flushed: bool = False  # nothing of it is kept when it ends, and no other row reuses it
    logp: list[float] = field(default_factory=list)
    top: list[Top] = field(default_factory=list)
    guide: Guided | None = None
    leanings: LogitAdjuster | None = None

    @property
    def place(self) -> Block:
        """The block of a placed row."""
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
        """Whether the last token ends the answer for the model or its grammar."""
        return self.tokens[-1] in self.stops or (self.guide is not None and self.guide.is_over)

    def read_again(self) -> None:
        """The row lost its block: all its tokens become its prompt."""
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
    """The row of a score: the last token is only looked up, and the scored tokens must be computed."""
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


class CacheSpace:
    """Which row has which block: running rows, kept rows that ended, and which are dropped when room is needed."""

    def __init__(self, cache: Cache, *, context: int, largest: int) -> None:
        self.cache = cache
        self.context = context
        self.blocks = BlockAllocator(cache.tokens, largest)
        self.kept = Prefixes()
        self._used: set[int] = set()  # units of the arena that rows have ever written to
        self._unwiped: set[int] = set()  # those that still contain flushed numbers

    @property
    def unwiped(self) -> int:
        """Tokens whose places still contain flushed numbers."""
        return len(self._unwiped) * UNIT

    def flush(self, rows: Iterable[Row]) -> None:
        """Drops all kept rows, and overwrites them step by step; these rows follow when they end."""
        self._give_all(self.kept.forget_all())
        in_use = set[int]()
        for row in rows:
            row.is_flushed = True
            if row.block is not None:
                in_use |= _units(row.block)
        self._unwiped = self._used - in_use  # blocks given back earlier contain old numbers as well

    def wipe_some(self) -> None:
        """Overwrites some of what was flushed."""
        most = max(1, WIPED_AT_ONCE // (UNIT * max(1, self.cache.token_bytes)))
        for unit in sorted(self._unwiped)[:most]:
            self._wipe(unit)

    def place(self, row: Row, others: Iterable[Row]) -> bool:
        """Gives a row its block and what others have read already; False if it must wait."""
        wanted = row.prompt[: row.reusable]
        kept, size = self.kept.find(row.version, wanted)
        donor: Block | None = None if kept is None else kept.block
        for other in others:
            if other is row or other.version != row.version or other.is_flushed:
                continue
            alike = shared(other.prompt, wanted)
            if other.stored < alike and alike - size >= WORTH_WAITING:
                return False
            if min(other.stored, alike) > size:
                kept, size, donor = None, min(other.stored, alike), other.block
        if size < WORTH_REUSE:
            kept, size, donor = None, 0, None
        need = min(self.context, len(row.tokens) + min(row.left, AHEAD))
        row.block = self._block(need, kept, donor, size)
        if row.block is None and kept is not None:
            row.block, size = self.find_room(need), 0
        if row.block is None:
            return False
        row.stored = row.cached = size
        return True

    def grow(self, row: Row) -> bool:
        """Makes room for the row's next token; False if there is none."""
        if row.stored < row.place.size:
            return True
        larger = self.find_room(row.place.size * 2)
        if larger is None:
            return False
        self._move(row, larger)
        return True

    def end(self, row: Row) -> None:
        """Keeps what a row has read, for requests that continue from it."""
        if row.block is None:
            return
        if row.is_flushed:
            self._unwiped |= _units(row.block)
            self.blocks.give(row.block)
        elif row.stored < WORTH_REUSE:
            self.blocks.give(row.block)
        else:
            self._give_all(self.kept.keep(row.version, ids(row.tokens[: row.stored]), row.block))
        row.block = None

    def spoil(self, row: Row) -> None:
        """Frees the block of a row whose numbers are not finite."""
        self.cache.wipe(row.place)
        self.blocks.give(row.place)
        row.block = None

    def forget(self, version: PolicyVersion) -> None:
        """Drops everything kept under a version."""
        self._give_all(self.kept.forget(version))

    def find_room(self, tokens: int, *, but: CachedPrefix | None = None) -> Block | None:
        """A block, for which the oldest kept rows are dropped if necessary."""
        while (block := self.blocks.take(tokens)) is None:
            oldest = self.kept.oldest(but=but)
            if oldest is None:
                return None
            self.blocks.give(self.kept.take(oldest))
        units = _units(block)
        self._used |= units
        for unit in units & self._unwiped:
            self._wipe(unit)
        return block

    def _block(self, need: int, kept: CachedPrefix | None, donor: Block | None, size: int) -> Block | None:
        """A block with the first `size` tokens: the kept row's own if nothing of it is lost, else a copy."""
        if kept is not None and size == len(kept.tokens) and kept.block.size >= need:
            return self.kept.take(kept)
        block = self.find_room(need, but=kept)
        if block is not None and donor is not None:
            self.cache.copy(donor, block, size)
            if kept is not None and size == len(kept.tokens):
                self.blocks.give(self.kept.take(kept))
        return block

    def _move(self, row: Row, block: Block) -> None:
        self.cache.copy(row.place, block, row.stored)
        if row.is_flushed:
            self._unwiped |= _units(row.place)
        self.blocks.give(row.place)
        row.block = block

    def _wipe(self, unit: int) -> None:
        self.cache.wipe(Block(unit * UNIT, UNIT))
        self._unwiped.discard(unit)

    def _give_all(self, blocks: list[Block]) -> None:
        for block in blocks:
            self.blocks.give(block)


def _units(block: Block) -> set[int]:
    """The smallest blocks that this one is made of, by number."""
    return set(range(block.base // UNIT, (block.base + block.size) // UNIT))
