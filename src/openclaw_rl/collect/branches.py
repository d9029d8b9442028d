"""Messages that were answered and then left out: their conversation continued as if they had not been sent.

In this way a client asks for a title or for suggestions after a whole history. Digests of such messages are kept in
memory, since the start. A message from which any conversation continued is not such a message.
"""

from __future__ import annotations

from collections import OrderedDict

from openclaw_rl.core.turn import Turn

MOST = 20_000  # turns, and digests
MOST_AFTER = 64  # digests of messages that followed one turn: it may be asked again any number of times


class Branches:
    """One object for all requests, on one event loop."""

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._turns: OrderedDict[str, tuple[str, tuple[str, ...]]] = OrderedDict()  # the turn before, and its message
        self._after: OrderedDict[str, list[str]] = OrderedDict()  # a turn to the messages that followed it
        self._abandoned: OrderedDict[str, None] = OrderedDict()
        self._kept: OrderedDict[str, None] = OrderedDict()

    @property
    def held(self) -> int:
        """How many digests and turns are in memory."""
        return len(self._turns) + len(self._after) + len(self._abandoned) + len(self._kept)

    def let_go(self) -> None:
        """Removes everything from memory."""
        for held in (self._turns, self._after, self._abandoned, self._kept):
            held.clear()

    def enter(self, turn: Turn, message: tuple[str, ...]) -> None:
        """Records an answered request and digests of its newest message; none for one that says little."""
        if turn.parent is None:
            return
        self._turns[turn.id] = (turn.parent, message)
        self._after[turn.parent] = [*self._after.get(turn.parent, ()), *message][-MOST_AFTER:]
        self._after.move_to_end(turn.parent)
        self._bound()

    def goes_on(self, turn: str) -> None:
        """Records that a conversation continued from a turn: other messages after the turn before were left out."""
        parent, message = self._turns.get(turn, ("", ()))
        if not parent:
            return
        for each in message:
            self._kept[each] = None
            self._abandoned.pop(each, None)
        self._abandoned |= dict.fromkeys(each for each in self._after.get(parent, ()) if each not in self._kept)
        self._bound()

    def is_abandoned(self, message: str) -> bool:
        """Whether such a message was left out before."""
        return message in self._abandoned

    def _bound(self) -> None:
        for held in (self._turns, self._after, self._abandoned, self._kept):
            while len(held) > self._most:
                held.popitem(last=False)
