"""Turns and partners to talk to, made for the tests of judging."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.completion import Completion, Finish
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.turn import Turn, TurnKind
from openclaw_rl.core.version import BASE
from openclaw_rl.errors import JudgeError

HINT = "[HINT_START]\nWrite in plain sentences, without bold text.\n[HINT_END]\n\\boxed{1}"
NO_HINT = "Nothing to know. \\boxed{-1}"


def turn(name: str = "t1", *, session: str = "s1", reply: str = "**Answer:** 4", at_s: float = 1.0) -> Turn:
    return Turn(
        id=name,
        session=session,
        user="ann",
        agent="main",
        kind=TurnKind.MAIN,
        why="test",
        messages=(message(Role.SYSTEM, "You help."), message(Role.USER, "What is 2 + 2?")),
        tools=(),
        prompt=Prompt((1, 2, 3)),
        completion=Completion((4, 5), (-0.5, -0.5), (-0.5, -0.5), BASE, Finish.STOP),
        reply=message(Role.ASSISTANT, reply),
        at_s=at_s,
    )


def said(text: str, name: str = "t1") -> NextState:
    return NextState(name, (message(Role.USER, text),), NextStateSource.USER)


def tool_said(*texts: str, name: str = "t1") -> NextState:
    results = tuple(message(Role.TOOL, text) for text in texts)
    return NextState(name, results, NextStateSource.TOOL)


@dataclass
class ScriptedChat:
    """Answers score and hint questions from two scripts, in the order they are asked; an error in one is raised."""

    scores: list[str | JudgeError] = field(default_factory=list)
    hints: list[str | JudgeError] = field(default_factory=list)
    asked: list[Sequence[Message]] = field(default_factory=list)
    seeds: list[int | None] = field(default_factory=list)
    before: Callable[[], None] = lambda: None
    in_flight: int = 0
    most_in_flight: int = 0

    async def reply(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int | None = None
    ) -> str:
        self.before()
        self.asked.append(messages)
        self.seeds.append(seed)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        script = self.hints if is_hint_question(messages) else self.scores
        answer = script.pop(0)
        if isinstance(answer, JudgeError):
            raise answer
        return answer


def is_hint_question(messages: Sequence[Message]) -> bool:
    return "HINT_START" in messages[0].text
