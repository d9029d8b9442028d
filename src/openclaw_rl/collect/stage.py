"""Requests in, (turn, next state) pairs out: where a request belongs, and the book its turn is entered in."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openclaw_rl.collect.classify import degenerate, kind_of
from openclaw_rl.collect.clients.rules import CLIENTS, AnyClient, ClientRules, rules_for
from openclaw_rl.collect.next_state import next_state_of
from openclaw_rl.collect.prefixes import History, Index, Known, extended, history_of
from openclaw_rl.collect.sessions import (
    Named,
    agent_of,
    fresh_session,
    named,
    previous_response,
    says_done,
    session_name,
    space_in,
    space_of,
    user_of,
)
from openclaw_rl.collect.tally import Tally
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Message, TextPart
from openclaw_rl.core.turn import Arrival, Placement, Turn, TurnKind
from openclaw_rl.errors import StoreError
from openclaw_rl.store.db import Store

log = logging.getLogger(__name__)

IN_FLIGHT = 256  # requests whose digests are remembered until their turns are entered; others are digested again
CLOSING = 4096  # sessions whose last turn was announced and has not been entered
MUCH = 300_000  # letters; a longer history is digested in a thread


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """How turns are put together into conversations."""

    session_idle_s: float = 1800.0
    """Seconds without a request after which a session is over."""

    sweep_s: float = 30.0
    """Seconds between looks for sessions that are over."""

    control_tokens: tuple[str, ...] = ("NO_REPLY", "HEARTBEAT_OK")
    """Whole replies that are signals to the client rather than answers; they are never learned from."""

    known_conversations: int = 50_000
    """Conversations whose digests are held in memory; older ones are looked up in the store."""

    infer_from_prompts: bool = True
    """Take session and kind from what a known client writes into its prompts, where no header or field names them.
    A user could type the same; off, only headers and fields count."""

    held_tokens: int = 2_000_000
    """Tokens of recent turns held in memory, so that the next request need not read them from the store."""


class Collect:
    """Places requests and enters turns. One object for all requests, on one event loop."""

    def __init__(
        self,
        store: Store,
        settings: CollectSettings,
        now_s: Callable[[], float],
        *,
        clients: Sequence[ClientRules] = CLIENTS,
    ) -> None:
        self._store = store
        self._settings = settings
        self._now_s = now_s
        self._clients = clients
        self._index = Index(chains=settings.known_conversations, tokens=settings.held_tokens)
        self._asked: OrderedDict[int, tuple[tuple[Message, ...], str]] = OrderedDict()
        self._closing: OrderedDict[str, None] = OrderedDict()
        self.tally = Tally()

    async def place(self, arrival: Arrival) -> Placement:
        """Session, kind, and the served turn the request goes on from; what followed that turn is noted.

        Every decision is told in `why`.
        """
        rules = rules_for(arrival.messages, self._clients)
        history = await self._history(space_of(arrival.key_name), rules.spoken(arrival.messages))
        self._remember(arrival.messages, history.prefix)
        telling = rules if self._settings.infer_from_prompts else AnyClient()
        told = named(arrival) or await self._by_response(arrival) or _by_client(arrival, telling)
        goes_on = await self._goes_on_from(history, None if told is None else told.session)
        if told is None and goes_on:
            told = Named(goes_on[0][1].session, "session from the conversation it goes on with")
        is_fresh = told is None
        if told is None:
            told = Named(fresh_session(arrival.key_name), "a new session, since it names none and goes on from nothing")
        kind, rule = kind_of(arrival, telling)
        if kind is TurnKind.MAIN:
            await self._pair(arrival, history, goes_on, rules)
        is_done = says_done(arrival)
        self._announce(told.session, is_done=is_done)
        self.tally.placed(kind, is_fresh=is_fresh, goes_on=bool(goes_on), has_history=bool(history.replies()))
        return Placement(
            session=told.session,
            user=user_of(arrival),
            agent=agent_of(arrival),
            kind=kind,
            why=f"{rule}; {told.how}",
            parent=await self._turn(goes_on[0][1].turn) if goes_on else None,
            is_done=is_done,
        )

    async def commit(self, turn: Turn) -> None:
        """Returns once the turn is in the store; ends the session where this was announced as its last turn."""
        prefix = await self._prefix(turn)
        chain = extended(prefix, turn.reply)
        reason = degenerate(turn, self._settings.control_tokens) if turn.is_main else None
        await self._store.add_turn(turn, chain=chain, prefix=prefix, reason=reason, seen_s=self._now_s())
        state = None if not turn.is_main else State.SERVED if reason is None else State.DROPPED
        self._index.add(chain, Known(turn.id, turn.session, state))
        self._index.keep(turn)
        if reason is not None:
            log.info("dropped turn=%s reason=%s", turn.id, reason)
        if turn.session in self._closing:
            await self.done(turn.session, "the client said so")

    async def done(self, session: str, why: str) -> None:
        """The session is over; `session` is its full name."""
        await self._store.end_session(session, why=why, at_s=self._now_s())
        log.info("ended session=%s why=%s", session, why)

    def session_name(self, key_name: str, given: str) -> str:
        """The full name of the session that a client of this key calls `given`, which may be the full name already."""
        return given if given.startswith(f"{space_of(key_name)}:") else session_name(key_name, given)

    async def run(self) -> None:
        """Ends sessions that have been idle, and says so where nothing can be learned. Runs until cancelled."""
        while True:
            try:
                await self.sweep()
            except StoreError as problem:  # the disk may have room again at the next look
                log.warning("idle sessions could not be ended: %s", problem)
            complaint = self.tally.news()
            if complaint is not None:
                log.warning("%s", complaint)
            await asyncio.sleep(self._settings.sweep_s)

    async def sweep(self) -> int:
        """Ends the sessions not seen for `session_idle_s`; gives how many."""
        idle = await self._store.open_sessions(seen_before_s=self._now_s() - self._settings.session_idle_s)
        for session in idle:
            await self.done(session.id, f"idle for {self._settings.session_idle_s:g} s")
        return len(idle)

    async def _history(self, space: str, messages: Sequence[Message]) -> History:
        if sum(len(part.text) for item in messages for part in item.content if isinstance(part, TextPart)) > MUCH:
            return await asyncio.to_thread(history_of, space, messages)
        return history_of(space, messages)

    async def _prefix(self, turn: Turn) -> str:
        """The digest of what was asked, from when it was placed where that is still remembered."""
        messages, prefix = self._asked.get(id(turn.messages), ((), ""))
        if messages is turn.messages:
            return prefix
        rules = rules_for(turn.messages, self._clients)
        return (await self._history(space_in(turn.session), rules.spoken(turn.messages))).prefix

    def _remember(self, messages: tuple[Message, ...], prefix: str) -> None:
        """For the turn's entering; the messages are held so that their id stays theirs."""
        self._asked[id(messages)] = (messages, prefix)
        while len(self._asked) > IN_FLIGHT:
            self._asked.popitem(last=False)

    def _announce(self, session: str, *, is_done: bool) -> None:
        """Whether the next turn of the session is its last; a later request that is not takes it back."""
        self._closing.pop(session, None)
        if is_done:
            self._closing[session] = None
            while len(self._closing) > CLOSING:
                self._closing.popitem(last=False)

    async def _goes_on_from(self, history: History, session: str | None) -> list[tuple[int, Known]]:
        """Where replies of served turns of one session stand in the history, the latest first."""
        replies = history.replies()
        found = self._found(history, replies, session)
        unknown = replies[: replies.index(found[0][0])] if found else replies
        if unknown:
            self._index.fill(await self._store.served([history.chains[at] for at in unknown], session=session))
            found = self._found(history, replies, session)
        return found

    def _found(self, history: History, replies: Sequence[int], session: str | None) -> list[tuple[int, Known]]:
        found = []
        for at in replies:
            known = self._index.find(history.chains[at], session)
            if known:
                best = max(enumerate(known), key=lambda each: (each[1].is_open, each[0]))[1]
                found.append((at, best))
                session = best.session
        return found

    async def _pair(
        self, arrival: Arrival, history: History, goes_on: Sequence[tuple[int, Known]], rules: ClientRules
    ) -> None:
        """Gives every turn in the history that still waits for one its next state; of twins, one."""
        for at, known in goes_on:
            twins = self._index.find(history.chains[at], known.session)
            if not known.is_open or any(twin.is_followed for twin in twins):
                continue
            next_state = next_state_of(known.turn, history, at, rules=rules, headers=arrival.headers)
            if next_state is not None:
                known.state = State.PAIRED  # or further: the store has the last word
                try:
                    is_paired = await self._store.pair(next_state)
                except StoreError:
                    known.state = State.SERVED
                    raise
                log.debug("paired turn=%s source=%s done=%s", known.turn, next_state.source, is_paired)

    async def _by_response(self, arrival: Arrival) -> Named | None:
        """The session of the response the request names, where it is one of this key."""
        name = previous_response(arrival)
        turn = None if name is None else await self._response(name)
        if turn is None or space_in(turn.session) != space_of(arrival.key_name):
            return None
        return Named(turn.session, "session from the body's previous_response_id")

    async def _response(self, name: str) -> Turn | None:
        """The turn of a response, whose id may be the turn's with the API's own word in front."""
        for turn in (name, name.partition("-")[2], name.partition("_")[2]):
            found = await self._turn(turn) if turn else None
            if found is not None:
                return found
        return None

    async def _turn(self, name: str) -> Turn | None:
        held = self._index.turn(name)
        if held is None:
            held = await self._store.turn(name)
            if held is not None:
                self._index.keep(held)
        return held


def _by_client(arrival: Arrival, rules: ClientRules) -> Named | None:
    told = rules.session(arrival.messages)
    return None if told is None else Named(session_name(arrival.key_name, told[0]), f"session from {told[1]}")
