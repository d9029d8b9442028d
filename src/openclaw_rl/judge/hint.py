"""Which texts are hints: found between marks, accepted, deduplicated."""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.verdict import Vote

MIN_CHARS = 10
_MARKED = re.compile(r"\[HINT_START\](.*?)\[HINT_END\]", re.DOTALL)
_WORD = re.compile(r"\w+")

# Words that say of a reply that it was bad, to whom and how much, but not what would have been better.
_EMPTY_WORDS = frozenset(
    """
    a about acceptable again all also an and any answer answered answers are as assistant at awful bad be because been
    being better but by can chatbot complaint correct correction could did didn disappointed disliked dissatisfied do
    does doesn don done error errors even expectations expected failed fault find for found from gave get give given
    gives good great had happy has hated have he help helped helpful her his i improve improved improvement in incorrect
    is isn it its just less like liked likes made make makes me message met mistake mistakes model more much my need
    needed needs new nice no not of off ok okay on one or our output perfect please poor previous problem quality quite
    re really redo rejected reply replied replies request requested response responses retry right s said satisfied say
    says she should so sorry still t terrible than that the their them then there these they thing things think this to
    too try trying unacceptable unhappy unhelpful unsatisfactory unsatisfied useless user very want wanted wants was
    wasn way we well went were what which with work worked worse worst would write written wrong you your
    """.split()  # noqa: SIM905
)


def marked_text(reply: str) -> str | None:
    """What stands between the last pair of hint marks, or None."""
    found = _MARKED.findall(reply)
    return found[-1].strip() or None if found else None


def says_something(text: str) -> bool:
    """Whether a text is long enough for a hint and says more than that the reply was bad.

    It does where one word at least is not among those that only blame: "The reply was wrong." says nothing,
    "Be concise." says how.
    """
    if len(text.strip()) <= MIN_CHARS:
        return False
    return any(word not in _EMPTY_WORDS for word in _WORD.findall(text.casefold()))


def accepted(votes: Sequence[Vote]) -> list[Hint]:
    """The hints of those answers whose own vote is 1, in the order they came."""
    return [
        Hint(vote.hint) for vote in votes if vote.score == 1 and vote.hint is not None and says_something(vote.hint)
    ]


def distinct(hints: Sequence[Hint]) -> tuple[Hint, ...]:
    """The hints without repetitions, in their order. Which of them is learned from, the trainer's method says."""
    seen: dict[str, Hint] = {}
    for hint in hints:
        seen.setdefault(normalised(hint.text), hint)
    return tuple(seen.values())


def normalised(text: str) -> str:
    """The text's words alone: two hints that differ in case, spaces or punctuation are one."""
    return " ".join(_WORD.findall(text.casefold()))
