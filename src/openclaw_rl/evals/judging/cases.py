"""Labelled cases for judges: a request, a reply, the next state, and a good judge's verdict."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from random import Random

from openclaw_rl.core.completion import Completion, Finish
from openclaw_rl.core.message import Json, Message, Role, ToolCall, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.turn import Turn, TurnKind
from openclaw_rl.core.version import BASE
from openclaw_rl.tiny.judging import situation

TAUGHT = "taught"  # the kind of the cases that the bundled judge was trained for
TAUGHT_COUNT = 100
OVERRULED = "overruled"  # the kind of the cases that an installation's owners labelled
_CALL = "call_1"


@dataclass(frozen=True, slots=True)
class JudgeCase:
    """One labelled case. `kind` is the sort of next state, `role` its speaker."""

    kind: str
    role: str
    request: tuple[Message, ...]
    reply: Message
    next_state: tuple[Message, ...]
    score: int

    def turn(self, name: str) -> Turn:
        """The request and the reply as a turn; its ids have no meaning, since judges read messages."""
        return Turn(
            id=name,
            session=name,
            user=self.role,
            agent="default",
            kind=TurnKind.MAIN,
            why="a labelled case",
            messages=self.request,
            tools=(),
            prompt=Prompt((0,)),
            completion=Completion(
                tokens=(0,), logp_sampled=(0.0,), logp=(0.0,), version=BASE, finish=Finish.STOP, spans=()
            ),
            reply=self.reply,
            at_s=0.0,
        )

    def followed(self, name: str) -> NextState:
        """What came next."""
        is_user = all(item.role is Role.USER for item in self.next_state)
        return NextState(name, self.next_state, NextStateSource.USER if is_user else NextStateSource.TOOL)


def written_cases() -> list[JudgeCase]:
    """The cases written by hand, in the file's order."""
    table = tomllib.loads(files("openclaw_rl.evals.judging").joinpath("cases.toml").read_text("utf-8"))
    scenarios = {str(entry["id"]): entry for entry in table["scenarios"]}
    return [
        _case(str(kind["name"]), scenarios[str(entry[0])], str(entry[1]), int((*entry, kind["score"])[2]), kind)
        for kind in table["kinds"]
        for entry in kind["cases"]
    ]


def taught_cases(count: int = TAUGHT_COUNT, *, seed: int = 0) -> list[JudgeCase]:
    """Cases of the toy world, on problems and wordings that the bundled model never saw."""
    rng = Random(f"judge cases {seed}")
    made = [situation(rng, held_out=True) for _ in range(count)]
    return [JudgeCase(TAUGHT, "toy world", one.request, one.reply, one.next_state, one.score) for one in made]


def _case(kind: str, scenario: Mapping[str, Json], said: str, score: int, about: Mapping[str, Json]) -> JudgeCase:
    call = scenario.get("call")
    request = (message(Role.USER, str(scenario["request"])),)
    if not isinstance(call, dict):
        reply, following = message(Role.ASSISTANT, str(scenario["reply"])), message(Role.USER, said)
        return JudgeCase(kind, str(scenario["role"]), request, reply, (following,), score)
    pad = about.get("pad", 0)
    text = _padding(int(pad) if isinstance(pad, int) else 0) + said
    made = ToolCall(_CALL, str(call["name"]), json.dumps(call["arguments"]))
    result = Message(Role.TOOL, message(Role.TOOL, text).content, tool_call_id=_CALL)
    return JudgeCase(
        kind, str(scenario["role"]), request, Message(Role.ASSISTANT, tool_calls=(made,)), (result,), score
    )


def _padding(chars: int) -> str:
    """Filler of this many characters, like the output of a long-running tool before its result."""
    lines: list[str] = []
    while sum(map(len, lines)) < chars:
        number = len(lines) + 1
        lines.append(
            f"[{number:4}] step {number} of the run: part {number * 7 % 23} is done, {number * 13 % 97} items\n"
        )
    return "".join(lines)


def overruled_cases(rows: Sequence[Mapping[str, Json]]) -> list[JudgeCase]:
    """The installation's own cases: verdicts of owners that replaced the judge's, as `/v1/rl/overruled` gives it.

    A turn counts once, with its newest verdict. A turn without a next state is left out: a judge has nothing to read.
    """
    newest: dict[str, Mapping[str, Json]] = {}
    for row in rows:
        newest.setdefault(str(row["turn"]), row)
    return [
        JudgeCase(
            OVERRULED,
            "user",
            (message(Role.USER, str(row["asked"])),),
            message(Role.ASSISTANT, str(row["reply"])),
            (message(Role.USER, str(row["next_state"])),),
            score,
        )
        for row in newest.values()
        if row["next_state"] and row["source"] == "user" and isinstance(score := row["score"], int)
    ]


def spread(cases: Sequence[JudgeCase], most: int) -> list[JudgeCase]:
    """At most this many of the cases, spread evenly over all."""
    step = max(1.0, len(cases) / most)
    return [cases[int(index * step)] for index in range(min(most, len(cases)))]
