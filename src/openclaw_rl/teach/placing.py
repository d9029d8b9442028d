"""Where hints are placed in a client's conversation: each stays after the message it was first added to.

A request must continue a served turn id for id, so that the engine can use its keys and values again. So a hint is put
after the last user message once, where the teacher reads it too, and stays after that message while the conversation
lasts. Hints that came into use since then are put after the user's next message. Only a hint that was removed or
reworded changes ids that the model has read before.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.core.hint import KeptHint, PlacedHint, last_user_index
from openclaw_rl.core.message import Message, Role
from openclaw_rl.core.turn import Turn


def placed(messages: Sequence[Message], hints: Sequence[KeptHint], parent: Turn | None) -> tuple[PlacedHint, ...]:
    """The place of each hint among the messages, which continue `parent`; empty without a user message.

    If the client has changed the message that a hint followed, the hint is put after the last user message, provided
    that this message is new. In a tool loop the user says nothing new, so hints that came into use meanwhile wait.
    """
    last = last_user_index(messages)
    if last is None or not hints:
        return ()
    if parent is None:
        return tuple(PlacedHint(last, hint.id, hint.text) for hint in hints)
    texts = {hint.id: hint.text for hint in hints}
    now_at = _same_words(parent.messages, messages)
    stay = [
        PlacedHint(now_at[item.at], item.id, item.text)
        for item in parent.carried
        if item.at in now_at and texts.get(item.id) == item.text
    ]
    if last in now_at.values():
        return tuple(stay)
    placed_ids = {item.id for item in stay}
    return (*stay, *(PlacedHint(last, hint.id, hint.text) for hint in hints if hint.id not in placed_ids))


def _same_words(old: Sequence[Message], new: Sequence[Message]) -> dict[int, int]:
    """The index of each old user message among the new messages, in order; changed messages are left out."""
    found: dict[int, int] = {}
    after = 0
    for at, item in enumerate(old):
        if item.role is not Role.USER:
            continue
        places = (at, *range(after, len(new)))  # usually at the same index
        now = next((place for place in places if after <= place < len(new) and _says_same(item, new[place])), None)
        if now is not None:
            found[at], after = now, now + 1
    return found


def _says_same(one: Message, other: Message) -> bool:
    return other.role is one.role and other.content == one.content
