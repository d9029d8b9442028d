"""Which of a verdict's hints is kept beyond its own task: a wish about how to answer, not the answer itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl.core.hint import Hint, HintSource
from openclaw_rl.core.kept_hint import likeness, telling_words
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict

MOST_CHARS = 600  # what is longer describes a task
MUCH_ALIKE = 0.3
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


def kept_hint(turn: Turn, verdict: Verdict, said: str) -> Hint | None:
    """The hint to serve the turn's user with from now on; None where there is none to trust that far.

    It would stand in every prompt, so it takes more than to be learned from once: it means the same in another task,
    at least half of the judge's tries found anything to say, and one of them echoes what the user `said` or is much
    like another. Of several the one with most of this.
    """
    tries = [vote for vote in verdict.votes if vote.asked == "hint"]
    found = [vote.hint for vote in tries if vote.score == 1 and vote.hint is not None]
    if 2 * len(found) < len(tries):
        return None
    asked = " ".join(item.text for item in turn.messages)
    general = [hint for hint in verdict.hints if is_general(hint.text, asked)]
    worth = {hint: _support(hint, found) + bool(telling_words(hint.text) & telling_words(said)) for hint in general}
    is_alone = len(tries) < 2  # there is no second voice to be had
    trusted = [hint for hint in general if worth[hint] > 0 or is_alone or hint.source is not HintSource.JUDGE]
    return max(trusted, key=lambda hint: (worth[hint], _agreement(hint, general)), default=None)


def is_general(text: str, asked: str) -> bool:
    """Whether a hint would mean the same in another task: it names no number but a measure, and nobody in `asked`."""
    if len(text) > MOST_CHARS:
        return False
    if any(found[1].casefold() not in _MEASURES for found in _NUMBER.finditer(text)):
        return False
    return not any(re.search(rf"\b{name}\b", asked) for name in _NAME.findall(text))


def _support(hint: Hint, found: Sequence[str]) -> int:
    """How many of the judge's other tries say much the same."""
    return sum(likeness(hint.text, other) >= MUCH_ALIKE for other in found) - (hint.text in found)


def _agreement(hint: Hint, others: Sequence[Hint]) -> float:
    return sum(likeness(hint.text, other.text) for other in others)
