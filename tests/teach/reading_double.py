"""A base model that says something else for each set of hints that it reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from carry_doubles import label_renderer

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.completion import Completion, Finish, SampledToken, Scores
from openclaw_rl.core.engine import EngineInfo
from openclaw_rl.core.hint import PlacedHint, with_hints
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, Sample, SampledReply
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError
from openclaw_rl.teach.contradictions import ContentCheck
from openclaw_rl.teach.elsewhere import OtherReplies
from openclaw_rl.teach.made_up import MadeUpRequests
from openclaw_rl.teach.other_requests import OtherRequests
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.testing.turns import a_turn

SERVED = (7, 7, 7)
# As long as a power of two less one: their sums tell every set of them apart.
IDLE, PLAIN, STERN, KNOWN = "Hm.", "Plainly", "Be stern always", "Say hello at the very beginning"
Says = dict[frozenset[str], tuple[int, ...]]


@dataclass
class Reader:
    """Says what `says` has for the hints it reads: each of its tokens in its place at -0.1 nats, any other at -2.1.

    Behind `colder` hints any other is a nat less likely. What a served version says without hints is `learned`.
    """

    says: Says
    colder: frozenset[str] = frozenset()
    learned: tuple[int, ...] = ()
    is_away: bool = False
    longest: int | None = None
    room: int = 1 << 20
    asked: list[PolicyVersion] = field(default_factory=list)

    @property
    def info(self) -> EngineInfo:
        return EngineInfo("reader", "reader", 0, 512, self.room, (2,), "none", "none", 0, ())

    def _reply(self, prompt: Sequence[int]) -> tuple[int, ...]:
        (read,) = [told for told in self.says if prompt_of(told).tokens == tuple(prompt)]
        return self.says[read]

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        if self.is_away:
            raise EngineError("away")
        self.asked.append(version)
        likely, said = self._reply(prompt.tokens[:start]), prompt.tokens[start:]
        if version != BASE and prompt.tokens[:start] == prompt_of(()).tokens:
            likely = self.learned
        is_colder = self.colder and prompt.tokens[:start] == prompt_of(self.colder).tokens
        other = -3.1 if is_colder else -2.1
        logp = tuple(-0.1 if likely[at : at + 1] == (token,) else other for at, token in enumerate(said))
        return Scores(start, logp, ())

    async def generate(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> AsyncIterator[SampledToken]:
        self.asked.append(version)
        is_learned = version != BASE and prompt == prompt_of(())
        said = self.learned if is_learned else self._reply(prompt.tokens)
        said = said if self.longest is None else (9,) * sampling.max_tokens
        for index, token in enumerate(said):
            yield SampledToken(token, -0.1, -0.1, version, finish=Finish.STOP if index + 1 == len(said) else None)

    async def load(self, adapter: Adapter) -> None:
        raise NotImplementedError

    async def unload(self, version: PolicyVersion) -> None:
        raise NotImplementedError


def the_turn() -> Turn:
    completion = Completion(SERVED, (-0.1,) * 3, (-0.1,) * 3, BASE, Finish.STOP)
    made = a_turn("t", (message(Role.USER, "question"),))
    return replace(made, completion=completion, prompt=prompt_of(()))


def prompt_of(hints: Sequence[str] | frozenset[str]) -> Prompt:
    """As `label_renderer` renders them, hints told apart by their length; known ones stand first."""
    told = sorted(hints, key=[KNOWN, PLAIN, STERN, IDLE].index)
    placed = [PlacedHint(0, text, text) for text in told]
    return label_renderer().prompt(with_hints((message(Role.USER, "question"),), placed), (), None)


def assembling(*hints: str) -> Callable[[Sequence[PlacedHint]], Awaitable[Sample]]:
    """Samples with a turn's own hints beside those heeded."""

    async def assembled(known: Sequence[PlacedHint]) -> Sample:
        beside = [item.text for item in known]
        prompts = tuple(HintPrompt(" ".join((*beside, hint)), prompt_of((*beside, hint)).tokens) for hint in hints)
        turn = the_turn()
        logp = turn.completion.logp
        return Sample("t", "s", "alice", turn.prompt.tokens, SERVED, logp, (True,) * 3, BASE, score=-1.0, hints=prompts)

    return assembled


async def base_serves(turn: Turn) -> PolicyVersion:
    return BASE


def reader(**said: tuple[int, ...]) -> Reader:
    """By names of hints with `_` between them; `bare` is without any, and what is not named is as bare."""
    names = {"plain": PLAIN, "stern": STERN, "known": KNOWN, "idle": IDLE}
    told = {frozenset(names[part] for part in name.split("_") if part != "bare"): ids for name, ids in said.items()}
    every = [frozenset(one for one in names.values() if one in picked) for picked in _subsets(tuple(names.values()))]
    return Reader({hints: told.get(hints, said["bare"]) for hints in every})


def _subsets(items: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [()] if not items else [(*rest, *way) for rest in _subsets(items[1:]) for way in ((), items[:1])]


class Agreeing(ContentCheck):
    """Finds no contradictions."""

    async def consistent(
        self, turn: Turn, hint: HintPrompt, shown: Sequence[SampledReply]
    ) -> tuple[HintPrompt, tuple[SampledReply, ...]]:
        return hint, tuple(shown)


@dataclass
class Elsewhere(OtherReplies):
    """Keeps what it is asked for other requests."""

    @property
    def content(self) -> ContentCheck:
        return Agreeing(self.engine, self.renderer, self.stop_ids, 8, 0.7, self.contradictions)

    asked: list[tuple[str, list[str]]] = field(default_factory=list)

    async def shown(
        self, turn: Turn, hint: str, known: Sequence[PlacedHint], *, with_shipped: bool = True
    ) -> tuple[OtherRequestReply, ...]:
        assert with_shipped
        self.asked.append((hint, [item.text for item in known]))
        return ()


def elsewhere(engine: Engine) -> Elsewhere:
    """No request is known, and none is made up."""

    async def nothing(*_: object) -> tuple[()]:
        return ()

    made_up = MadeUpRequests(engine, (2,), lambda *_: None)
    requests = OtherRequests(label_renderer(), TeachSettings(), nothing, nothing, nothing, made_up)
    return Elsewhere(engine, label_renderer(), (2,), TeachSettings(), requests)
