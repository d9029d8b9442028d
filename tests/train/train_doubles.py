"""Turns, verdicts and samples made for the tests of training."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from openclaw_rl.core.adapter import StepReport
from openclaw_rl.core.completion import Completion, Finish, Span
from openclaw_rl.core.hint import LABEL, Hint, PlacedHint
from openclaw_rl.core.message import Json, Message, Role, Tool, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.turn import Session, Turn, TurnKind
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.store.rows import JudgedTurn

HINT = Hint("Write in plain sentences.")
Assembled = Callable[[Sequence[PlacedHint]], Awaitable[Sample]]


def turn(
    name: str, *, session: str = "s1", version: PolicyVersion = BASE, at_s: float = 1.0, user: str = "ann"
) -> Turn:
    return Turn(
        id=name,
        session=session,
        user=user,
        agent="main",
        kind=TurnKind.MAIN,
        why="test",
        messages=(message(Role.USER, f"Question {name}?"),),
        tools=(),
        prompt=Prompt((1, 2, 3)),
        completion=Completion((4, 5), (-0.6, -0.7), (-0.5, -0.4), version, Finish.STOP),
        reply=message(Role.ASSISTANT, "Answer."),
        at_s=at_s,
    )


def session(name: str = "s1", *, end_why: str | None = None) -> Session:
    return Session(name, "ann", "main", 0.0, 1.0, end_why)


def verdict(name: str, score: int | None, *, hints: int = 0, mean: float | None = None) -> Verdict:
    words = tuple(Hint(f"Write in plain sentences, number {index}.") for index in range(hints))
    return Verdict(name, score, VerdictSource.VOTES, hints=words, mean=mean)


def judged(
    name: str, score: int | None, *, hints: int = 0, mean: float | None = None, session_id: str = "s1"
) -> JudgedTurn:
    return JudgedTurn(turn(name, session=session_id), verdict(name, score, hints=hints, mean=mean), session(session_id))


def sample(
    name: str, score: float | None = -1.0, *, hints: int = 0, version: PolicyVersion = BASE, is_promoted: bool = False
) -> Sample:
    return Sample(
        turn=name,
        session="s1",
        user="ann",
        prompt=(1, 2, 3),
        response=(4, 5),
        logp=(-0.5, -0.4),
        mask=(True, True),
        version=version,
        score=score,
        hints=tuple(HintPrompt(f"hint {index}", (1, 2, 9, 3)) for index in range(hints)),
        is_promoted=is_promoted,
    )


def rehearsal(
    name: str, version: PolicyVersion | None = None, *, user: str = "ann", rehearses: tuple[str, ...] = ()
) -> Sample:
    """A promoted sample, learned from behind the hints that it rehearses."""
    made = sample(name, 0.0, is_promoted=True, version=version or BASE)
    hints = (HintPrompt(" ".join(rehearses), (1, 2, 9, 3)),) if rehearses else ()
    return replace(made, user=user, rehearses=rehearses, hints=hints)


def next_of(name: str) -> NextState:
    return NextState(name, (message(Role.USER, "No, in plain words."),), NextStateSource.USER)


class HintRenderer:
    """Puts a hint's length behind the prompt's ids; refuses hints that start with `bad`."""

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        served: Turn | None,
        *,
        options: Mapping[str, Json] | None = None,
    ) -> Prompt:
        return Prompt((1, 2, 3))

    def hinted(self, turn: Turn, hint: Hint) -> Prompt:
        if hint.text.startswith("bad"):
            raise ValueError("there is no user message to put a hint behind")
        return Prompt((*turn.prompt.tokens, len(hint.text)))

    def reread(self, turn: Turn, messages: Sequence[Message]) -> Prompt:
        """The bare prompt's ids, and behind them the length of the hints' words."""
        hints = messages[-1].text.partition(f"{LABEL} ")[2]
        if hints.startswith("bad"):
            raise ValueError("a template that refuses")
        return Prompt((1, 2, 3, *((len(hints),) if hints else ())))

    def decode(self, tokens: Sequence[int]) -> tuple[Message, tuple[Span, ...]]:
        return message(Role.ASSISTANT, " ".join(map(str, tokens))), ()


@dataclass(frozen=True)
class Following:
    """A teacher that finds these known hints followed by each reply that nobody corrected."""

    rehearses: tuple[str, ...]

    async def demonstrated(
        self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled
    ) -> tuple[Sample, Sequence[PlacedHint]]:
        return await assembled(known), ()

    async def rehearsed(self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled) -> Sample:
        hints = (HintPrompt(" ".join(self.rehearses), (1, 2, 9)),) if self.rehearses else ()
        return replace(await assembled(()), hints=hints, rehearses=self.rehearses)

    async def speaks_against(self, turn: Turn, rehearsal: Sample, hint: str) -> bool | None:
        return None if hint == "?" else hint.startswith("Not")


STEPPED = StepReport(True, {"loss": 0.5})
