"""What a request continues: the replies in its history that were served here.

A history is recognised by its digests from the first message on. If its beginning is missing or was changed (the client
cut it, or replaced it by a summary), a reply is recognised by the ids of its calls, or by the messages before it: they
must agree, except for what the client added.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from openclaw_rl.collect.clients.rules import ClientRules
from openclaw_rl.collect.evidence import DISTINCT, Alignment, align, said
from openclaw_rl.collect.histories import History, Index, KnownReply, extended
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Message, Role
from openclaw_rl.core.turn import Turn
from openclaw_rl.errors import DamageError
from openclaw_rl.store.db import Store
from openclaw_rl.store.tables.sessions import SessionStatus

log = logging.getLogger(__name__)

LEAST_ALIKE = 2  # a reply and what it answered
MANY = 200  # messages; more are compared in a thread
LEAST_ALIKE_UNNAMED = 3  # if no session is named, and more messages were sent than agree
LATEST = 4  # replies of a history, the latest first, that are searched for by their words
CUT_OR_CHANGED = "though what was before it was cut or changed"


@dataclass(frozen=True, slots=True)
class ReplyMatch:
    """A served turn, and the position of its reply in a history."""

    at: int
    known: KnownReply


@dataclass(frozen=True, slots=True)
class Continuation:
    """What a request continues, the latest first, and the evidence.

    `over` are sessions that cannot be continued any more, once the links have their next states. `may_ask_again` means
    that it was not checked yet whether the session answered the same before; only words depend on it.
    """

    links: tuple[ReplyMatch, ...] = ()
    why: str = ""
    over: tuple[str, ...] = ()
    over_why: str = ""
    may_ask_again: bool = False
    inserts: tuple[str, ...] = ()  # texts that were in users' messages when they were sent, and are missing now


@dataclass(frozen=True, slots=True)
class HistoryOwner:
    """The owner of a history: an API key, and the session it names, if any.

    `family` is the name that the client itself gives the session, without the number that some of its headers add after
    it; None if another party named it, who may mean more than one conversation. `reply` is the turn that the request
    says it continues: of several with the same text, that one is meant.
    """

    space: str
    session: str | None
    family: str | None = None
    reply: str | None = None


class Past:
    """Finds served turns in histories: in memory first, then in the store."""

    def __init__(self, store: Store, index: Index) -> None:
        self._store = store
        self._index = index

    async def continuation(
        self, history: History, whose: HistoryOwner, rules: ClientRules, *, is_main: bool
    ) -> Continuation:
        """What the request continues; for a side request only what is in its history from its beginning."""
        links = await self.links(history, whose.session, reply=whose.reply)
        replies = history.replies
        if not is_main or (links and links[0].at == replies[0]):
            return Continuation(tuple(links), self._told(links, history))
        is_summed = rules.is_summed(history.spoken) and whose.session is not None and not links
        if replies and not (is_summed and whose.family is not None):
            found = await self._evident(history, whose, links, rules)
            if found.links:
                return replace(found, links=(*found.links, *links))
        if links:
            return Continuation(
                tuple(links), f"{self._told(links, history)}; the replies after it are not as they were served"
            )
        if whose.session is None:
            return Continuation(why="none of the replies in its history was served here" if replies else "")
        if whose.family is None and not replies:  # nothing to continue, and no session that could be over
            return (
                Continuation(why="after a compaction, which kept no reply that waited")
                if is_summed
                else Continuation(may_ask_again=True)
            )
        standing = await self._store.standing(whose.session, prefix=history.prefix, family=whose.family)
        told = partial(self._of_session, history, whose.session, whose.family, standing, rules)
        return await asyncio.to_thread(told) if len(history.spoken) > MANY else told()

    async def asked_again(self, history: History, session: str) -> str:
        """The turn of a session that answered the same request before, in words; empty if there is none."""
        found = await self._store.standing(session, prefix=history.prefix, limit=0)
        return "" if found.asked is None else _asked_again(found.asked)

    async def links(self, history: History, session: str | None, *, reply: str | None = None) -> list[ReplyMatch]:
        """The positions in the history of replies of served turns of one session, the latest first."""
        replies = history.replies
        found = self._found(history, replies, session, reply)
        unknown = replies[: replies.index(found[0].at)] if found else replies
        if unknown:
            self._index.fill(await self._store.served([history.chains[at] for at in unknown], session=session))
            found = self._found(history, replies, session, reply)
        return found

    async def turn(self, name: str) -> Turn | None:
        """The turn of this id."""
        held = self._index.turn(name)
        if held is None:
            try:
                held = await self._store.turn(name)
            except DamageError as problem:  # the conversation continues without it
                log.error("turn=%s cannot be continued: %s", name, problem)
            if held is not None:
                self._index.keep(held)
        return held

    def _of_session(
        self, history: History, session: str, family: str | None, standing: SessionStatus, rules: ClientRules
    ) -> Continuation:
        over = () if family is None else (session, *standing.before)
        is_summed = rules.is_summed(history.spoken)
        links = _kept(history, standing.waiting, rules, least=1 if is_summed else LEAST_ALIKE)
        if is_summed:
            why = f"continues turn {links[0].known.turn}" if links else "which kept no reply that waited"
            return Continuation(links, f"after a compaction, {why}", over, "the conversation was compacted")
        if links:
            return Continuation(links, f"continues turn {links[0].known.turn}, {CUT_OR_CHANGED}")
        if history.replies:
            return Continuation(why="none of the replies in its history was served here in this session")
        if standing.asked is not None:
            return Continuation(why=_asked_again(standing.asked))
        if (standing.waiting or standing.before) and over and rules.starts_over(history.spoken):
            return Continuation(why="restarts its session", over=over, over_why="the conversation restarted")
        return Continuation()

    def _told(self, links: Sequence[ReplyMatch], history: History) -> str:
        if not links:
            return ""
        again = self._index.asked(links[0].known.session, history.prefix)
        told = f"continues turn {links[0].known.turn}"
        return told if again is None else f"{told}, and {_asked_again(again)}"

    async def _evident(
        self, history: History, whose: HistoryOwner, links: Sequence[ReplyMatch], rules: ClientRules
    ) -> Continuation:
        """The turns with the last replies in a history, although what is before them was cut or changed.

        They belong to one session: that of the first one found, unless one is named or known by its beginning.
        """
        session = links[0].known.session if links else whose.session
        stop, found, inserts = links[0].at if links else -1, list[ReplyMatch](), list[str]()
        why = ""
        for at in history.replies[:LATEST]:
            if at <= stop:
                break
            best = await self._most_alike(history, at, replace(whose, session=session), rules)
            if best is None:
                if found:
                    break
                continue
            link, alignment = best
            if not found:
                how = "by the id of its call" if alignment.by_id else CUT_OR_CHANGED
                why = f"continues turn {link.known.turn}, {how}"
                if at != history.replies[0]:
                    why += "; the replies after it are not as they were served"
            found.append(link)
            inserts += alignment.inserts
            session = link.known.session
        return Continuation(tuple(found), why, inserts=tuple(dict.fromkeys(inserts)))

    async def _most_alike(
        self, history: History, at: int, whose: HistoryOwner, rules: ClientRules
    ) -> tuple[ReplyMatch, Alignment] | None:
        """The turn of the reply at this place, if the evidence is sufficient and points to one conversation."""
        found: list[tuple[tuple[int, int, bool, int], ReplyMatch, Alignment]] = []
        for order, known in enumerate(self._index.replies.find(whose.space, history.spoken[at])):
            turn = await self.turn(known.turn) if whose.session in (None, known.session) else None
            if turn is None:
                continue
            mine = (*(item for item in rules.spoken(turn.messages) if item.role is not Role.SYSTEM), turn.reply)
            alike = partial(align, history.spoken, at + 1, mine)
            alignment = await asyncio.to_thread(alike) if min(at, len(mine)) > MANY else alike()
            if _is_enough(alignment, turn, is_named=whose.session is not None):
                rank = (alignment.size, alignment.exact, known.is_open, order)
                found.append((rank, ReplyMatch(at, known), alignment))
        found.sort(key=lambda each: each[0])
        if not found:
            return None
        (size, exact, *_), link, alignment = found[-1]
        rivals = {each.known.session for rank, each, _ in found if rank[:2] == (size, exact)}
        if len(rivals) > 1 and not (alignment.is_exact and (alignment.is_whole or size >= LEAST_ALIKE_UNNAMED)):
            return None  # two conversations agree equally: it is unclear which is meant
        return link, alignment

    def _found(
        self, history: History, replies: Sequence[int], session: str | None, reply: str | None
    ) -> list[ReplyMatch]:
        found = []
        for at in replies:
            known = self._index.find(history.chains[at], session)
            if known:
                best = max(enumerate(known), key=lambda each: (each[1].turn == reply, each[1].is_open, each[0]))[1]
                found.append(ReplyMatch(at, best))
                session = best.session
        return found


def _is_enough(alignment: Alignment, turn: Turn, *, is_named: bool) -> bool:
    """Whether a history and a turn have more in common than any other conversation would."""
    if alignment.size == 0 or alignment.by_id:
        return alignment.by_id
    is_distinct = len(said(turn.reply.text)) >= DISTINCT
    if is_named:
        return alignment.size >= LEAST_ALIKE or is_distinct
    if alignment.is_whole or alignment.size >= LEAST_ALIKE_UNNAMED:
        return True
    if alignment.covers and alignment.is_exact and alignment.size >= LEAST_ALIKE:
        return True
    return alignment.size >= LEAST_ALIKE and is_distinct


def _asked_again(turn: str) -> str:
    return f"asks again what turn {turn} answered"


def _kept(history: History, waiting: Sequence[Turn], rules: ClientRules, *, least: int) -> tuple[ReplyMatch, ...]:
    """The positions of the replies of these turns, newest first, in a history without its beginning."""
    theirs, free, found = Digests(history.spoken), list(history.replies), list[ReplyMatch]()
    for turn in waiting:
        mine = _conversation(turn, rules)
        alike = {at: _alike(theirs, at + 1, mine) for at in free}
        best = max(free, key=lambda at: (alike[at], at), default=None)
        says_something = turn.reply.text.strip() or turn.reply.tool_calls
        if best is not None and alike[best] >= least and says_something:
            found.append(ReplyMatch(best, KnownReply(turn.id, turn.session, State.SERVED)))
            free = [at for at in free if at < best]
    return tuple(found)


def _conversation(turn: Turn, rules: ClientRules) -> Digests:
    """The digests of a turn's messages, without the system's, and of its reply."""
    return Digests((*rules.spoken(turn.messages), turn.reply))


class Digests:
    """The digests of messages, one for each and without the system's; computed on first use.

    Histories are compared from their ends, and mostly differ there: of ten thousand messages few are digested.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = [item for item in messages if item.role is not Role.SYSTEM]
        self._made: dict[int, str] = {}

    def __len__(self) -> int:
        """How many."""
        return len(self._messages)

    def __getitem__(self, at: int) -> str:
        """The digest of the message at `at`."""
        found = self._made.get(at)
        if found is None:
            found = self._made[at] = extended("", self._messages[at])
        return found


def _alike(theirs: Digests, stop: int, mine: Digests) -> int:
    """How many messages at the ends of both are equal; of theirs, up to `stop`."""
    size, last = 0, len(mine)
    while size < min(stop, last) and theirs[stop - 1 - size] == mine[last - 1 - size]:
        size += 1
    return size
