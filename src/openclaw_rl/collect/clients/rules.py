"""What is known of a client beyond the standard: its own line for the session, its inserts, its side requests.

Rules see messages alone, since the answer must be the same when a request comes in and when its turn is entered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from openclaw_rl.collect.clients.openclaw import OpenClaw
from openclaw_rl.core.message import Message, Tool
from openclaw_rl.core.turn import TurnKind


class ClientRules(Protocol):
    """One client's habits."""

    def recognises(self, messages: Sequence[Message]) -> bool:
        """Whether this client wrote the request."""
        ...

    def spoken(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation without what the client inserts afresh each time; by it histories are compared."""
        ...

    def heard(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Of the messages that followed a reply, those that answer it: the user's words and tool results."""
        ...

    def session(self, messages: Sequence[Message]) -> tuple[str, str] | None:
        """The session the client names in the prompt, and where it stands, in words for `why`."""
        ...

    def stamps(self, messages: Sequence[Message]) -> bool:
        """Whether the client marks users' words here with its time stamp."""
        ...

    def kind(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, has_stamped: bool = False
    ) -> tuple[TurnKind, str] | None:
        """Main or side and by which rule, where the client's habits tell.

        `has_stamped` says that this client was seen to put time stamps.
        """
        ...

    def readable(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation as a person would tell it: without inserts, and with users' words as they typed them."""
        ...

    def is_summed(self, messages: Sequence[Message]) -> bool:
        """Whether the client put a summary in the place of what was said before."""
        ...

    def starts_over(self, messages: Sequence[Message]) -> bool:
        """Whether these messages, where they go on from nothing, are their session begun anew, the old one over."""
        ...


class AnyClient:
    """A client of which nothing is known: everything is spoken, nothing is named."""

    def recognises(self, messages: Sequence[Message]) -> bool:
        """Every request."""
        return True

    def spoken(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """All messages."""
        return tuple(messages)

    def heard(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """All messages."""
        return tuple(messages)

    def session(self, messages: Sequence[Message]) -> tuple[str, str] | None:
        """None."""
        return None

    def stamps(self, messages: Sequence[Message]) -> bool:
        """None are known."""
        return False

    def kind(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, has_stamped: bool = False
    ) -> tuple[TurnKind, str] | None:
        """None."""
        return None

    def readable(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """All messages."""
        return tuple(messages)

    def is_summed(self, messages: Sequence[Message]) -> bool:
        """No summary is known."""
        return False

    def starts_over(self, messages: Sequence[Message]) -> bool:
        """Never: a name may stand for many conversations."""
        return False


CLIENTS: tuple[ClientRules, ...] = (OpenClaw(), AnyClient())  # the first that recognises a request; the last takes all


def rules_for(messages: Sequence[Message], clients: Sequence[ClientRules] = CLIENTS) -> ClientRules:
    """The rules of the client that wrote these messages."""
    return next(rules for rules in clients if rules.recognises(messages))


def readable(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation without what its client wrote around it; for judges and people."""
    return rules_for(messages).readable(messages)
