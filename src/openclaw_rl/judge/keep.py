"""Which of a verdict's hints is kept beyond its own task: a wish about how to answer, not the answer itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.kept_hint import likeness
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict

MOST_CHARS = 600  # what is longer describes a task
_NUMBER = re.compile(r"\d[\d.,]*\s*-?\s*([^\W\d]*)")
_NAME = re.compile(r"(?<=[^.!?:\n] )[A-Z][a-z]+\b")  # capitalised within a sentence
# "In 3 sentences" is a wish, "the answer is 3" is not: a number may stand before one of these alone.
_MEASURES = frozenset(
    """
    bullet bullets character characters column columns decimal decimals digit digits example examples item items line
    lines page pages paragraph paragraphs part parts percent place places point points section sections sentence
    sentences spaces step steps syllables th word words
    """.split()  # noqa: SIM905
)


def kept_hint(turn: Turn, verdict: Verdict) -> Hint | None:
    """The hint to serve the turn's user with from now on; None where every hint is about this one task.

    Of several the one most like the others, and none where fewer than half of the judge's tries found anything to say:
    what only one vote says is more likely made up, and would stand in every prompt.
    """
    tries = [vote for vote in verdict.votes if vote.asked == "hint"]
    if 2 * sum(vote.score == 1 and vote.hint is not None for vote in tries) < len(tries):
        return None
    asked = " ".join(item.text for item in turn.messages)
    general = [hint for hint in verdict.hints if is_general(hint.text, asked)]
    if not general:
        return None
    return max(general, key=lambda hint: _agreement(hint, general))


def is_general(text: str, asked: str) -> bool:
    """Whether a hint would mean the same in another task: it names no number but a measure, and nobody in `asked`."""
    if len(text) > MOST_CHARS:
        return False
    if any(found[1].casefold() not in _MEASURES for found in _NUMBER.finditer(text)):
        return False
    return not any(re.search(rf"\b{name}\b", asked) for name in _NAME.findall(text))


def _agreement(hint: Hint, others: Sequence[Hint]) -> float:
    return sum(likeness(hint.text, other.text) for other in others)
