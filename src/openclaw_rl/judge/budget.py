"""How many calls a day the judge may make, counted over restarts."""

from __future__ import annotations

from typing import Protocol


class Budget(Protocol):
    """Who keeps count."""

    async def spend_judge_call(self, day: int, limit: int) -> bool:
        """Notes one call more on this day (UTC, counted from 1970); False where the limit is spent."""
        ...


class ForgetfulBudget:
    """A count that begins anew with the program, for judges that have no store behind them."""

    def __init__(self) -> None:
        self._day = 0
        self._calls = 0

    async def spend_judge_call(self, day: int, limit: int) -> bool:
        """Notes one call more; False where the limit is spent."""
        if day != self._day:
            self._day, self._calls = day, 0
        if self._calls >= limit:
            return False
        self._calls += 1
        return True
