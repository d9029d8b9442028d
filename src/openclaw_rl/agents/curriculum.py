"""Chooses the next task: one whose success rate is between bounds. It remembers the results of each.

A group whose attempts all ended alike teaches nothing, so its task is postponed and another one is used.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import msgspec


class TaskMemory(msgspec.Struct):
    """The results of a task. `success` is the share of successes in its groups, newer ones weighing more."""

    success: float = 0.0
    groups: int = 0
    graded: int = 0
    solved: int = 0
    last: int = 0  # the group's number when it was last begun
    broken: str = ""  # why it cannot be used, from the environment


class CurriculumSettings(msgspec.Struct, frozen=True):
    """Tasks with a success between `low` and `high` are chosen, the likelier the nearer to 1/2.

    One choice in `explore_every` goes to the least recently tried task. `weight` is the weight of a task's
    newest group in its success rate.
    """

    low: float = 0.05
    high: float = 0.9
    explore_every: int = 4
    weight: float = 0.7


class Curriculum:
    """Chooses tasks by name. The caller stores `memory`; it is changed in place."""

    def __init__(
        self, names: Sequence[str], memory: dict[str, TaskMemory], settings: CurriculumSettings, seed: int
    ) -> None:
        self.names = [*names]
        self.memory = memory
        self._settings = settings
        self._random = random.Random(seed)
        self._order = {name: self._random.random() for name in sorted(names)}  # among those never tried
        self._chosen = 0

    def choose(self, number: int, busy: Collection[str] = ()) -> str | None:
        """The task of the next group, not one under way if there is another; None if all are broken."""
        usable = [name for name in self.names if not self._of(name).broken]
        free = [name for name in usable if name not in busy] or usable
        if not free:
            return None
        self._chosen += 1
        fitting = [name for name in free if self._fits(name)]
        explores = self._settings.explore_every and self._chosen % self._settings.explore_every == 0
        if not fitting or explores:
            name = min(free, key=lambda one: (self._of(one).last, self._order[one]))
        else:
            name = self._random.choices(fitting, [self._weight(one) for one in fitting])[0]
        self.memory.setdefault(name, TaskMemory()).last = number
        return name

    def note(self, name: str, successes: Sequence[bool]) -> None:
        """A group of this task is over; `successes` are those of its graded attempts."""
        if not successes:
            return
        held = self.memory.setdefault(name, TaskMemory())
        share = sum(successes) / len(successes)
        weight = self._settings.weight if held.groups else 1.0
        held.success += weight * (share - held.success)
        held.groups += 1
        held.graded += len(successes)
        held.solved += sum(successes)

    def put_aside(self, name: str, why: str) -> None:
        """The task is broken and is not chosen again."""
        self.memory.setdefault(name, TaskMemory()).broken = why

    @property
    def success(self) -> float | None:
        """The mean success of the tasks tried so far, each counting once; None before the first group."""
        tried = [held.success for name in self.names if (held := self._of(name)).groups]
        return sum(tried) / len(tried) if tried else None

    @property
    def tried(self) -> int:
        """The number of tasks that had a group."""
        return sum(self._of(name).groups > 0 for name in self.names)

    def _of(self, name: str) -> TaskMemory:
        return self.memory.get(name, TaskMemory())

    def _fits(self, name: str) -> bool:
        held = self._of(name)
        return held.groups > 0 and self._settings.low <= held.success <= self._settings.high

    def _weight(self, name: str) -> float:
        return max(0.02, self._of(name).success * (1.0 - self._of(name).success))
