"""Who spoke in the messages after a reply: what the owner typed, what a tool returned, and what a program put there.

In doubt nobody spoke. A doubt ends once the conversation continues after the message: then it was its owner's.
Results of placing a request are recorded once it will be answered.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from openclaw_rl.collect.classify import is_vouched
from openclaw_rl.collect.clients.rules import ClientRules
from openclaw_rl.collect.histories import History, Index, KnownReply, following
from openclaw_rl.collect.past import Continuation
from openclaw_rl.collect.signs import MissingFeatures, ProgramTextDetector, is_long_form, is_probe, is_quoted
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Message, Role
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.turn import Arrival, Turn
from openclaw_rl.store.db import Store

log = logging.getLogger(__name__)

AGENT = "sub-agent"
KNOWN_WHOLLY = "openclaw"  # the client that has rules for all of its words
LEAST_ERRAND = 120  # letters of a text that asks for something without the tools of its session
NO_TOOLS = f"{MissingFeatures.TOOLS.value}, so it counts once the conversation continues from it"
RECURS = "its text came word for word in other sessions"
LONG = "a long text of many lines, which counts once the conversation continues from it"
QUOTES = "quotation marks around all messages"
TAKEN_OUT = "text that its client removes again"
ASIDE = "a message in brackets, followed by another one"
_ASIDE = re.compile(r"\s*(?:\[[^\[\]\n]{8,120}\]|\([^()\n]{8,120}\))\s*")
FRAMED = "lines that are around other messages, too"
UNFRAMED = "a message without the lines around the others"
BEHIND_RESULT = "words after a tool's result, which count once the conversation continues from them"
ENVIRONMENT = "x-environment"  # its name; set by what runs a task rather than a conversation
MANY = 1000  # messages of a history that are searched for a client's habits


@dataclass(frozen=True, slots=True)
class AttributedMessages:
    """The messages that answer a reply, and in words what was left out. `is_doubtful` while the author is unknown."""

    messages: tuple[Message, ...]
    left_out: tuple[str, ...] = ()
    doubt: str = ""

    @property
    def has_words(self) -> bool:
        """Whether the owner said something."""
        return any(item.role is Role.USER for item in self.messages)

    @property
    def told(self) -> str:
        """Who spoke, for `why`; empty if the owner or a tool did and nothing was left out."""
        if self.doubt:
            return f"spoke: nobody ({self.doubt})"
        if not self.left_out:
            return ""
        names = ", ".join(self.left_out)
        if self.has_words:
            return f"spoke: the owner, without {names}"
        return f"spoke: {'a tool' if self.messages else 'nobody'} ({names})"


@dataclass(frozen=True, slots=True)
class Listener:
    """Reads messages of one API key by its client's rules, and by signs that need none."""

    signs: ProgramTextDetector
    rules: ClientRules
    space: str

    def heard(
        self,
        followed: Sequence[Message],
        session: str | None,
        *,
        noted: Sequence[str],
        is_newest: bool,
        is_vouched: bool,
        lacks_tools: bool = False,
        history: Sequence[Message] = (),
    ) -> AttributedMessages:
        """The content of these messages after a reply; `noted` is what the client's rules left out of them.

        The newest may be in doubt, unless the client itself says who wrote it (`is_vouched`). If a client puts
        quotation marks around each message of a `history`, they are not quotations.
        """
        messages = self.rules.heard(followed)
        left_out = tuple(f"{name} ({_by(self.rules, name)})" for name in noted)
        kept: list[Message] = []
        said = [item.text for item in history if item.role is Role.USER]
        for item, after in zip_longest(messages, messages[1:]):
            if item.role is not Role.USER:
                kept.append(item)
                continue
            if not is_vouched and after is not None and after.role is Role.USER and _ASIDE.fullmatch(item.text):
                left_out = (*left_out, ASIDE)
                continue
            words = self.signs.without_inserts(self.space, item.text)
            if words != item.text:
                left_out = (*left_out, TAKEN_OUT)
            if self.signs.quotes_all(session or "", history, words):
                words = _inside(words)
                left_out = (*left_out, QUOTES)
            is_known = is_vouched or self.rules.name or words != item.text
            if not is_known and self.signs.frames.lacks_frame(session or "", words):
                left_out = (*left_out, UNFRAMED)
                continue
            if not is_vouched:
                bare = self.signs.frames.words(self.space, session or "", words, said)
                if bare != words:
                    words, left_out = bare, (*left_out, FRAMED)
            if words.strip() or item.has_image:
                kept.append(item if words == item.text else item.with_text(words))
        doubt = "" if is_vouched else self._doubt(kept, session, is_newest=is_newest)
        if not doubt and lacks_tools and is_newest and any(item.role is Role.USER for item in kept):
            doubt = NO_TOOLS
        if doubt:  # the result before a doubtful message waits with it: a reply has one next state
            kept = [] if doubt == BEHIND_RESULT else [item for item in kept if item.role is not Role.USER]
        return AttributedMessages(tuple(kept), tuple(dict.fromkeys(left_out)), doubt)

    def _doubt(self, messages: Sequence[Message], session: str | None, *, is_newest: bool) -> str:
        said = [item.text for item in messages if item.role is Role.USER]
        if any(self.signs.recurs(self.space, session or "", text) for text in said):
            return RECURS
        if is_newest and not self.rules.name and _stands_behind_results(messages):
            return BEHIND_RESULT
        return LONG if is_newest and any(is_long_form(text) for text in said) else ""


def side_by_sign(
    signs: ProgramTextDetector, space: str, session: str, arrival: Arrival, parent: Turn | None, *, rules: ClientRules
) -> str | None:
    """Why a request is a program's although no rule says so, or None if it may be the owner's."""
    if is_probe(arrival):
        return "connection test (a word, to be answered with next to nothing)"
    if parent is not None and parent.why.startswith(f"side: {AGENT}"):
        return f"{AGENT} (it continues with one)"
    texts = [item.text for item in newest(arrival.messages) if item.role is Role.USER]
    if not texts:
        return None
    if parent is None and not any(item.role is Role.ASSISTANT for item in arrival.messages):
        if any(signs.agents_task(space, text) for text in texts):
            return f"{AGENT} (its task is what the model wrote into a tool call)"
        quotes = (signs.quotes(space, text) or signs.quotes_from_elsewhere(space, text, arrival) for text in texts)
        if not arrival.tools and any(quotes):
            return "errand (it quotes another conversation)"
        if signs.never_gone_on(space, session, arrival):
            return "errand (what begins like it was never gone on from)"
    if parent is not None and all(signs.is_abandoned(space, text) for text in texts):
        return "errand (a conversation went on as if such a message had not been sent)"
    missing = signs.missing(session, arrival, parent)
    if missing is MissingFeatures.HISTORY and _is_summed(signs, space, session, arrival, rules):
        return None  # it restarts because it was compacted
    if missing is MissingFeatures.TOOLS:
        is_sure = any(len(text.strip()) >= LEAST_ERRAND for text in texts)
    else:
        is_sure = missing is MissingFeatures.HISTORY or any(is_long_form(text) for text in texts)
    return f"errand ({missing.value})" if missing is not None and is_sure else None


def opening_texts(messages: Sequence[Message]) -> list[str]:
    """The texts that may be a summary: users' words at the beginning, or a first reply."""
    spoken = [item for item in messages[:8] if item.role is not Role.SYSTEM]
    return [item.text for at, item in enumerate(spoken) if item.role is Role.USER or at == 0]


def _is_summed(signs: ProgramTextDetector, space: str, session: str, arrival: Arrival, rules: ClientRules) -> bool:
    is_known = rules.is_summed(tuple(item for item in arrival.messages if item.role is not Role.SYSTEM))
    return is_known or signs.summed(space, opening_texts(arrival.messages)) == session


def asks_for_summary(turn: Turn) -> bool:
    """Whether a request may have asked for a summary of its conversation."""
    is_doubtful = any(f"spoke: nobody ({doubt})" in turn.why for doubt in (LONG, NO_TOOLS))
    return turn.why.startswith(("side: compaction", "side: errand")) or is_doubtful


def is_vouched_for(arrival: Arrival, rules: ClientRules) -> bool:
    """Whether signs need not be checked: the client says that its owner spoke, an environment did, or all is known."""
    return is_vouched(arrival) or rules.name == KNOWN_WHOLLY or bool(arrival.headers.get(ENVIRONMENT, "").strip())


def newest(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages after the last reply."""
    start = len(messages)
    while start > 0 and messages[start - 1].role is not Role.ASSISTANT:
        start -= 1
    return tuple(item for item in messages[start:] if item.role is not Role.SYSTEM)


def _stands_behind_results(messages: Sequence[Message]) -> bool:
    """Whether a user's words follow a tool's result: a place where programs remind the model of something."""
    roles = [item.role for item in messages]
    return Role.TOOL in roles and Role.USER in roles[roles.index(Role.TOOL) :]


def _inside(text: str) -> str:
    bare = text.strip()
    return bare[1:-1].replace('\\"', '"') if is_quoted(bare) else text


def _by(rules: ClientRules, name: str) -> str:
    return "by its shape" if name.startswith(("<", "around <")) else f"a rule of {rules.name}"


def next_state_of(turn: str, heard: Sequence[Message], headers: Mapping[str, str]) -> NextState | None:
    """The next state of a reply; None if only the client spoke."""
    messages = tuple(item for item in heard if item.role in (Role.USER, Role.TOOL))
    return NextState(turn, messages, source_of(messages, headers)) if messages else None


def source_of(messages: Sequence[Message], headers: Mapping[str, str]) -> NextStateSource:
    """Who spoke next. A user's words together with a tool's count as the tool's, which may teach less."""
    if headers.get(ENVIRONMENT, "").strip():
        return NextStateSource.ENVIRONMENT
    if any(item.role is Role.TOOL for item in messages):
        return NextStateSource.TOOL
    return NextStateSource.USER


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """The next state of a reply that waits for it. Only one of `twins`, turns with the same text, gets it."""

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
            each.known.state = State.PAIRED  # or further: the store decides
            pairing.add_done_callback(partial(_note_pair, each.known))


def _was_answered_here(history: History, at: int, served: Collection[int]) -> bool:
    """Whether the reply after next was served here too: else it is a program's, and so may be the words it answers."""
    return at + len(following(history, at)) + 1 in served


def _note_pair(known: KnownReply, pairing: asyncio.Future[bool]) -> None:
    """Records the result; if it could not be written, the conversation's next request tries again."""
    problem = None if pairing.cancelled() else pairing.exception()
    if problem is not None:
        known.state = State.SERVED
        log.warning("a next state could not be stored turn=%s: %s", known.turn, problem)
    else:
        log.debug("paired turn=%s", known.turn)
