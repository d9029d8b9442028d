"""Which of the judge's tries for a hint are trusted, and which is kept beyond its own task."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from openclaw_rl.core.hint import Hint, HintSource
from openclaw_rl.core.message import Message, Role
from openclaw_rl.core.next_state import NextState
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, Vote
from openclaw_rl.judge.hint import accepted, distinct
from openclaw_rl.judge.quoted import own_words
from openclaw_rl.judge.settings import HintFrom
from openclaw_rl.judge.signals import followup_hint, owner_messages
from openclaw_rl.wording.likeness import forbids, is_general, likeness, may_oppose, telling_words

MUCH_ALIKE = 0.3
MOST_ECHOED = 2  # of the user's words that a hint is given credit for: as much as two other tries that say the same


def taught_hints(
    hinting: Sequence[Vote],
    score: int | None,
    next_state: NextState,
    request: Sequence[Message],
    source: HintFrom,
) -> tuple[Hint, ...]:
    """The hints that are learned from, whatever the score: a hint of a judge's vote must be based on the user's words.

    The judge's votes must support it, too. The user's own words count if the reply was bad and `source` says so.
    """
    said = " ".join(item.text for item in owner_messages(next_state))
    asked = " ".join(own_words(item.text) for item in request if item.role is Role.USER)
    hints = best_founded(accepted(hinting, said, asked), said, tries=len(hinting))
    if score == -1 and source is not HintFrom.JUDGE:
        own = followup_hint(next_state)
        hints += [own] if own is not None else []
    return distinct(hints)


def best_founded(hints: Sequence[Hint], said: str, *, tries: int) -> list[Hint]:
    """The judge's hints with the most support: similar hints of other votes, and words the user `said`.

    Nothing if the judge is unsure: fewer than half of the `tries` found anything, several of them have nothing in
    common with each other or with what was said, or the best ones contradict each other. A hint that forbids something
    has no support in the words of a user who forbade nothing.
    """
    if 2 * len(hints) < tries:
        return []
    worth = [
        sum(_says_the_same(hint.text, other.text) for at, other in enumerate(hints) if at != own) + _echoed(hint, said)
        for own, hint in enumerate(hints)
    ]
    best = [hint for hint, grounds in zip(hints, worth, strict=True) if grounds == max(worth)]
    is_scattered = len(hints) > 1 and max(worth) == 0
    is_torn = any(may_oppose(one.text, other.text) for one, other in combinations(best, 2))
    return [] if is_scattered or is_torn else best


def kept_hint(turn: Turn, verdict: Verdict, said: str) -> Hint | None:
    """The hint to use in the user's prompts from now on; None if none can be trusted that far.

    It would be in every prompt, so the conditions are stricter than for learning from it once: it means the same in
    another task, at least half of the judge's votes found a hint, and one of them repeats what the user `said` or is
    much like another. Of several, the one with the most support is chosen.
    """
    tries = [vote for vote in verdict.votes if vote.asked == "hint"]
    found = [vote.hint for vote in tries if vote.score == 1 and vote.hint is not None]
    if 2 * len(found) < len(tries):
        return None
    asked = " ".join(item.text for item in turn.messages)
    general = [hint for hint in verdict.hints if is_general(hint.text, asked)]
    worth = {hint: _support(hint, found) + bool(telling_words(hint.text) & telling_words(said)) for hint in general}
    is_alone = len(tries) < 2  # there is no second vote
    trusted = [hint for hint in general if worth[hint] > 0 or is_alone or hint.source is not HintSource.JUDGE]
    return max(trusted, key=lambda hint: (worth[hint], _agreement(hint, general)), default=None)


def _says_the_same(one: str, other: str) -> bool:
    return likeness(one, other) >= MUCH_ALIKE and not may_oppose(one, other)


def _echoed(hint: Hint, said: str) -> int:
    if forbids(hint.text) and not forbids(said):
        return 0
    return min(MOST_ECHOED, len(telling_words(hint.text) & telling_words(said)))


def _support(hint: Hint, found: Sequence[str]) -> int:
    """How many of the judge's other tries say much the same."""
    return sum(_says_the_same(hint.text, other) for other in found) - (hint.text in found)


def _agreement(hint: Hint, others: Sequence[Hint]) -> float:
    return sum(likeness(hint.text, other.text) for other in others)
