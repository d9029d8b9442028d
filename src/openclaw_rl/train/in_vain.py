"""Learning from somebody rests for a while where it does not help: what contradicts itself cannot be learned."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict

OFTEN = 0.5  # of the later replies were corrected
FEWER = 0.75  # of the earlier count, or less: then corrections do get fewer
USERS = 10_000  # remembered; the longest unheard are forgotten first


@dataclass(slots=True)
class Record:
    """Whether each of a user's latest replies was corrected, oldest first, and for how many more nothing is learned."""

    corrected: list[bool] = field(default_factory=list)
    rests: int = 0


@dataclass(slots=True)
class InVain:
    """Counts what each user corrects; `turns` is how many replies are held against as many before them, 0 for never.

    It is kept in memory: a restart begins anew. Rollouts are left out: most of what an agent tries may fail.
    """

    turns: int
    _users: OrderedDict[str, Record] = field(default_factory=OrderedDict)
    _seen: OrderedDict[str, bool] = field(default_factory=OrderedDict)

    def rests(self, turn: Turn, verdict: Verdict) -> bool:
        """Whether nothing is to be learned from this judged turn. It counts once, however often it is asked about."""
        if not self.turns or turn.group is not None or verdict.score is None:
            return False
        if turn.id not in self._seen:
            self._seen[turn.id] = self._count(turn.user, is_corrected=verdict.score < 0)
            if len(self._seen) > USERS:
                self._seen.popitem(last=False)
        return self._seen[turn.id]

    def _count(self, user: str, *, is_corrected: bool) -> bool:
        record = self._users.setdefault(user, Record())
        self._users.move_to_end(user)
        if len(self._users) > USERS:
            self._users.popitem(last=False)
        if record.rests:
            record.rests -= 1
            return True
        record.corrected.append(is_corrected)
        del record.corrected[: -2 * self.turns]
        earlier, later = sum(record.corrected[: self.turns]), sum(record.corrected[self.turns :])
        if len(record.corrected) < 2 * self.turns or later < OFTEN * self.turns or later <= FEWER * earlier:
            return False
        record.corrected.clear()
        record.rests = 2 * self.turns - 1
        return True
