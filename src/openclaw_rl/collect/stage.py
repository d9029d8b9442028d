"""Requests in, (turn, next state) pairs out: assigns requests to conversations, and records their turns."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar
from urllib.parse import unquote

from openclaw_rl.collect.classify import Tally, degenerate, kind_of
from openclaw_rl.collect.clients.by_rules import RuleClient
from openclaw_rl.collect.clients.rules import AnyClient, ClientRules, Directory, known_clients, without_headers
from openclaw_rl.collect.histories import (
    History,
    Index,
    KnownReply,
    RememberedRequest,
    RequestMemory,
    digested,
    extended,
    history_of,
)
from openclaw_rl.collect.past import Continuation, HistoryOwner, Past
from openclaw_rl.collect.sessions import (
    ClaimedStep,
    NamedSession,
    agent_of,
    claimed,
    family,
    fresh_session,
    names_episode,
    previous_response,
    says_done,
    session_name,
    space_in,
    space_of,
    step_of,
    user_of,
)
from openclaw_rl.collect.signs import ProgramTextDetector
from openclaw_rl.collect.speaker import (
    Listener,
    PendingAnswer,
    asks_for_summary,
    heard_in,
    is_vouched_for,
    newest,
    note,
    opening_texts,
    side_by_sign,
)
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Message, Role, TextPart
from openclaw_rl.core.turn import Arrival, Placement, Turn, TurnKind
from openclaw_rl.errors import StoreError
from openclaw_rl.store.db import Store

log = logging.getLogger(__name__)

CLOSING = 4096  # sessions with a last turn that was announced and has not been entered
KEYS = 10_000  # of clients known to add time stamps
MUCH = 300_000  # letters; a longer history is digested in a thread
NEW_SESSION = "a new session, since it names none and continues nothing"
MANY = 1000  # messages; so is one of more


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """How turns are grouped into conversations."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset({"held_tokens", "known_conversations", "sweep_s"})

    session_idle_s: float = 1800.0
    """Seconds without a request after which a session is over. Change it when users pause longer than half an hour
    within one conversation."""

    sweep_s: float = 30.0
    """Seconds between checks for sessions that have ended."""

    control_tokens: tuple[str, ...] = ("NO_REPLY", "HEARTBEAT_OK")
    """Replies that are signals to the client and not answers. They are never learned from. Change it when
    your client uses other signal words."""

    known_conversations: int = 50_000
    """Conversations whose digests are held in memory; older ones are looked up in the store."""

    infer_from_prompts: bool = True
    """Take session and kind from what a known client writes into its prompts, if no header or field gives them. A user
    could type the same text. If false, only headers and fields count. Change it when users must not be able to imitate
    a client's marks."""

    client_rules: str = ""
    """A folder of your own rule files for clients, read in addition to those in the package. A file with the same name
    as a shipped one replaces it. Change it when you wrote rules for your own client."""

    held_tokens: int = 2_000_000
    """Tokens of recent turns held in memory, so that the next request need not read them from the store."""


def every_key(key_name: str) -> bool:
    """No key is left out."""
    return True


class Collect:
    """Places requests and enters turns. One object for all requests, on one event loop."""

    def __init__(
        self,
        store: Store,
        settings: CollectSettings,
        now_s: Callable[[], float],
        *,
        clients: Sequence[ClientRules] | None = None,
        may_teach: Callable[[str], bool] = every_key,
        may_name: Callable[[str], bool] = every_key,
    ) -> None:
        self._store = store
        self._settings = settings
        self._now_s = now_s
        self._clients = Directory(known_clients(settings.client_rules) if clients is None else clients)
        self._may_teach = may_teach  # both take the name of a key
        self._may_name = may_name
        self._index = Index(chains=settings.known_conversations, tokens=settings.held_tokens)
        self._past = Past(store, self._index)
        self._asked = RequestMemory()
        self._signs = ProgramTextDetector()
        self._stamping: set[str] = set()  # keys with a client that marks users' words with the time
        self._closing: OrderedDict[str, None] = OrderedDict()
        self.tally = Tally()

    async def place(self, arrival: Arrival) -> Placement:
        """Session, kind, and the served turn that the request continues; every decision is reported in `why`.

        That turn's next state is recorded when the placement is admitted: a refused request leaves no trace.
        """
        rules, space = self._clients.client_of(arrival), space_of(arrival.key_name)
        history = await self._history(space, rules, arrival.messages)
        telling, shown = self._telling(rules, arrival)
        kind, rule = kind_of(shown, telling, has_stamped=self._has_stamped(arrival, rules))
        reply = await self._named_reply(arrival)
        told = claimed(arrival, reply, shown, telling)
        whose = HistoryOwner(
            space,
            None if told is None else told.session,
            family(shown, told, telling),
            None if reply is None else reply.id,
        )
        going = await self._past.continuation(history, whose, rules, is_main=kind is TurnKind.MAIN)
        self._asked.note(arrival.messages, history, again=None if going.may_ask_again else "")
        self._signs.took_out(space, going.inserts)
        if told is None and going.links:
            told = NamedSession(going.links[0].known.session, "session from the conversation it continues")
        is_named = told is not None
        if told is None and kind is TurnKind.MAIN:
            told = self._after_summary(space, arrival)
        if told is None and kind is TurnKind.SIDE and self._settings.infer_from_prompts:
            told = self._quoted(space, arrival)
        is_fresh = told is None
        if told is None:
            told = NamedSession(fresh_session(arrival.key_name), NEW_SESSION)
        parent = await self._past.turn(going.links[0].known.turn) if going.links else None
        is_vouched = is_vouched_for(arrival, rules)
        if kind is TurnKind.MAIN and not is_vouched and self._settings.infer_from_prompts:
            known = told.session if is_named else ""
            sign = side_by_sign(self._signs, space, known, arrival, parent, rules=rules)
            kind, rule = (kind, rule) if sign is None else (TurnKind.SIDE, f"side: {sign}")
            told = told if not is_fresh or sign is None else self._quoted(space, arrival) or told
        spoke, answers, step = "", tuple[PendingAnswer, ...](), None
        user = user_of(arrival, may_name=self._may_name(arrival.key_name))
        if kind is TurnKind.MAIN and names_episode(arrival):  # what an environment shows is recorded unchanged
            asked = newest(arrival.messages)
            step = await step_of(self._store, arrival, asked, parent, user=user, prefix=history.prefix)
        elif kind is TurnKind.MAIN:
            hear = partial(heard_in, parent=parent, is_vouched=is_vouched)
            spoke, answers = hear(arrival, history, going, Listener(self._signs, rules, space), self._index)
        placement = Placement(
            session=told.session,
            user=user,
            agent=agent_of(arrival),
            kind=kind,
            why="; ".join(each for each in (rule, told.how, going.why, spoke) if each),
            parent=parent,
            is_done=says_done(arrival),
            step=None if step is None else step.step,
        )
        goes_on, has_history = bool(going.links), bool(history.replies)
        tally = partial(self.tally.placed, kind, is_fresh=is_fresh, goes_on=goes_on, has_history=has_history)
        return replace(
            placement, admit=partial(self._admit, placement, arrival, going, answers, step=step, tally=tally)
        )

    async def _admit(
        self,
        placement: Placement,
        arrival: Arrival,
        going: Continuation,
        answers: Sequence[PendingAnswer],
        *,
        step: ClaimedStep | None,
        tally: Callable[[], None],
    ) -> None:
        """Records what the request says: it will be answered."""
        if placement.is_main:
            note(self._store, answers)
            if step is not None:
                await step.note(self._store)
            await self._end(going)
            if going.links:
                last = going.links[0].known.turn
                self._signs.goes_on(space_in(placement.session), placement.session, arrival, last)
        self._announce(placement.session, is_done=placement.is_done)
        tally()

    async def commit(self, turn: Turn) -> None:
        """Returns once the turn is in the store; ends the session if this was announced as its last turn."""
        noted = await self._asked_of(turn)
        turn, history = await self._told_whole(turn, noted), noted.history
        chain = extended(history.prefix, turn.reply)
        reason = self._reason(turn) if turn.is_main else None
        if not await self._store.add_turn(
            turn, chain=chain, prefix=history.prefix, reason=reason, seen_s=self._now_s()
        ):
            self._closing.pop(turn.session, None)
            log.info("not stored turn=%s: what it continues was forgotten while it was answered", turn.id)
            return
        state = None if not turn.is_main else State.SERVED if reason is None else State.DROPPED
        space = space_in(turn.session)
        self._index.enter(turn, KnownReply(turn.id, turn.session, state), space, history, chain)
        spoken = newest(history.spoken)
        self._signs.enter(space, turn, newest(turn.messages), spoken=spoken, is_summary=asks_for_summary(turn))
        if reason is not None:
            log.info("dropped turn=%s reason=%s", turn.id, reason)
        if turn.session in self._closing:
            await self.done(turn.session, "the client said so")

    def _reason(self, turn: Turn) -> DropReason | None:
        """Why a main turn can teach nothing, whatever its next state."""
        if not self._may_teach(unquote(space_in(turn.session), errors="surrogatepass")):
            return DropReason.MAY_NOT_TEACH  # at once: it is never judged, and no message after it becomes a hint
        return degenerate(turn, self._settings.control_tokens)

    async def done(self, session: str, why: str) -> None:
        """The session is over; `session` is its full name."""
        await self._store.end_session(session, why=why, at_s=self._now_s())
        log.info("ended session=%s why=%s", session, why)

    def let_go(self, turns: Collection[str]) -> None:
        """Removes these turns, and all histories of requests in flight, from memory."""
        self._index.let_go(turns)
        self._asked.let_go()
        self._signs.let_go()

    @property
    def held(self) -> dict[str, int]:
        """How much is in memory, each kind within its bound."""
        beside = {"collect_histories_held": len(self._asked), "collect_closing": len(self._closing)}
        return {**self._index.held, **beside, "collect_signs_held": self._signs.held}

    def session_name(self, key_name: str, given: str) -> str:
        """The full name of the session that a client of this key calls `given`, which may be the full name already."""
        return given if given.startswith(f"{space_of(key_name)}:") else session_name(key_name, given)

    async def run(self) -> None:
        """Ends sessions that have been idle, and reports if nothing can be learned. Runs until cancelled."""
        while True:
            try:
                await self.sweep()
            except StoreError as problem:  # the disk may have room again at the next check
                log.warning("idle sessions could not be ended: %s", problem)
            complaint = self.tally.news()
            if complaint is not None:
                log.warning("%s", complaint)
            await asyncio.sleep(self._settings.sweep_s)

    async def sweep(self) -> int:
        """Ends the sessions not seen for `session_idle_s`; returns how many."""
        idle = await self._store.open_sessions(seen_before_s=self._now_s() - self._settings.session_idle_s)
        for session in idle:
            await self.done(session.id, f"idle for {self._settings.session_idle_s:g} s")
        return len(idle)

    async def _history(self, space: str, rules: ClientRules, messages: Sequence[Message]) -> History:
        letters = sum(len(part.text) for item in messages for part in item.content if isinstance(part, TextPart))
        if letters > MUCH or len(messages) > MANY:
            return await asyncio.to_thread(lambda: digested(space, rules.spoken(messages)))
        return history_of(space, rules.spoken(messages))

    async def _asked_of(self, turn: Turn) -> RememberedRequest:
        """The turn's request, with the digests from its placement if they are still in memory."""
        noted = self._asked.of(turn.messages)
        if noted is not None:
            if turn.group is None:  # else the other answers of the request are still to come
                self._asked.forget(turn.messages)
            return noted
        rules = self._clients.client_of(without_headers(turn.messages))
        history = await self._history(space_in(turn.session), rules, turn.messages)
        return RememberedRequest(turn.messages, history)

    async def _told_whole(self, turn: Turn, noted: RememberedRequest) -> Turn:
        """The turn with its complete `why`: whether the same was asked before is looked up once its answer is there.

        Siblings have one request, so it is looked up only for the first of them.
        """
        if noted.again is None:
            try:
                noted.again = await self._past.asked_again(noted.history, turn.session)
            except StoreError as problem:  # entering the turn succeeds anyway, or reports what is wrong
                log.warning("turn=%s may have been asked before: %s", turn.id, problem)
                return turn
        return replace(turn, why=f"{turn.why}; {noted.again}") if noted.again else turn

    def _has_stamped(self, arrival: Arrival, rules: ClientRules) -> bool:
        """Whether this key's client was seen to mark users' words with the time."""
        if rules.stamps(arrival.messages) and len(self._stamping) < KEYS:
            self._stamping.add(arrival.key_name)
        return arrival.key_name in self._stamping

    def _announce(self, session: str, *, is_done: bool) -> None:
        """Records whether the next turn of the session is its last; a later request that is not cancels it."""
        self._closing.pop(session, None)
        if is_done:
            self._closing[session] = None
            while len(self._closing) > CLOSING:
                self._closing.popitem(last=False)

    def _telling(self, rules: ClientRules, arrival: Arrival) -> tuple[ClientRules, Arrival]:
        """The client whose rules give session and kind, and the part of the request that they read."""
        if self._settings.infer_from_prompts:
            return rules, arrival
        return (rules if isinstance(rules, RuleClient) else AnyClient()), replace(arrival, messages=())

    def _quoted(self, space: str, arrival: Arrival) -> NamedSession | None:
        """The session of the conversation of which a side request contains a copy."""
        texts = [item.text for item in arrival.messages if item.role is Role.USER]
        session = self._signs.quoted_session(space, texts[-2:])
        return None if session is None else NamedSession(session, "session from the conversation it quotes")

    def _after_summary(self, space: str, arrival: Arrival) -> NamedSession | None:
        """The session of a conversation that continues from its summary, if it continues nothing else."""
        first = opening_texts(arrival.messages)
        if not self._settings.infer_from_prompts:
            return None
        session = self._signs.summed(space, first) or self._signs.restated(space, arrival)
        return (
            None if session is None else NamedSession(session, "session from the summary of it that was answered here")
        )

    async def _end(self, going: Continuation) -> None:
        """Ends the sessions that are over, unless a reply in them was kept and still waits for an answer."""
        if not any(link.known.is_open for link in going.links):
            for session in going.over:
                await self.done(session, going.over_why)

    async def _named_reply(self, arrival: Arrival) -> Turn | None:
        """The turn of the response that the request names, if it belongs to this key."""
        name = previous_response(arrival)
        turn = None if name is None else await self._response(name)
        return None if turn is None or space_in(turn.session) != space_of(arrival.key_name) else turn

    async def _response(self, name: str) -> Turn | None:
        """The turn of a response; its id may be the turn's id after the API's prefix."""
        for turn in (name, name.partition("-")[2], name.partition("_")[2]):
            found = await self._past.turn(turn) if turn else None
            if found is not None:
                return found
        return None
