"""The kept hints of an installation, as its other parts ask for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.kept_hint import KeptHint
from openclaw_rl.store.reader import Reader
from openclaw_rl.store.rows import TurnRow
from openclaw_rl.store.tables import hints, listing
from openclaw_rl.store.writer import Transaction, Writer

Result = TypeVar("Result")


class HintBook:
    """Every method that changes a hint returns once that is committed.

    `changes` grows with each change, so that who holds hints in memory knows when to read them again.
    """

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self.changes = 0

    async def of_user(self, user: str) -> list[KeptHint]:
        """The hints of one user, oldest first."""
        return await self._reader.do(lambda sql: hints.of_user(sql, user))

    async def everyone(self) -> list[KeptHint]:
        """All hints, user by user."""
        return await self._reader.do(hints.everyone)

    async def get(self, name: str) -> KeptHint | None:
        """The hint of this id."""
        return await self._reader.do(lambda sql: hints.get(sql, name))

    async def latest_rows(self, user: str, *, limit: int) -> list[TurnRow]:
        """The user's latest turns, newest first: those that hints may have stood before."""
        return await self._reader.do(lambda sql: listing.latest_of(sql, user, limit))

    async def verdicts_seen(self, user: str) -> int:
        """A number that grows with each score a turn of the user is given."""
        return await self._reader.do(lambda sql: listing.last_verdict(sql, user))

    async def adopt(
        self, user: str, hint: Hint, *, at_s: float, turn: str | None = None, why: str = "asked for"
    ) -> KeptHint:
        """Takes a hint into use. One that says the same as a kept one takes its place, retired or not."""
        return await self.changing(lambda tx: hints.adopt(tx.sql, user, hint, turn=turn, at_s=at_s, why=why))

    async def edit(self, name: str, text: str, *, at_s: float) -> KeptHint | None:
        """Puts other words in its place, and the hint into use; None where there is none of this id."""
        return await self.changing(lambda tx: hints.edit(tx.sql, name, text, at_s=at_s))

    async def retire(self, name: str, *, why: str, at_s: float, text: str | None = None) -> bool:
        """Takes a hint out of use, with the reason; False where it is not in use, or no longer says `text`."""
        return await self.changing(lambda tx: hints.retire(tx.sql, name, why=why, at_s=at_s, text=text))

    async def remove(self, name: str) -> bool:
        """Forgets a hint; False where there was none."""
        return await self.changing(lambda tx: hints.remove(tx.sql, name))

    async def changing(self, work: Callable[[Transaction], Result], *, is_synced: bool = False) -> Result:
        """What the work gave, once it is committed and `changes` says so; all work that takes hints away comes here."""

        def counted(transaction: Transaction) -> Result:
            result = work(transaction)
            self.changes += 1  # a caller that is cancelled does not reach the line below, and its rows are written
            return result

        try:
            return await self._writer.do(counted, is_synced=is_synced)
        finally:
            self.changes += 1
