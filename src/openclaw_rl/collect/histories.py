"""Histories compared: a digest of the conversation after each message, and which served turns have which digest.

System messages change within a session and are left out; so are call ids, reasoning and white space at the ends,
which clients do not send back as they came. A tool call's arguments are compared as JSON.
If a history continues nothing word for word, served replies are found by the ids of their calls and their first words.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from openclaw_rl.collect.digests import digest
from openclaw_rl.collect.evidence import call_key, openings, quoted_keys
from openclaw_rl.core.hashing import SLICE_CHARS, hashed
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import ImagePart, Message, Role, ToolCall
from openclaw_rl.core.turn import Turn
from openclaw_rl.store.tables.turns import ServedTurn

MOST_ALIKE = 64  # conversations of one digest in memory; others are found in the store by their session
MESSAGE_TOKENS = 16  # a message with its block of the prompt takes as much memory as these
LONG_ARGUMENTS_CHARS = 1_000_000
TURN_TOKENS = 64  # what a turn takes in addition to its tokens and messages
MOST = 256  # requests in flight whose histories are kept; those of others are digested again
MOST_MESSAGES = 50_000  # of all of them together: the longest histories have ten thousand
MOST_BEGUN_ALIKE = 16  # turns that begin alike; the latest are kept
FOLLOWED = frozenset({State.PAIRED, State.JUDGED, State.READY, State.TRAINED})


@dataclass(frozen=True)
class History:
    """The messages of a request without the system's, for an API key, with a `space` that no other key shares.

    They are digested on first use. If a request contains no reply, this is when its turn is entered.
    """

    space: str
    spoken: tuple[Message, ...]

    @cached_property
    def chains(self) -> tuple[str, ...]:
        """The digest of the conversation up to each of the messages."""
        chain, chains = _beginning(self.space), list[str]()
        for item in self.spoken:
            chain = extended(chain, item)
            chains.append(chain)
        return tuple(chains)

    @property
    def prefix(self) -> str:
        """The digest of all of it."""
        return self.chains[-1] if self.chains else _beginning(self.space)

    @cached_property
    def replies(self) -> tuple[int, ...]:
        """The positions of the assistant's messages, latest first."""
        last = len(self.spoken) - 1
        return tuple([at for at in range(last, -1, -1) if self.spoken[at].role is Role.ASSISTANT])


def history_of(space: str, messages: Sequence[Message]) -> History:
    """The history of a request under an API key."""
    return History(space, tuple(item for item in messages if item.role is not Role.SYSTEM))


def digested(space: str, messages: Sequence[Message]) -> History:
    """The same, with its digests computed; for histories that are digested in a thread."""
    history = history_of(space, messages)
    _ = history.chains
    return history


def extended(chain: str, item: Message) -> str:
    """The digest of a conversation with one message more."""
    pieces = [chain, item.role.value, _text(item)]
    for call in item.tool_calls:
        pieces += ["call", call.name, _arguments(call)]
    for part in item.content:
        if isinstance(part, ImagePart):
            pieces += ["image", part.url]
    if sum(map(len, pieces)) <= SLICE_CHARS:  # as nearly all are
        return hashed(("".join([f"{len(piece)}:{piece}" for piece in pieces]),))
    return hashed([part for piece in pieces for part in (f"{len(piece)}:", piece)])


def following(history: History, at: int) -> tuple[Message, ...]:
    """The messages after the one at `at`, up to the next reply."""
    stop = at + 1
    while stop < len(history.spoken) and history.spoken[stop].role is not Role.ASSISTANT:
        stop += 1
    return history.spoken[at + 1 : stop]


class Index:
    """A cache of the store: recent conversations by their digest, and the latest turns themselves.

    Both are bounded: the least recently used are removed, and found in the store again.
    """

    def __init__(self, *, chains: int, tokens: int) -> None:
        self._most_chains = chains
        self._most_tokens = tokens
        self._chains: OrderedDict[str, list[KnownReply]] = OrderedDict()
        self.replies = Replies(most=chains)
        self._asked: OrderedDict[str, str] = OrderedDict()
        self._turns: OrderedDict[str, Turn] = OrderedDict()
        self._tokens = 0

    @property
    def held(self) -> dict[str, int]:
        """How much is in memory: conversations, turns, and their size in tokens."""
        return {
            "collect_conversations_held": len(self._chains),
            "collect_replies_held": len(self.replies),
            "collect_turns_held": len(self._turns),
            "collect_tokens_held": self._tokens,
        }

    def add(self, chain: str, known: KnownReply) -> None:
        """Records a turn; the newest of a digest comes last."""
        held = self._chains.setdefault(chain, [])
        if all(each.turn != known.turn for each in held):
            held.append(known)
            del held[:-MOST_ALIKE]
        self._chains.move_to_end(chain)
        while len(self._chains) > self._most_chains:
            self._chains.popitem(last=False)

    def enter(self, turn: Turn, known: KnownReply, space: str, history: History, chain: str) -> None:
        """Records a turn that answered `history`, under every key with which it may be searched for."""
        self.add(chain, known)
        self.keep(turn)
        self._asked[f"{turn.session}:{history.prefix}"] = turn.id
        self.replies.enter(space, turn.reply, known)
        while len(self._asked) > self._most_chains:
            self._asked.popitem(last=False)

    def asked(self, session: str, prefix: str) -> str | None:
        """The latest turn of a session with this request; since the start only."""
        return self._asked.get(f"{session}:{prefix}")

    def fill(self, found: Sequence[ServedTurn]) -> None:
        """Records turns that the store knows, oldest first."""
        for item in found:
            self.add(item.chain, KnownReply(item.turn, item.session, item.state))

    def find(self, chain: str, session: str | None) -> list[KnownReply]:
        """The turns with a conversation of this digest, in this session or in any, oldest first."""
        held = self._chains.get(chain)
        if held is None:
            return []
        self._chains.move_to_end(chain)
        return [known for known in held if session is None or known.session == session]

    def keep(self, turn: Turn) -> None:
        """Keeps the turn itself, and removes the least recently used ones."""
        self.forget(turn.id)
        self._turns[turn.id] = turn
        self._tokens += _size(turn)
        while self._tokens > self._most_tokens and self._turns:
            self.forget(next(iter(self._turns)))

    def turn(self, name: str) -> Turn | None:
        """The turn of this id, if it is in memory."""
        if name in self._turns:
            self._turns.move_to_end(name)
        return self._turns.get(name)

    def let_go(self, turns: Collection[str]) -> None:
        """Removes these turns from memory."""
        self.replies.let_go(turns)
        for name, known in list(self._chains.items()):
            if any(each.turn in turns for each in known):
                known[:] = [each for each in known if each.turn not in turns]
                if not known:
                    del self._chains[name]
        for name, turn in list(self._asked.items()):
            if turn in turns:
                del self._asked[name]
        for turn in turns:
            self.forget(turn)

    def forget(self, name: str) -> None:
        """Removes the turn of this id from memory."""
        turn = self._turns.pop(name, None)
        if turn is not None:
            self._tokens -= _size(turn)


def _beginning(space: str) -> str:
    return hashed((space,))


def _text(item: Message) -> str:
    text = item.text.strip()
    if item.role is Role.ASSISTANT and text.startswith("<think>") and "</think>" in text:
        text = text.partition("</think>")[2].lstrip()
    return text


def _arguments(call: ToolCall) -> str:
    """The arguments with their keys in order; 1.0 is 1, as a client written in JavaScript sends it back.

    Very long ones are compared as they were written: parsing them would block the interpreter for too long.
    """
    if len(call.arguments) > LONG_ARGUMENTS_CHARS:
        return call.arguments.strip()
    try:
        return json.dumps(json.loads(call.arguments.strip() or "{}", parse_float=_number), sort_keys=True)
    except (ValueError, RecursionError):
        return call.arguments.strip()


def _number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() else value


def _size(turn: Turn) -> int:
    """The size of a turn in tokens; a message with its block of the prompt counts as some, and so does a turn."""
    own = len(turn.prompt.tokens) + len(turn.completion.tokens)
    return own + MESSAGE_TOKENS * len(turn.messages) + TURN_TOKENS


@dataclass(slots=True)
class RememberedRequest:
    """One request. `again` names a turn with the same request; empty if there is none, None if not yet checked."""

    messages: tuple[Message, ...]
    history: History
    again: str | None = ""


class RequestMemory:
    """Histories of requests in flight, by their messages: entering a turn need not compute its digests again.

    The oldest entries are removed first.
    """

    def __init__(self, *, most: int = MOST, most_messages: int = MOST_MESSAGES) -> None:
        self._most = most
        self._most_messages = most_messages
        self._held: OrderedDict[int, RememberedRequest] = OrderedDict()
        self.size = 0  # messages in memory

    def __len__(self) -> int:
        """How many histories are in memory."""
        return len(self._held)

    def note(self, messages: tuple[Message, ...], history: History, *, again: str | None = "") -> None:
        """Keeps it; the messages are kept so that their id is not reused."""
        self.forget(messages)
        self._held[id(messages)] = RememberedRequest(messages, history, again)
        self.size += len(messages)
        while len(self._held) > self._most or (self.size > self._most_messages and len(self._held) > 1):
            self.size -= len(self._held.popitem(last=False)[1].messages)

    def of(self, messages: tuple[Message, ...]) -> RememberedRequest | None:
        """What was recorded for exactly these messages, if it is still in memory."""
        held = self._held.get(id(messages))
        return held if held is not None and held.messages is messages else None

    def let_go(self) -> None:
        """Removes everything: requests in flight are digested again."""
        self._held.clear()
        self.size = 0

    def forget(self, messages: tuple[Message, ...]) -> None:
        """Removes an answered request."""
        held = self._held.pop(id(messages), None)
        if held is not None:
            self.size -= len(held.messages)


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
    """Served replies by what a history may still contain of them: the ids of their calls, and their first words.

    It is used only if a history does not continue anything word for word. It has the turns since the start, within a
    bound: the least recently used are removed.
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._held: OrderedDict[str, list[KnownReply]] = OrderedDict()

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._held)

    def enter(self, space: str, reply: Message, known: KnownReply) -> None:
        """Records a turn by its reply."""
        for name in _names(space, reply):
            listed = self._held.setdefault(name, [])
            listed.append(known)
            del listed[:-MOST_BEGUN_ALIKE]
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
        yield digest(space, f"says:{text}")


def _call_name(space: str, key: str) -> str:
    return digest(space, f"call:{key}")
