"""Which steps of a group are comparable: those in the same situation, as far as their messages show it.

A step's situation is the actions and observations before it, at three levels from strict to loose:

    1. the set of all (action, observation) pairs so far, in any order
    2. the last such pair
    3. the step's index

    N(x) = the steps that share x's key at the strictest level at which they come from at least
           max(2, G / 4) of the G graded episodes; without such a level, all steps of the group
    A(x) = (r_x - mean r over N(x)) / population std of r over N(x),  r = outcome + coefficient * step score

So a step is compared with the other results from the same state. Equal observations alone are not enough, because many
commands print nothing. If all steps from the same state have the same reward, they teach nothing: the decisive step
came earlier.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.message import Message, Role
from openclaw_rl.core.turn import Turn
from openclaw_rl.store.tables.episodes import StepRow

SHARE = 4  # one in this many of a group's episodes must have been in a situation
LEAST = 2  # episodes must have been in it in any case
# What differs from run to run and says nothing about the state: addresses, times of day, durations, temporary names.
CHANGING = re.compile(
    r"0x[0-9a-fA-F]+|\b\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?\b|\b\d+(?:\.\d+)? ?(?:ms|s|sec|seconds)\b|/tmp/[\w.\-]+"
)


@dataclass(frozen=True, slots=True)
class Situation:
    """The history before a step, as digests: of all (action, observation) pairs, and of the last pair."""

    all: str
    last: str


def situation_of(turn: Turn) -> Situation:
    """The situation in which a turn was taken, read from its messages."""
    pairs: list[tuple[str, str]] = []
    seen: list[str] = []
    action = ""
    for item in turn.messages:
        if item.role is Role.ASSISTANT:
            pairs.append((action, _plain(" ".join(seen))))
            action, seen = _action(item), []
        else:
            seen.append(item.text)
    pairs.append((action, _plain(" ".join(seen))))
    return Situation(_digest(sorted(set(pairs))), _digest([pairs[-1]]))


def neighbours(steps: Sequence[StepRow], situations: Mapping[str, Situation]) -> dict[str, tuple[str, ...]]:
    """The turns that each step is compared with, its own among them, by turn; `steps` are a group's graded steps."""
    keys = {step.turn: _keys(step, situations.get(step.turn)) for step in steps}
    episodes: dict[tuple[str, str], set[str]] = defaultdict(set)
    members: dict[tuple[str, str], list[str]] = defaultdict(list)
    for step in steps:
        for key in keys[step.turn]:
            episodes[key].add(step.step.episode)
            members[key].append(step.turn)
    least = max(LEAST, -(-len({step.step.episode for step in steps}) // SHARE))
    everything = tuple(step.turn for step in steps)
    return {
        turn: next((tuple(members[key]) for key in own if len(episodes[key]) >= least), everything)
        for turn, own in keys.items()
    }


def _keys(step: StepRow, situation: Situation | None) -> list[tuple[str, str]]:
    known = [] if situation is None else [("all", situation.all), ("last", situation.last)]
    return [*known, ("index", str(step.step.index))]


def _action(said: Message) -> str:
    """What a reply does: its tool calls without their ids; if it has none, its text."""
    calls = [json.dumps([call.name, call.parsed()], sort_keys=True) for call in said.tool_calls]
    return _plain("; ".join(calls) if calls else said.text)


def _plain(text: str) -> str:
    return " ".join(CHANGING.sub("~", text).split())


def _digest(pairs: Sequence[tuple[str, str]]) -> str:
    held = json.dumps(pairs, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(held, digest_size=16).hexdigest()
