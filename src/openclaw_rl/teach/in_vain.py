"""Learning without effect is rolled back; if a user contradicts themselves, nothing is learned from them for a while.

A user who asks for one thing after another teaches, however much they correct. Corrections are without effect if the
same is asked for again and again. If a user asks for one thing, then another, then the first again, they contradict
themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.wording.likeness import asks_alike

OFTEN = 0.5  # of the replies were corrected, in both halves, and more recently: a burst of corrections is a new wish
FEWER = 0.75  # of the earlier count, or less: then corrections do get fewer
VERSIONS = 3  # gave those replies, or more: else hardly anything was learned between them
AGAIN = 0.75  # times `turns`: this many corrections that ask for the same had no effect
RETURNS = 0.375  # times `turns`: to have come back so often to what was asked for before something else contradicts
REST = 4  # times `turns`: twice as long as it took to find out
USERS = 10_000  # remembered; the longest unheard are forgotten first


@dataclass(frozen=True, slots=True)
class ReplyOutcome:
    """One reply: whether it was corrected, the hints of that, and which version gave it."""

    is_corrected: bool
    hints: tuple[str, ...]
    version: PolicyVersion


@dataclass(slots=True)
class UserHistory:
    """A user's `latest` replies, oldest first. `rests` is from how many more of them nothing is learned."""

    latest: list[ReplyOutcome] = field(default_factory=list)
    rests: int = 0


@dataclass(slots=True)
class CorrectionMonitor:
    """Counts what each user corrects; `turns` replies are compared with as many before them, 0 for never.

    It is kept in memory and starts again after a restart. Rollouts are left out: most attempts of an agent may fail.
    """

    turns: int
    _users: OrderedDict[str, UserHistory] = field(default_factory=OrderedDict)
    _seen: OrderedDict[str, bool] = field(default_factory=OrderedDict)
    _found: list[tuple[str, PolicyVersion]] = field(default_factory=list)

    def rests(self, turn: Turn, verdict: Verdict) -> bool:
        """Whether nothing is to be learned from this judged turn. It counts once, however often it is asked about."""
        if not self.turns or turn.group is not None or verdict.score is None:
            return False
        if turn.id not in self._seen:
            hints = tuple(hint.text for hint in verdict.hints)
            self._seen[turn.id] = self._count(
                turn.user, ReplyOutcome(verdict.score < 0, hints, turn.completion.version)
            )
            if len(self._seen) > USERS:
                self._seen.popitem(last=False)
        return self._seen[turn.id]

    def found(self) -> list[tuple[str, PolicyVersion]]:
        """Users whose corrections were newly found to have no effect, and the version served when that began."""
        found, self._found = self._found, []
        return found

    def _count(self, user: str, heard: ReplyOutcome) -> bool:
        record = self._users.setdefault(user, UserHistory())
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
        corrected = [one for one in record.latest if one.is_corrected]
        wish, again, returns = told_apart([one.hints for one in corrected])
        rests = returns >= max(1, int(RETURNS * self.turns))
        if not rests and again < max(1, int(AGAIN * self.turns)):
            return False  # one new wish after the other
        # What was learned before a wish was first asked for without effect may be good: it stays.
        since = record.latest[0] if rests else next(one for one in corrected if _ask_alike(one.hints, wish))
        self._found.append((user, since.version))
        record.latest.clear()
        record.rests = REST * self.turns - 1 if rests else 0
        return rests


def told_apart(asked: Sequence[Sequence[str]]) -> tuple[Sequence[str], int, int]:
    """Of corrections' hints: what is asked for most, how often, and how often one comes back to an earlier wish.

    A correction without hints may be about anything, and counts as coming back.
    """
    wishes: list[Sequence[str]] = []
    times: list[int] = []
    last, returns = -1, 0
    for hints in asked:
        if not hints:
            last, returns = -1, returns + 1
            continue
        known = [at for at, wish in enumerate(wishes) if _ask_alike(hints, wish)]
        if not known:
            wishes.append(hints)
            times.append(0)
            known = [len(wishes) - 1]
        elif last not in known:
            returns += 1
        last = last if last in known else known[-1]
        times[last] += 1
    most = max(range(len(wishes)), key=lambda at: times[at], default=None)
    return ((), 0, returns) if most is None else (wishes[most], times[most], returns)


def _ask_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    return any(asks_alike(mine, theirs) for mine in one for theirs in other)
