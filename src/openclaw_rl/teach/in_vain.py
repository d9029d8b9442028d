"""Finds corrections without effect and users who contradict themselves.

What was learned from either is rolled back, unless others taught the same version meanwhile. From a user who
contradicts themselves, nothing is learned for a while after that. A user who asks for one new thing after another does
teach, however often they correct. Corrections have no effect if the user asks for the same again and again. A user who
asks for one thing, then for another, then for the first again, contradicts themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.wording.likeness import asks_alike

# Share of replies that were corrected: at least this in each half, and more in the latest quarter. Otherwise it was a
# burst of corrections for a new wish.
OFTEN = 0.5
FEWER = 0.75  # of the earlier count: with this many corrections or less in the later half, they do get fewer
VERSIONS = 3  # at least this many gave the replies (or `turns`, if less): else hardly anything was learned meanwhile
AGAIN = 0.75  # times `turns`: this many corrections that ask for the same, of versions that could have learned it
RETURNS = 0.375  # times `turns`: a user who returns this often to an earlier wish contradicts themselves
REST = 4  # times `turns`: replies from which nothing is learned, twice as many as it took to find out
USERS = 10_000  # remembered, and as many turns; the users without a reply for the longest time are forgotten first


@dataclass(frozen=True, slots=True)
class ReplyOutcome:
    """One reply: whether it was corrected, the hints of the correction, and the version that gave the reply."""

    is_corrected: bool
    hints: tuple[str, ...]
    version: PolicyVersion


@dataclass(slots=True)
class UserHistory:
    """A user's `latest` replies, oldest first. Nothing is learned from the next `rests` replies."""

    latest: list[ReplyOutcome] = field(default_factory=list)
    rests: int = 0


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    """A user whose corrections have no effect, and the version served when that began.

    `wish` are the hints of what they keep asking for; empty if they contradict themselves.
    """

    user: str
    since: PolicyVersion
    wish: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The reason, in words."""
        return "they ask for the same again and again" if self.wish else "they contradict themselves"


@dataclass(slots=True)
class CorrectionMonitor:
    """Counts each user's corrections, and compares the last `turns` replies with as many before them; 0 for never.

    The counts are kept in memory and lost with a restart. Rollouts are left out, because most attempts of an agent may
    fail.
    """

    turns: int
    _users: OrderedDict[str, UserHistory] = field(default_factory=OrderedDict)
    _seen: OrderedDict[str, bool] = field(default_factory=OrderedDict)
    _found: list[WithoutEffect] = field(default_factory=list)

    def rests(self, turn: Turn, verdict: Verdict) -> bool:
        """Whether nothing is to be learned from this judged turn.

        A turn is counted once, however often this is called for it. Rollouts and turns without a score do not count.
        """
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

    def found(self) -> list[WithoutEffect]:
        """What was newly found."""
        found, self._found = self._found, []
        return found

    def _count(self, user: str, outcome: ReplyOutcome) -> bool:
        record = self._users.setdefault(user, UserHistory())
        self._users.move_to_end(user)
        if len(self._users) > USERS:
            self._users.popitem(last=False)
        if record.rests:
            record.rests -= 1
            return True
        record.latest.append(outcome)
        del record.latest[: -2 * self.turns]
        earlier = sum(one.is_corrected for one in record.latest[: self.turns])
        later = sum(one.is_corrected for one in record.latest[self.turns :])
        latest = sum(one.is_corrected for one in record.latest[-(self.turns // 2) :])
        is_often = min(earlier, later) >= OFTEN * self.turns and latest > OFTEN * (self.turns // 2)
        has_learned = len({one.version for one in record.latest}) >= min(VERSIONS, self.turns)
        if len(record.latest) < 2 * self.turns or not is_often or later <= FEWER * earlier or not has_learned:
            return False
        corrected = [one for one in record.latest if one.is_corrected]
        wish, at, returns = told_apart([one.hints for one in corrected])
        asked = [corrected[index] for index in at]
        rests = returns >= max(1, int(RETURNS * self.turns))
        if not rests and _in_vain(asked) < max(1, int(AGAIN * self.turns)):
            return False  # one new wish after the other, or its versions were refused
        # What was learned before the wish without effect was first asked for may be good, and is kept.
        since = record.latest[0] if rests else asked[0]
        self._found.append(WithoutEffect(user, since.version, () if rests else tuple(wish)))
        record.latest.clear()
        record.rests = REST * self.turns - 1 if rests else 0
        return rests


def _in_vain(asked: Sequence[ReplyOutcome]) -> int:
    """Corrections of versions that could have learned the wish: not of the one that was first corrected for it.

    While all new versions are refused, replies come from that one. Then nothing was learned, so nothing was in vain.
    """
    return sum(one.version != asked[0].version for one in asked)


def told_apart(asked: Sequence[Sequence[str]]) -> tuple[Sequence[str], Sequence[int], int]:
    """The hints of the wish that was asked for most often, at which places, and how many corrections return to a wish.

    `asked` are the hints of each correction, oldest first. A correction returns if it asks for an earlier wish after
    another one. One without hints may be about anything: a wrong result, or nothing. These count as returns if they are
    the most, or if others return, but not beside a wish that is merely repeated.
    """
    wishes: list[Sequence[str]] = []
    places: list[list[int]] = []
    last, returns = -1, 0
    with_hints = [(at, hints) for at, hints in enumerate(asked) if hints]
    for at, hints in with_hints:
        known = [number for number, wish in enumerate(wishes) if _ask_alike(hints, wish)]
        if not known:
            wishes.append(hints)
            places.append([])
            known = [len(wishes) - 1]
        elif last not in known:
            returns += 1
        last = last if last in known else known[-1]
        places[last].append(at)
    without = len(asked) - len(with_hints)
    if returns or without > len(with_hints):
        returns += without
    most = max(range(len(wishes)), key=lambda number: len(places[number]), default=None)
    return ((), (), returns) if most is None else (wishes[most], places[most], returns)


def _ask_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    return any(asks_alike(mine, theirs) for mine in one for theirs in other)
