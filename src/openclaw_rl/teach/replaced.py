"""Finds hints that a user did not mean: they ask for what does not go together with one before they accepted it.

A misheard hint may never be contradicted by an accepted reply, as the user accepts none. What they ask for next is its
rival, or has no effect beside it. Whether the judge misheard or they changed their mind at the first look, the newest
wish counts. Why, and what it brings: docs/decisions/0065-the-newest-wish-counts.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile, takewhile

from openclaw_rl.core.hint import HintSource, PlacedHint
from openclaw_rl.core.turn import Turn
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import JudgedTurn, TurnRow
from openclaw_rl.store.tables.unmeant import Undoing, Unmeant
from openclaw_rl.teach.in_use import UNWANTED, HintsInUse
from openclaw_rl.teach.misheard import MisheardHints, is_content
from openclaw_rl.wording.words import plain

LATEST = 64  # a user's latest turns, among which those are looked for that a hint came from, or was replaced at
LIVED_WITH = 8  # replies of a version that learned a hint: a user who read so many did not mind it


@dataclass(frozen=True, slots=True)
class ReplacedHints:
    """Undoes what was learned from hints that a user replaced before they accepted what follows them.

    The same words are not heard as such a hint again until that user accepts a reply, or has had `LATEST` more.
    """

    store: Store
    misheard: MisheardHints
    hints: HintsInUse | None = None

    async def undo(self, turn: Turn, gave_way: Sequence[PlacedHint], hints: Sequence[str]) -> None:
        """Undoes the hints that gave way to the `hints` of a turn's correction, unless its user has lived with them.

        Only a judge's hints are undone, not what a user or an owner wrote.
        """
        kept = {item.id: item for item in await self.store.hints.of_user(turn.user)}
        latest = await self.store.hints.latest_rows(turn.user, limit=LATEST)
        before = [*dropwhile(lambda row: row.turn.id != turn.id, latest)][1:]
        for known in [kept[item.id] for item in gave_way if item.id in kept]:
            heard = [row for row in before if row.verdict and known.text in {hint.text for hint in row.verdict.hints}]
            if known.source is not HintSource.JUDGE or not heard or is_lived_with(known.text, latest, heard[-1].turn):
                continue
            undoing = Undoing("asked for something else before they accepted what it had learned", tuple(hints))
            for row in reversed(heard):
                await self.misheard.undo(row, [known.text], why=UNWANTED, undoing=undoing, since=turn.id)
        await self.misheard.go_on_undoing()

    async def is_heard_again(self, row: JudgedTurn) -> bool:
        """Whether a correction was heard as hints that its user did not mean by these words before.

        Not once they accepted a reply after that. Kept hints that came from it are retired.
        """
        texts = frozenset(hint.text for hint in row.verdict.hints)
        known = await self.store.unmeant.replaced(row.turn.user, limit=LATEST) if texts else []
        held = await self.store.row(row.turn.id) if known else None
        if held is None:
            return False
        latest = await self.store.hints.latest_rows(row.turn.user, limit=LATEST)
        again = [found.hints for found in known if await self._is_said_again(found, held, latest)]
        if not texts <= frozenset().union(*again):
            return False
        if self.hints is not None:
            await self.hints.misheard(row.turn, sorted(texts), why=UNWANTED)
        return True

    async def _is_said_again(self, found: Unmeant, held: TurnRow, latest: Sequence[TurnRow]) -> bool:
        """Whether a turn is followed by the words that were misheard, not long ago, and no reply was accepted since."""
        before = await self.store.row(found.turn)
        if before is None or _said(before) != _said(held):
            return False
        newer = [*takewhile(lambda row: row.turn.id != found.since, latest)]
        return len(newer) < len(latest) and not any(is_content(row.verdict) for row in newer)


def is_lived_with(hint: str, latest: Sequence[TurnRow], corrected: Turn) -> bool:
    """Whether a user, given by their latest turns, does not mind a hint that came from a corrected turn.

    They accepted a reply of a later version, or with the hint in its prompt, or had more than `LIVED_WITH` of these.
    """
    before = corrected.completion.version

    def may_follow(turn: Turn) -> bool:
        version = turn.completion.version
        return (version.scope == before.scope and version > before) or hint in {item.text for item in turn.carried}

    since = [row for row in latest if may_follow(row.turn)]
    return len(since) > LIVED_WITH or any(is_content(row.verdict) for row in since)


def _said(row: TurnRow) -> str:
    """What its user said of a reply."""
    return "" if row.next_state is None else plain(row.next_state.text)
