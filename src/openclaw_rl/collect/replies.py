"""Served replies by what a history may still contain of them: the ids of their calls, and their first words.

It is used only if a history does not continue anything word for word. It knows the turns since the start.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from openclaw_rl.collect.evidence import call_key, openings, quoted_keys
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Message

MOST_ALIKE = 16  # turns that begin alike; the latest are kept
FOLLOWED = frozenset({State.PAIRED, State.JUDGED, State.READY, State.TRAINED})


@dataclass(slots=True)
class KnownReply:
    """A served turn as the index knows it. `state` may be older than in the store, which decides."""

    turn: str
    session: str
    state: State | None

    @property
    def is_open(self) -> bool:
        """Whether it may still get a next state."""
        return self.state is State.SERVED

    @property
    def is_followed(self) -> bool:
        """Whether it has one."""
        return self.state in FOLLOWED


class Replies:
    """Turns by their replies, within a bound: what has not been used for longest is forgotten."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._held: OrderedDict[str, list[KnownReply]] = OrderedDict()

    def __len__(self) -> int:
        """How many names lead to a turn."""
        return len(self._held)

    def enter(self, space: str, reply: Message, known: KnownReply) -> None:
        """Records a turn by its reply."""
        for name in _names(space, reply):
            listed = self._held.setdefault(name, [])
            listed.append(known)
            del listed[:-MOST_ALIKE]
            self._held.move_to_end(name)
        while len(self._held) > self._most:
            self._held.popitem(last=False)

    def find(self, space: str, reply: Message) -> list[KnownReply]:
        """The turns that may have this reply, oldest first."""
        found: dict[str, KnownReply] = {}
        quoted = (_call_name(space, key) for key in quoted_keys(reply.text))
        for name in (*_names(space, reply), *quoted):
            for known in self._held.get(name, ()):
                found.setdefault(known.turn, known)
        return list(found.values())

    def let_go(self, turns: Collection[str]) -> None:
        """Removes these turns from memory."""
        for name, known in list(self._held.items()):
            known[:] = [each for each in known if each.turn not in turns]
            if not known:
                del self._held[name]


def _names(space: str, reply: Message) -> Iterator[str]:
    for call in reply.tool_calls:
        key = call_key(call.id, call.name)
        if key:
            yield _call_name(space, key)
    for text in openings(reply.text):
        yield _digest(f"{space}:says:{text}")


def _call_name(space: str, key: str) -> str:
    return _digest(f"{space}:call:{key}")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
