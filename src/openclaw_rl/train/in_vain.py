"""Learning from somebody rests for a while where it does not help: what contradicts itself cannot be learned."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.core.version import PolicyVersion

OFTEN = 0.5  # of the replies were corrected, earlier and later: a burst of corrections is a new wish
FEWER = 0.75  # of the earlier count, or less: then corrections do get fewer
REST = 4  # times `turns`: twice as long as it took to find out
USERS = 10_000  # remembered; the longest unheard are forgotten first


@dataclass(slots=True)
class Record:
    """A user's `latest` replies, oldest first: whether each was corrected, and which version gave it.

    `rests` is from how many more of them nothing is learned.
    """

    latest: list[tuple[bool, PolicyVersion]] = field(default_factory=list)
    rests: int = 0


@dataclass(slots=True)
class InVain:
    """Counts what each user corrects; `turns` is how many replies are held against as many before them, 0 for never.

    It is kept in memory: a restart begins anew. Rollouts are left out: most of what an agent tries may fail.
    """

    turns: int
    _users: OrderedDict[str, Record] = field(default_factory=OrderedDict)
    _seen: OrderedDict[str, bool] = field(default_factory=OrderedDict)
    _found: list[tuple[str, PolicyVersion]] = field(default_factory=list)

    def rests(self, turn: Turn, verdict: Verdict) -> bool:
        """Whether nothing is to be learned from this judged turn. It counts once, however often it is asked about."""
        if not self.turns or turn.group is not None or verdict.score is None:
            return False
        if turn.id not in self._seen:
            self._seen[turn.id] = self._count(turn, is_corrected=verdict.score < 0)
            if len(self._seen) > USERS:
                self._seen.popitem(last=False)
        return self._seen[turn.id]

    def found(self) -> list[tuple[str, PolicyVersion]]:
        """Who was newly found to be taught by in vain, and which version their turns in vain began with."""
        found, self._found = self._found, []
        return found

    def _count(self, turn: Turn, *, is_corrected: bool) -> bool:
        record = self._users.setdefault(turn.user, Record())
        self._users.move_to_end(turn.user)
        if len(self._users) > USERS:
            self._users.popitem(last=False)
        if record.rests:
            record.rests -= 1
            return True
        record.latest.append((is_corrected, turn.completion.version))
        del record.latest[: -2 * self.turns]
        corrected = [was_corrected for was_corrected, _ in record.latest]
        earlier, later = sum(corrected[: self.turns]), sum(corrected[self.turns :])
        is_often = min(earlier, later) >= OFTEN * self.turns
        if len(corrected) < 2 * self.turns or not is_often or later <= FEWER * earlier:
            return False
        self._found.append((turn.user, record.latest[0][1]))
        record.latest.clear()
        record.rests = REST * self.turns - 1
        return True
