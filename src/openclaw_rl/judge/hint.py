"""Which texts are hints: found between marks, accepted, deduplicated."""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.verdict import Vote
from openclaw_rl.judge.said import is_said
from openclaw_rl.wording import words

MIN_CHARS = 10  # letters of an alphabet; fewer of a script whose letters are words
_MARKED = re.compile(r"\[HINT_START\](.*?)\[HINT_END\]", re.DOTALL)


def marked_text(reply: str) -> str | None:
    """What stands between the last pair of hint marks, or None."""
    found = _MARKED.findall(reply)
    return found[-1].strip() or None if found else None


def says_something(text: str) -> bool:
    """Whether a text is long enough for a hint and says more than that the reply was bad.

    It does where one word at least is not among those that only blame: "The reply was wrong." says nothing,
    "Be concise." says how. A word in a language that no file knows says something.
    """
    return words.length(text.strip()) > MIN_CHARS and bool(words.telling(text, "blame"))


def accepted(votes: Sequence[Vote], said: str, asked: str) -> list[Hint]:
    """The hints of those answers whose own vote is 1 and that say only what the user did, in the order they came."""
    return [
        Hint(vote.hint)
        for vote in votes
        if vote.score == 1
        and vote.hint is not None
        and says_something(vote.hint)
        and is_said(vote.hint, said, asked=asked)
    ]


def distinct(hints: Sequence[Hint]) -> tuple[Hint, ...]:
    """The hints without repetitions, in their order. Which of them is learned from, the trainer's method says."""
    seen: dict[str, Hint] = {}
    for hint in hints:
        seen.setdefault(normalised(hint.text), hint)
    return tuple(seen.values())


def normalised(text: str) -> str:
    """The text's words alone: two hints that differ in case, spaces or punctuation are one."""
    return " ".join(words.words_in(text))
