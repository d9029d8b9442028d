"""What was learned from somebody in vain is taken back; from who contradicts themselves nothing is learned for a while.

Who goes on asking for the same does not contradict themselves: then learning begins again at once, from where it was.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from openclaw_rl.core.kept_hint import asks_alike
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.core.version import PolicyVersion

OFTEN = 0.5  # of the replies were corrected, earlier and later, and more lately: a burst of corrections is a new wish
FEWER = 0.75  # of the earlier count, or less: then corrections do get fewer
VERSIONS = 3  # gave those replies, or more: else hardly anything was learned between them
STEADY = 0.5  # of the corrections ask for what the one before asked for: that is a wish, not a contradiction
REST = 4  # times `turns`: twice as long as it took to find out
USERS = 10_000  # remembered; the longest unheard are forgotten first


@dataclass(frozen=True, slots=True)
class Heard:
    """One reply: whether it was corrected, the hints of that, and which version gave it."""

    is_corrected: bool
    hints: tuple[str, ...]
    version: PolicyVersion


@dataclass(slots=True)
class Record:
    """A user's `latest` replies, oldest first. `rests` is from how many more of them nothing is learned."""

    latest: list[Heard] = field(default_factory=list)
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
            hints = tuple(hint.text for hint in verdict.hints)
            self._seen[turn.id] = self._count(turn.user, Heard(verdict.score < 0, hints, turn.completion.version))
            if len(self._seen) > USERS:
                self._seen.popitem(last=False)
        return self._seen[turn.id]

    def found(self) -> list[tuple[str, PolicyVersion]]:
        """Who was newly found to be taught by in vain, and which version their turns in vain began with."""
        found, self._found = self._found, []
        return found

    def _count(self, user: str, heard: Heard) -> bool:
        record = self._users.setdefault(user, Record())
        self._users.move_to_end(user)
        if len(self._users) > USERS:
            self._users.popitem(last=False)
        if record.rests:
            record.rests -= 1
            return True
        record.latest.append(heard)
        del record.latest[: -2 * self.turns]
        earlier = sum(one.is_corrected for one in record.latest[: self.turns])
        later = sum(one.is_corrected for one in record.latest[self.turns :])
        lately = sum(one.is_corrected for one in record.latest[-(self.turns // 2) :])
        is_often = min(earlier, later) >= OFTEN * self.turns and lately > OFTEN * (self.turns // 2)
        has_learned = len({one.version for one in record.latest}) >= min(VERSIONS, self.turns)
        if len(record.latest) < 2 * self.turns or not is_often or later <= FEWER * earlier or not has_learned:
            return False
        self._found.append((user, record.latest[0].version))
        rests = not _is_steady(record.latest)
        record.latest.clear()
        record.rests = REST * self.turns - 1 if rests else 0
        return rests


def _is_steady(latest: Sequence[Heard]) -> bool:
    """Whether most corrections ask for what the one before asked for."""
    asked = [one.hints for one in latest if one.is_corrected]
    alike = sum(any(asks_alike(mine, theirs) for mine in now for theirs in before) for before, now in pairwise(asked))
    return len(asked) > 1 and alike >= STEADY * (len(asked) - 1)
