"""The turns and samples on which a version is tried before it is served."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from openclaw_rl.core.ledger import State
from openclaw_rl.core.protocols import Renderer
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import SHARED
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import TurnRow, VersionRow
from openclaw_rl.store.tables.effects import AnsweredRequest

RECENT = 50  # rows searched for prompts
FOR_COMPLAINTS = 200  # requests searched for complaints
STILL_TELLING = 200  # requests for as long as which one that showed damage is remembered
MOST_TELLING = 12  # of those


def after_complaints(answered: Sequence[AnsweredRequest], *, until_accepted: bool = False) -> set[str]:
    """The requests, given newest first, before which somebody complained in their conversation, as far as is known.

    About a wish that is not learned yet the base model and a version may well reply differently, several times in one
    conversation, and that says nothing of other requests. With `until_accepted` only those up to the message that
    accepts a reply: what follows it is another request.
    """
    complained: set[str] = set()  # conversations
    accepted: set[str] = set()  # those of them whose last reply was accepted, by the message that comes next
    found: set[str] = set()
    for one in reversed(answered):
        if one.session in complained:
            found.add(one.turn)
        if one.session in accepted:
            accepted.discard(one.session)
            complained.discard(one.session)
        if one.state is State.PAIRED or (one.score or 0) < 0:  # or it is not judged yet
            complained.add(one.session)
        elif until_accepted and one.session in complained and (one.score or 0) > 0:
            accepted.add(one.session)
    return found


@dataclass(frozen=True, slots=True)
class TriedTurns:
    """Finds them in the store."""

    store: Store
    renderer: Renderer
    settings: PublishSettings

    async def kept(self, candidate: VersionRow) -> list[Sample]:
        """The newest samples with hints on which versions of this scope were trained, without the candidate's own."""
        own = candidate.version.scope
        rows = await self.store.rows(limit=RECENT, state=State.TRAINED, scope=None if own == SHARED else own)
        names = [row.turn.id for row in rows if row.verdict is not None and row.verdict.hints]
        wanted = [name for name in names if name not in candidate.turns]
        return self.short(await self.store.effects.samples(wanted[: 2 * self.settings.wish_turns]))

    def short(self, samples: Sequence[Sample]) -> list[Sample]:
        """The short ones; if all are long, only the first."""
        most = self.settings.probe_prompt_tokens
        return [sample for sample in samples if len(sample.prompt) <= most] or list(samples[:1])

    async def recent(self, candidate: VersionRow, later: Collection[str]) -> list[Turn]:
        """Recent main turns, one for each prompt: first those that are neither `later` ones nor trained on.

        Then come those that it was trained on, then those after complaints.

        Turns of conversations and steps of episodes alternate, so that many of one kind do not crowd out the other.
        A user's or agent's version is tried on its owner's turns if there are any.
        """
        own, taught = candidate.version.scope, await self._taught(candidate)

        async def rows_of(scope: str | None) -> list[Turn]:
            kinds = [await self.store.rows(limit=RECENT, scope=scope, are_steps=kind) for kind in (False, True)]
            lists = [
                sorted(self._by_prompt(rows).values(), key=lambda turn: (turn.id in later, turn.id in taught))
                for rows in kinds
            ]
            return [turn for pair in zip_longest(*lists) for turn in pair if turn is not None]

        return (await rows_of(own) if own != SHARED else []) or await rows_of(None)

    async def later(self) -> set[str]:
        """The newest requests after a complaint in their conversation, up to the message that accepts a reply."""
        return after_complaints(await self.store.effects.answered(limit=FOR_COMPLAINTS), until_accepted=True)

    async def _taught(self, candidate: VersionRow) -> set[str]:
        """The turns that its step learned from, including those with requests on which a wish was demonstrated."""
        samples = await self.store.effects.samples(candidate.turns)
        shown = [other for sample in samples for other in sample.elsewhere if not other.is_check]
        return {*candidate.turns, *(other.turn for other in shown)}

    def usable(self, rows: Sequence[TurnRow]) -> list[Turn]:
        """The turns to try a version on, one for each prompt, each with its client's prompt; none with a long one."""
        most = self.settings.probe_prompt_tokens
        return [turn for turn in self._by_prompt(rows).values() if len(turn.prompt) <= most]

    def _by_prompt(self, rows: Sequence[TurnRow]) -> dict[tuple[int, ...], Turn]:
        """The turns to try a version on, each with its client's prompt: with hints the weights would not be tested.

        Only those that are cheap to read; if all prompts are long, as some clients' are, only the newest.
        """
        turns = [row.turn for row in rows if row.turn.is_main and row.turn.completion.tokens]
        short = [turn for turn in turns if len(turn.prompt) <= self.settings.probe_prompt_tokens]
        found: dict[tuple[int, ...], Turn] = {}
        for turn in short or turns[:1]:
            bare = self.renderer.reread(turn, turn.messages) if turn.carried else turn.prompt
            found.setdefault(bare.tokens, replace(turn, prompt=bare, carried=()))
        return found

    async def others(self, candidate: VersionRow, tried: Sequence[Turn], later: Collection[str]) -> list[Turn]:
        """Turns that the version is not `tried` on yet.

        First those that showed damage of earlier versions, then other users' turns, then those without a correction.
        None of the `later` ones.
        """
        used = {turn.prompt.tokens for turn in tried}
        users = {turn.user for turn in tried}
        telling = await self._telling()
        recent = await self.store.rows(limit=RECENT, are_steps=False)
        rows = [*telling.values(), *(row for row in recent if row.turn.id not in telling)]
        liked = {row.turn.id for row in rows if row.verdict is None or not row.verdict.hints}
        turns = [turn for tokens, turn in self._by_prompt(rows).items() if tokens not in used]
        taught = await self._taught(candidate)
        turns = [turn for turn in turns if turn.id not in taught and turn.id not in later]
        turns.sort(key=lambda turn: (turn.id not in telling, turn.user in users, turn.id not in liked))
        return turns

    async def _telling(self) -> dict[str, TurnRow]:
        """The latest requests whose replies showed that a version was damaged, newest first, if not too long ago."""
        names = await self.store.telling.newest(limit=MOST_TELLING)
        latest = {one.turn for one in await self.store.effects.answered(limit=STILL_TELLING)} if names else set()
        rows = [await self.store.row(name) for name in names if name in latest]
        return {row.turn.id: row for row in rows if row is not None}
