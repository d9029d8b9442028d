"""Rules for clients: how each names sessions, what it inserts, and which requests are its own.

Rules that a file cannot express are in code; only OpenClaw needs that.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from openclaw_rl.collect.clients.blocks import without_blocks
from openclaw_rl.collect.clients.by_rules import SYSTEM_HEAD as HEAD
from openclaw_rl.collect.clients.by_rules import RuleClient, by_shape, readable_of, shape_of, system_text
from openclaw_rl.collect.clients.openclaw import OpenClaw
from openclaw_rl.collect.clients.rulebook import read_folder, shipped
from openclaw_rl.core.message import ImagePart, Message, Role, TextPart
from openclaw_rl.core.turn import Arrival, TurnKind

MOST_SEEN = 512  # ways in which requests begin


class ClientRules(Protocol):
    """One client's habits."""

    @property
    def name(self) -> str:
        """The client's name; empty if it is not known."""

    def recognises(self, arrival: Arrival) -> bool:
        """Whether this client wrote the request."""

    def spoken(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation without what the client inserts again each time, for comparing histories."""

    def heard(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages after a reply that answer it: the user's words and tool results."""

    def noted(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """The client's own parts of these messages, in words for `why`."""

    def session(self, arrival: Arrival) -> tuple[str, str] | None:
        """The session that the client names, and where it names it, in words for `why`."""

    def thread(self, arrival: Arrival) -> str | None:
        """Which conversation of the session this is, if it is not the owner's own."""

    def stamps(self, messages: Sequence[Message]) -> bool:
        """Whether the client marks users' words here with its time stamp."""

    def kind(self, arrival: Arrival, *, has_stamped: bool = False) -> tuple[TurnKind, str] | None:
        """Main or side and by which rule, if the client's habits show it.

        `has_stamped` says that this client was seen to put time stamps.
        """

    def readable(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation in readable form: without inserts, and with users' words as they typed them."""

    def is_summed(self, messages: Sequence[Message]) -> bool:
        """Whether the client replaced earlier messages by a summary."""

    def starts_over(self, messages: Sequence[Message]) -> bool:
        """Whether these messages, if they continue nothing, restart their session, so that the old one is over."""


class AnyClient:
    """An unknown client: nothing is named, and only text that no person types is not the user's."""

    @property
    def name(self) -> str:
        """Not known."""
        return ""

    def recognises(self, arrival: Arrival) -> bool:
        """Every request."""
        return True

    def spoken(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """All messages, users' without elements that no person types."""
        bare = (item if item.role is not Role.USER else _bare(item) for item in messages)
        return tuple(item for item in bare if item is not None)

    def heard(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The same, with results of an agent's steps as a tool's, and without notices."""
        heard = (item if item.role is not Role.USER else by_shape(item) for item in self.spoken(messages))
        return tuple(item for item in heard if item is not None)

    def noted(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """The names of the elements."""
        said = [item for item in messages if item.role is Role.USER]
        texts = [part.text for item in said for part in item.content if isinstance(part, TextPart)]
        names = [name for text in texts for name in without_blocks(text)[1]]
        return tuple(dict.fromkeys([*names, *(shape for item in said if (shape := shape_of(item.text)))]))

    def session(self, arrival: Arrival) -> tuple[str, str] | None:
        """None."""
        return None

    def thread(self, arrival: Arrival) -> str | None:
        """None."""
        return None

    def stamps(self, messages: Sequence[Message]) -> bool:
        """None are known."""
        return False

    def kind(self, arrival: Arrival, *, has_stamped: bool = False) -> tuple[TurnKind, str] | None:
        """None."""
        return None

    def readable(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """All messages, elements that no person types as data."""
        return readable_of(self.heard, messages)

    def is_summed(self, messages: Sequence[Message]) -> bool:
        """No summary is known."""
        return False

    def starts_over(self, messages: Sequence[Message]) -> bool:
        """Never: a name may stand for many conversations."""
        return False


@lru_cache(maxsize=8)
def known_clients(folder: str = "") -> tuple[ClientRules, ...]:
    """All known clients. The first that recognises a request counts; the last recognises all.

    The rule files of `folder` come before those of the package. Raises ConfigError for one that cannot be used.
    """
    own = read_folder(folder) if folder else ()
    replaced = {book.name for book in own}
    books = (*own, *(book for book in shipped() if book.name not in replaced))
    return (OpenClaw(), *(RuleClient(book) for book in books), AnyClient())


def rules_for(arrival: Arrival, clients: Sequence[ClientRules]) -> ClientRules:
    """The rules of the client that wrote this request."""
    return next(rules for rules in clients if rules.recognises(arrival))


class Directory:
    """Finds the client that wrote a request; system texts and headers that came before are not examined again."""

    def __init__(self, clients: Sequence[ClientRules]) -> None:
        self._clients = clients
        self._seen: OrderedDict[bytes, ClientRules] = OrderedDict()

    def client_of(self, arrival: Arrival) -> ClientRules:
        """The rules of the client that wrote this request."""
        begun = next((item.text[:HEAD] for item in arrival.messages if item.role is not Role.SYSTEM), "")
        names = ",".join(arrival.headers)
        key = f"{arrival.headers.get('user-agent', '')}\n{names}\n{begun}\n{system_text(arrival.messages)[:HEAD]}"
        name = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        found = self._seen.get(name)
        if found is None:
            found = self._seen[name] = rules_for(arrival, self._clients)
            while len(self._seen) > MOST_SEEN:
                self._seen.popitem(last=False)
        return found


def without_headers(messages: Sequence[Message]) -> Arrival:
    """A request of which only the messages are still known."""
    return Arrival(tuple(messages), (), {}, {}, "", 0.0)


def readable(messages: Sequence[Message], clients: Sequence[ClientRules] | None = None) -> tuple[Message, ...]:
    """The conversation without what its client wrote around it; for judges and people."""
    known = known_clients() if clients is None else clients
    return rules_for(without_headers(messages), known).readable(messages)


def _bare(item: Message) -> Message | None:
    kept: list[TextPart | ImagePart] = []
    for part in item.content:
        text, names = without_blocks(part.text) if isinstance(part, TextPart) else ("", ())
        if isinstance(part, ImagePart) or not names:
            kept.append(part)
        elif text.strip():
            kept.append(TextPart(text))
    if len(kept) == len(item.content) and all(one is two for one, two in zip(kept, item.content, strict=True)):
        return item
    return replace(item, content=tuple(kept)) if kept else None
