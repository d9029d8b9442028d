"""Which of a user's hints are in use, and where they are placed in a request."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.hint import LABEL, NOT_LEARNED, Carry, KeptHint, PlacedHint, last_user_index
from openclaw_rl.core.message import Message
from openclaw_rl.core.turn import Placement, Turn
from openclaw_rl.store.db import Store
from openclaw_rl.teach.placing import placed
from openclaw_rl.teach.settings import TeachSettings

USERS_HELD = 1000
UNHEEDED = "the model says the same with it as without"  # why `give_up` retired a hint
MISHEARD = "its user accepted a reply that does not follow it"  # why `misheard` did
OUTDONE = "its user's own words say better what they meant"  # why `misheard` did, if that is less certain
UNWANTED = "its user asked for something else before they accepted it"  # why `misheard` did, if no reply showed it


@dataclass(slots=True)
class HintsInUse:
    """Chooses and places the hints of each request.

    The chosen hints of the latest users are kept in memory until the hints in the store change. `size_of` counts the
    tokens of a text.
    """

    store: Store
    carry: Carry
    settings: TeachSettings
    size_of: Callable[[str], int]
    now: Callable[[], float] = time.time
    _held: OrderedDict[str, tuple[int, tuple[KeptHint, ...]]] = field(default_factory=OrderedDict)

    def let_go(self) -> None:
        """Removes all hints from memory; they are read again when they are needed."""
        self._held.clear()

    async def placed(self, placement: Placement, messages: Sequence[Message]) -> tuple[PlacedHint, ...]:
        """The hints in a request's prompt, and where they are; none for a side request."""
        if not placement.is_main:
            return ()
        return placed(messages, await self.of_user(placement.user), placement.parent)

    async def of_user(self, user: str) -> tuple[KeptHint, ...]:
        """The user's hints that are in prompts, oldest first: those asked for or edited last, as many as fit.

        With carry = weights only those that the weights could not learn.
        """
        changes = self.store.hints.changes
        held = self._held.get(user)
        if held is None or held[0] != changes:
            held = (changes, self.within_bounds(await self.store.hints.of_user(user)))
            self._held[user] = held
            if len(self._held) > USERS_HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(user)
        return held[1]

    async def beside(self, turn: Turn) -> tuple[PlacedHint, ...]:
        """The user's hints besides those in a turn's prompt, retired ones included: a teacher should follow them too.

        They are placed after the last user message. There are none without such a message, with carry = memory, or if
        `rehearse` is off. A hint that was retired because it has no effect, was misheard, outdone or unwanted, is not
        among them, nor one that the weights could not learn.
        """
        last = last_user_index(turn.messages)
        if last is None or not (self.settings.rehearse and self.carry is not Carry.MEMORY):
            return ()
        in_prompt = {item.id for item in turn.carried}
        known = await self.store.hints.of_user(turn.user)
        left = (UNHEEDED, MISHEARD, OUTDONE, UNWANTED, NOT_LEARNED)
        kept = [item for item in known if item.id not in in_prompt and item.why not in left]
        return tuple(PlacedHint(last, item.id, item.text) for item in self._fitting(kept, self.settings.most))

    async def learnable(self, turn: Turn) -> tuple[PlacedHint, ...]:
        """The hints in a turn's prompt without those that the weights could not learn."""
        if not turn.carried:
            return ()
        out = {item.id for item in await self.store.hints.of_user(turn.user) if item.needs_prompt}
        return tuple(item for item in turn.carried if item.id not in out)

    async def give_up(self, turn: Turn) -> None:
        """Retires the hints that came from a turn, with carry = bridge: the base model replies the same without them.

        In a prompt they would only take the place of others. The weights continue to learn what corrections teach.
        """
        if self.carry is not Carry.BRIDGE:
            return
        for hint in await self.store.hints.of_user(turn.user):
            if hint.turn == turn.id:
                await self.store.hints.retire(hint.id, why=UNHEEDED, at_s=self.now(), text=hint.text)

    async def misheard(self, turn: Turn, texts: Sequence[str], *, why: str = MISHEARD) -> None:
        """Retires those hints that came from a turn and say what its user did not mean, or say it less well."""
        for hint in await self.store.hints.of_user(turn.user):
            if hint.turn == turn.id and hint.text in texts:
                await self.store.hints.retire(hint.id, why=why, at_s=self.now(), text=hint.text)

    def within_bounds(self, kept: Sequence[KeptHint]) -> tuple[KeptHint, ...]:
        """The hints in use for which there is room in a prompt."""
        most = self.settings.most if self.carry is Carry.MEMORY else self.settings.most_bridged
        is_left = self.carry is Carry.WEIGHTS
        return self._fitting([hint for hint in kept if (hint.needs_prompt if is_left else hint.is_in_use)], most)

    def _fitting(self, kept: Sequence[KeptHint], most: int) -> tuple[KeptHint, ...]:
        """At most `most` hints, with at most `max_tokens` tokens together, in the order of `kept`.

        Those asked for or edited last are chosen. A hint that is too long for the remaining room is skipped.
        """
        room = self.settings.max_tokens
        chosen: set[str] = set()
        for hint in sorted(kept, key=lambda item: -item.changed_s):
            size = self.size_of(f"\n\n{LABEL} {hint.text}")
            if len(chosen) < most and size <= room:
                chosen.add(hint.id)
                room -= size
        return tuple(hint for hint in kept if hint.id in chosen)
