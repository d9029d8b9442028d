"""Corrections that are repeated: within a day more often than one user may, or just before in a conversation.

The number of samples that one user may give in a day is limited here, too.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import JudgedTurn
from openclaw_rl.teach.misheard import CORRECTED_MOST
from openclaw_rl.teach.settings import TeachSettings

DAY_S = 86_400
USERS = 10_000  # remembered within a day; those without a turn for the longest time are forgotten first


@dataclass(slots=True)
class DailyCounts:
    """Counts what each user teaches in a day (UTC), in memory: after a restart the counts begin at 0.

    Corrections are the same if their scores and the words of their hints are. So are thumbs with the same score.
    """

    settings: TeachSettings
    now_s: Callable[[], float] = time.time
    _day: int = -1
    _users: OrderedDict[str, Counter[str]] = field(default_factory=OrderedDict)
    _seen: set[str] = field(default_factory=set)

    def refusal(self, turn: Turn, verdict: Verdict) -> DropReason | None:
        """Why a turn is beyond its user's limits; None if it is not.

        A turn within the limits is counted, only once however often this is called for it.
        """
        if turn.id in self._seen:
            return None
        counts = self._counts(turn.user)
        words = _words(verdict)
        if words and self._is_over(counts[words], self.settings.same_words_a_day):
            return DropReason.REPEATED
        if self._is_over(counts[""], self.settings.user_samples_a_day):
            return DropReason.TOO_MANY
        counts[""] += 1
        if words:
            counts[words] += 1
        self._seen.add(turn.id)
        return None

    def let_go(self) -> None:
        """Sets all counts to 0."""
        self._users.clear()
        self._seen.clear()

    @staticmethod
    def _is_over(count: int, most: int) -> bool:
        return bool(most) and count >= most

    def _counts(self, user: str) -> Counter[str]:
        today = int(self.now_s() // DAY_S)
        if today != self._day:
            self._day = today
            self._users.clear()
            self._seen.clear()
        counts = self._users.setdefault(user, Counter())
        self._users.move_to_end(user)
        if len(self._users) > USERS:
            self._users.popitem(last=False)
        return counts


async def is_said_before(store: Store, row: JudgedTurn) -> bool:
    """Whether the same version was corrected in the same words just before, and that is learned from.

    The later correction says nothing new: no version could learn from the earlier one in between. What it would add is
    how to reply to a complaint, of which a small model knows little.
    """
    parent, words = row.turn.parent, {hint.text for hint in row.verdict.hints}
    for _ in range(CORRECTED_MOST):
        before = None if parent is None else await store.row(parent)
        if before is None or before.verdict is None or before.verdict.score is None or before.verdict.score >= 0:
            return False
        if before.turn.completion.version != row.turn.completion.version:
            return False
        if before.state in (State.READY, State.TRAINED) and words <= {hint.text for hint in before.verdict.hints}:
            return True
        parent = before.turn.parent
    return False


def _words(verdict: Verdict) -> str:
    """What a verdict teaches, as one text; empty if it has no hints and is not a user's feedback."""
    hints = sorted(" ".join(hint.text.casefold().split()) for hint in verdict.hints)
    if hints:
        return f"{verdict.score}: {' / '.join(hints)}"
    return f"{verdict.score}: a thumb" if verdict.source is VerdictSource.FEEDBACK else ""
