"""What a request says about the replies in its history: found when it is placed, recorded once it will be answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from openclaw_rl.collect.past import Continuation
from openclaw_rl.collect.prefixes import History, Index, following
from openclaw_rl.collect.replies import KnownReply
from openclaw_rl.collect.speaker import Listener, newest, next_state_of
from openclaw_rl.core.ledger import State
from openclaw_rl.core.next_state import NextState
from openclaw_rl.core.turn import Arrival, Turn
from openclaw_rl.store.db import Store

log = logging.getLogger(__name__)
MANY = 1000  # messages of a history that are searched for a client's habits


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """What followed a reply that waits for it. Of `twins`, turns that read the same, one is answered."""

    known: KnownReply
    twins: Sequence[KnownReply]
    next_state: NextState

    @property
    def is_due(self) -> bool:
        """Whether the reply still waits."""
        return self.known.is_open and not any(twin.is_followed for twin in self.twins)


def heard_in(
    arrival: Arrival,
    history: History,
    going: Continuation,
    listener: Listener,
    index: Index,
    *,
    parent: Turn | None,
    is_vouched: bool,
) -> tuple[str, tuple[PendingAnswer, ...]]:
    """Who spoke, in words, and the answers to every turn in the history that still waits for one."""
    rules, told, answers = listener.rules, "", list[PendingAnswer]()
    last = history.replies[0] if history.replies else None
    lacks_tools = parent is not None and bool(parent.tools) and not arrival.tools
    raw, served = newest(arrival.messages), {link.at for link in going.links}
    if last is None:
        told = listener.heard(raw, None, noted=rules.noted(raw), is_newest=False, is_vouched=True).told
    for link in going.links:
        known, twins = link.known, index.find(history.chains[link.at], link.known.session)
        is_newest, is_due = link.at == last, known.is_open and not any(twin.is_followed for twin in twins)
        if not is_newest and not (is_due and (rules.name or _was_answered_here(history, link.at, served))):
            continue
        heard = listener.heard(
            following(history, link.at),
            known.session,
            noted=rules.noted(raw) if is_newest else (),
            is_newest=is_newest,
            is_vouched=is_vouched,
            lacks_tools=lacks_tools and not is_vouched,
            history=history.spoken[:MANY],
        )
        told = heard.told if is_newest else told
        next_state = next_state_of(known.turn, heard.messages, arrival.headers) if is_due else None
        if next_state is not None:
            answers.append(PendingAnswer(known, tuple(twins), next_state))
    return told, tuple(answers)


def note(store: Store, answers: Sequence[PendingAnswer]) -> None:
    """Gives the turns their next states.

    Nothing waits for this write: it comes before that of the request's own turn in the same queue.
    """
    for each in answers:
        if each.is_due:
            pairing = store.begin_pair(each.next_state)
            each.known.state = State.PAIRED  # or further: the store has the last word
            pairing.add_done_callback(partial(_note_pair, each.known))


def _was_answered_here(history: History, at: int, served: Collection[int]) -> bool:
    """Whether the reply after next was served here too: else it is a program's, and so may be the words it answers."""
    return at + len(following(history, at)) + 1 in served


def _note_pair(known: KnownReply, pairing: asyncio.Future[bool]) -> None:
    """What happened to it; if it could not be written, the conversation's next request tries again."""
    problem = None if pairing.cancelled() else pairing.exception()
    if problem is not None:
        known.state = State.SERVED
        log.warning("a next state could not be stored turn=%s: %s", known.turn, problem)
    else:
        log.debug("paired turn=%s", known.turn)
