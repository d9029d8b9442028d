"""A user who corrects replies and accepts one, a base model that says how likely each is, and a flow that learns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from train_doubles import Following, HintRenderer, next_of, session, turn, verdict
from train_flow import Flow, flowing

from openclaw_rl.core.completion import Completion, Finish, Scores
from openclaw_rl.core.hint import Carry, Hint, HintSource, PlacedHint
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import Sample, Wants
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError
from openclaw_rl.teach.in_use import HintsInUse
from openclaw_rl.teach.misheard import MisheardHints
from openclaw_rl.teach.settings import TeachSettings

FIRST, REDONE = (4, 5, 6), (7, 5, 6)
SHORT, LONG = "Keep it short.", "Explain every single step."
WORDS = "No, in plain words."  # what is said of each reply
BARE, TALK = (1, 2, 3), (1, 2, 3, 9)


@dataclass
class Base:
    """The base model: the log-probability of a reply after the request, in the conversation, and with each hint."""

    alone: float = -10.0
    told: float = -1.0
    hinted: dict[str, float] = field(default_factory=lambda: {SHORT: -2.0, LONG: -9.0, WORDS: -2.0})
    is_away: bool = False
    asked: int = 0

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        if self.is_away:
            raise EngineError("away")
        self.asked += 1
        known = {BARE: self.alone, TALK: self.told}
        known |= {(*BARE, len(text)): nats for text, nats in self.hinted.items()}
        said = prompt.tokens[start:]
        assert version == BASE
        return Scores(start, (known[prompt.tokens[:start]], *(0.0 for _ in said[1:])), ())


@dataclass
class Publishing:
    """Takes versions back, once it says so."""

    takes: bool = True
    said: str = "misheard"  # in the reason
    passes: Callable[[], Awaitable[None]] | None = None  # what the gate does meanwhile
    asked: list[tuple[str, PolicyVersion, tuple[str, ...]]] = field(default_factory=list)

    async def take_back(self, user: str, version: PolicyVersion, wish: Sequence[str] = (), *, why: str = "") -> bool:
        assert self.said in why
        assert LONG not in why  # it is logged, and kept when the hint is forgotten
        self.asked.append((user, version, tuple(wish)))
        if self.passes is not None:
            await self.passes()
        return self.takes


@dataclass
class Talk:
    """A flow that looks for misheard hints."""

    flow: Flow
    base: Base
    publishing: Publishing

    async def corrected(
        self, *hints: str, name: str = "first", parent: str | None = None, source: HintSource = HintSource.JUDGE
    ) -> None:
        await self.uncorrected(name, parent)
        await self.judged(*hints, name=name, source=source)

    async def uncorrected(self, name: str = "first", parent: str | None = None) -> None:
        """The reply, before its correction is judged."""
        await self._served(replace(turn(name), parent=parent, completion=completion(FIRST)))

    async def judged(self, *hints: str, name: str = "first", source: HintSource = HintSource.JUDGE) -> None:
        """The verdict on its correction."""
        said = replace(verdict(name, -1), hints=tuple(Hint(text, source) for text in hints))
        assert await self.flow.store.judge(said, keep=Hint(hints[0]))

    async def accepted(self, name: str = "good", parent: str = "first", score: int = 1, says: str = "") -> None:
        again = replace(turn(name, at_s=2.0), parent=parent, completion=completion(REDONE), prompt=Prompt(TALK))
        again = replace(again, reply=message(Role.ASSISTANT, says)) if says else again
        await self._served(again)
        assert await self.flow.store.judge(verdict(name, score))

    async def replied(self, name: str, version: PolicyVersion, says: str = WORDS, *carried: PlacedHint) -> None:
        """A reply of a version to another request, and what is said of it, before that is judged."""
        said = replace(completion(FIRST), version=version)
        one = replace(turn(name, at_s=3.0), completion=said, carried=carried)
        await self._served(one, says)

    async def _served(self, one: Turn, says: str = WORDS) -> None:
        await self.flow.store.see_session(session("s1"))
        await self.flow.store.add_turn(one, chain=one.id)
        assert await self.flow.store.pair(replace(next_of(one.id), messages=(message(Role.USER, says),)))


def completion(said: tuple[int, ...]) -> Completion:
    return Completion(said, (-0.5,) * len(said), (-0.5,) * len(said), BASE, Finish.STOP)


@asynccontextmanager
async def talking(home: Path) -> AsyncIterator[Talk]:
    """A talk whose replies are compared with hints, in a folder of its own."""
    async with flowing(home, wants=Wants.HINT) as flow:
        base, publishing = Base(), Publishing()
        hints = HintsInUse(flow.store, Carry.WEIGHTS, TeachSettings(), len)
        misheard = MisheardHints(flow.store, base, HintRenderer(), hints, publishing)  # type: ignore[arg-type]
        flow.asks(base=Following(()), misheard=misheard)
        yield Talk(flow, base, publishing)


@dataclass(frozen=True)
class Teaching(Following):
    """The base model, asked for replies to other requests; `follows` says whether it can follow the hint."""

    follows: bool = True
    taught: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)  # the known hints

    async def elsewhere(self, turn: Turn, known: Sequence[PlacedHint], sample: Sample) -> Sample:
        self.taught.extend(hint.text for hint in sample.hints)
        self.beside.extend(hint.text for hint in known)
        return sample if self.follows else replace(sample, hints=())


async def learned(talk: Talk) -> None:
    await talk.corrected(LONG)
    await talk.flow.once()
    talk.flow.now_s += 100.0
    while await talk.flow.once():
        pass
    assert await talk.flow.state("first") is State.TRAINED
