"""A hint: what a turn should have known, and the teacher's prompt with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations
from typing import TypeVar

from openclaw_rl.core.message import Message, Role, message

LABEL = "[user's hint]"
CONCERNS_NATS = 2.0  # by which a hint makes the reply without it less likely, at least, if it concerns the request
MOST_ORDERED = 3  # hints of which every order is tried
FOLLOWED = " follows without it"  # in the reason of a retired hint: the weights have learned it
NOT_LEARNED = "the weights could not learn it without damage"  # why a hint in use is in prompts with any carry


Item = TypeVar("Item")


class HintSource(StrEnum):
    """Who worded the hint."""

    JUDGE = "judge"
    FOLLOWUP = "followup"
    OWNER = "owner"  # written by hand


@dataclass(frozen=True, slots=True)
class Hint:
    """One to three sentences that would have improved a reply."""

    text: str
    source: HintSource = HintSource.JUDGE

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("a hint says something")


@dataclass(frozen=True, slots=True)
class PlacedHint:
    """A kept hint in a prompt: the message it follows, its id, and its words."""

    at: int
    id: str
    text: str


def last_user_index(messages: Sequence[Message]) -> int | None:
    """The index of the last user message, or None if there is none."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role is Role.USER:
            return index
    return None


def hinted(messages: Sequence[Message], hint: Hint) -> tuple[Message, ...]:
    """The messages with the hint after the last user message's text, under a short label.

    This is the enhanced prompt with which a teacher scores the sampled reply. Raises ValueError without a user message.
    Source: arXiv 2603.10165.
    """
    index = last_user_index(messages)
    if index is None:
        raise ValueError("there is no user message to add a hint to")
    return with_hints(messages, (PlacedHint(index, "", hint.text),))


def with_hints(messages: Sequence[Message], placed: Sequence[PlacedHint]) -> tuple[Message, ...]:
    """The messages with hints in the place and form of `hinted`; those of one place share a label."""
    if not placed:
        return tuple(messages)
    found = list(messages)
    for index in {item.at for item in placed}:
        said = " ".join(item.text.strip() for item in placed if item.at == index)
        found[index] = found[index].with_text(f"{found[index].text}\n\n{LABEL} {said}")
    return tuple(found)


def orders(hints: Sequence[Item]) -> list[tuple[Item, ...]]:
    """The orders in which hints of one place are tried, the given one first: all of up to three hints, four of more.

    A base model may follow several hints in one order, and not in another. Every two hints stand in both orders in the
    first four: the last hint last and first, and the same with the others reversed.
    """
    *others, last = hints
    back = others[::-1]
    first = ((*others, last), (last, *others), (*back, last), (last, *back))
    return list(dict.fromkeys((*first, *(permutations(hints) if len(hints) <= MOST_ORDERED else ()))))


def told_after(messages: Sequence[Message], reply: Message, hints: Sequence[str]) -> tuple[Message, ...]:
    """The messages with a reply that was given without the hints, and the hints as the user's next message."""
    return (*messages, reply, message(Role.USER, "\n".join(hints)))


class Carry(StrEnum):
    """How a user's kept hints are used while the weights learn."""

    WEIGHTS = "weights"  # none is in a prompt, except those that the weights could not learn
    MEMORY = "memory"  # they are in the prompt, and the weights are not trained
    BRIDGE = "bridge"  # they are in the prompt until the weights follow without them


class HintState(StrEnum):
    """Whether a kept hint may be in a prompt."""

    IN_USE = "in_use"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class KeptHint:
    """A user's hint. `why` is the reason for its state; `times` counts how often it was asked for.

    `turn` is the corrected turn it was taken from, None if it was written by hand.
    """

    id: str
    user: str
    text: str
    source: HintSource
    state: HintState
    why: str
    made_s: float
    changed_s: float
    turn: str | None = None
    times: int = 1

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("a hint says something")

    @property
    def is_in_use(self) -> bool:
        """Whether it may be in a prompt."""
        return self.state is HintState.IN_USE

    @property
    def needs_prompt(self) -> bool:
        """Whether it is in use, and the weights could not learn it since it was last asked for."""
        return self.is_in_use and self.why == NOT_LEARNED

    @property
    def is_wished(self) -> bool:
        """Whether the user still wishes for it: it is in use, or the weights follow it without the prompt."""
        return self.is_in_use or FOLLOWED in self.why
