"""Recent observations by which a program's words are recognised without any rule for the client.

It keeps digests of lines, and the text of what was inserted into messages and removed again, all within bounds and only
since the start. In doubt the message counts as nobody's, which loses a lesson but teaches nothing wrong.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from openclaw_rl.collect.clients.by_rules import system_text
from openclaw_rl.collect.digests import (
    LONG_ARGUMENT,
    LONG_OPENING,
    MOST_LETTERS,
    OPENING,
    Branches,
    arguments_of,
    beginnings,
    digest,
    lines_of,
    recurring,
    unescaped,
)
from openclaw_rl.collect.evidence import DISTINCT
from openclaw_rl.collect.frames import FrameMemory, without_stamp
from openclaw_rl.core.message import Message, Role
from openclaw_rl.core.turn import Arrival, Turn

Held = TypeVar("Held")
MOST = 20_000  # digests of each sort
MOST_INSERTS = 32  # of a key
LONG_LINE = 24  # letters that are not quoted by accident
RESTATED = 3  # long lines of a reply that a compacted conversation begins with
LONG_FORM, FORM_LINES = 200, 5  # letters and lines of what may be a program's instructions
SESSIONS = 2  # others in which a text recurred
UNANSWERED = 3  # sessions that begin alike and are never continued
PROBE_TOKENS, PROBE_LETTERS = 16, 24  # of a request that only tries the connection; Responses has no limit below 16
_NUMBERED = re.compile(r"\S*\d\S*")  # a release, a date or a digest, which may change within a session
_ELEMENT = re.compile(r"<[a-z][^<>]{0,60}>(?P<said>[^<]+)</[a-z][^<>]{0,40}>")
_FIELD = re.compile(r'"[^\s"]{1,16}"\s*:\s*"(?P<said>(?:[^"\\]|\\.){4,})"')  # of an object, as a transcript may be one
_LABEL = re.compile(r"""[\W_]*[^\s:]{1,16}[*_"')\]]{0,3}\s?[:：|>]\s*["']?(?P<said>\S.*)""")


class MissingFeatures(StrEnum):
    """What a request lacks that others of its session have."""

    TOOLS = "the tools of its session are missing"
    SYSTEM = "the system text of its session is missing"
    HISTORY = "it restarts within its session, with another system text"


@dataclass(frozen=True, slots=True)
class _Line:
    turn: str
    session: str
    is_reply: bool
    system: str


@dataclass(frozen=True, slots=True)
class _Insert:
    """What a program put into a message and removed again: its text, and its first and last line."""

    text: str
    head: str
    tail: str


@dataclass(frozen=True, slots=True)
class UsualRequest:
    """The form of a session's requests that were continued."""

    has_tools: bool
    system: str


class ProgramTextDetector:
    """One object for all requests, on one event loop."""

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._texts: OrderedDict[str, list[str]] = OrderedDict()
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._arguments: OrderedDict[str, str] = OrderedDict()
        self._summaries: OrderedDict[str, str] = OrderedDict()  # lines to sessions; empty if it may be any of several
        self._baselines: OrderedDict[str, UsualRequest] = OrderedDict()
        self._inserts: OrderedDict[str, list[_Insert]] = OrderedDict()
        self._openings: OrderedDict[str, list[str]] = OrderedDict()  # empty once one was continued
        self._continued: OrderedDict[str, None] = OrderedDict()  # keys with a conversation that was continued
        self._quoting: OrderedDict[str, None] = OrderedDict()  # sessions with a client that quotes messages
        self.frames, self.branches = FrameMemory(), Branches()

    @property
    def held(self) -> int:
        """How many digests and texts are in memory."""
        plain = sum(len(kind) for kind in self._all if kind is not self._inserts)
        return plain + sum(map(len, self._inserts.values())) + self.frames.held + self.branches.held

    def let_go(self) -> None:
        """Removes everything: digests do not show which user's words they are of."""
        for held in self._all:
            held.clear()
        self.frames.let_go()
        self.branches.let_go()

    @property
    def _all(self) -> tuple[OrderedDict[str, object], ...]:
        known = (self._texts, self._lines, self._arguments, self._summaries, self._baselines, self._inserts)
        return (*known, self._openings, self._continued, self._quoting)  # type: ignore[return-value]

    def enter(
        self, space: str, turn: Turn, said: Sequence[Message], *, spoken: Sequence[Message], is_summary: bool
    ) -> None:
        """Records an answered request; `said` is what followed the last reply, `spoken` the same without what its
        client is known to insert, `is_summary` that it asked for one.
        """
        texts = [item.text for item in said if item.role is Role.USER]
        for text in texts:
            for name in recurring(space, text):
                listed = self._texts.setdefault(name, [])
                if turn.session not in listed and len(listed) <= SESSIONS:
                    listed.append(turn.session)
                self._used(self._texts, name)
        if is_summary:
            for line in lines_of(turn.reply.text):
                if len(line) >= LONG_LINE:
                    name = digest(space, line)
                    is_another = self._summaries.get(name, turn.session) != turn.session
                    self._put(self._summaries, name, "" if is_another else turn.session)
        if not turn.is_main:
            return
        for name in _openings(space, turn.messages, has_tools=bool(turn.tools)):
            listed = self._openings.get(name, [])
            if turn.session not in listed:
                self._put(self._openings, name, [*listed, turn.session][-2 * UNANSWERED :])
        system = _opening_of(turn.messages)
        for item in spoken:
            if item.role is Role.USER:
                self.frames.enter(turn.session, item.text)
        if texts:
            self.branches.enter(turn, beginnings(space, texts[-1]))
        for is_reply, text in (*((False, without_stamp(text)) for text in texts[-1:]), (True, turn.reply.text)):
            for line in lines_of(text):
                name = digest(space, line)
                held = self._lines.get(name)
                is_another = held is not None and held.session != turn.session  # then it comes from a template
                self._put(self._lines, name, _Line(turn.id, "" if is_another else turn.session, is_reply, system))
        for text in arguments_of(turn):
            self._put(self._arguments, digest(space, text), turn.session)

    def goes_on(self, space: str, session: str, arrival: Arrival, turn: str) -> None:
        """Records the form of a request that continues a turn of its session, and that this turn was continued."""
        self.branches.goes_on(turn)
        self._put(self._baselines, session, _baseline(arrival))
        self._put(self._continued, space, None)
        for name in _openings(space, arrival.messages, has_tools=bool(arrival.tools)):
            self._put(self._openings, name, [])

    def quotes_all(self, session: str, messages: Sequence[Message], newest: str) -> bool:
        """Whether the client puts each message of its owner's in quotation marks, as no person does."""
        if not is_quoted(newest.strip()):
            return False
        if session not in self._quoting:
            said = [item.text.strip() for item in messages if item.role is Role.USER]
            if sum(is_quoted(text) for text in said) < 2:
                return False
            self._put(self._quoting, session, None)
        return True

    def never_gone_on(self, space: str, session: str, arrival: Arrival) -> bool:
        """Whether requests that begin alike were answered in several other sessions and never continued,
        although the key's other conversations are continued.
        """
        if space not in self._continued or _has_reply(arrival):
            return False
        names = _openings(space, arrival.messages, has_tools=bool(arrival.tools))
        alike = (self._openings.get(name, ()) for name in names)
        return any(len([each for each in listed if each != session]) >= UNANSWERED for listed in alike)

    def is_abandoned(self, space: str, text: str) -> bool:
        """Whether such a message was answered before, and its conversation continued as if it had never been sent."""
        return any(self.branches.is_abandoned(name) for name in beginnings(space, text))

    def took_out(self, space: str, inserts: Sequence[str]) -> None:
        """Records texts that were in a message when it was sent and are missing in its history later."""
        held = self._inserts.setdefault(space, [])
        for text in inserts:
            lines = [line.strip() for line in text.split("\n") if line.strip()]
            if text not in [each.text for each in held] and len(text) <= MOST_LETTERS:
                held.append(_Insert(text, lines[0], lines[-1]))
        del held[:-MOST_INSERTS]
        self._used(self._inserts, space)

    def without_inserts(self, space: str, text: str) -> str:
        """The text without pieces that are known to be removed from messages again."""
        for each in self._inserts.get(space, ()):
            at = text.find(each.text)
            if at >= 0:
                text = f"{text[:at].rstrip()}\n{text[at + len(each.text) :].lstrip()}".strip()
                continue
            bare = text.lstrip()
            end = bare.find(f"\n{each.tail}")
            after = end + len(each.tail) + 1
            if (
                each.head != each.tail
                and bare.startswith(f"{each.head}\n")
                and end >= 0
                and bare[after : after + 1] in "\n "
            ):
                text = bare[after:].strip()
        return text

    def recurs(self, space: str, session: str, text: str) -> bool:
        """Whether a long text, or one that begins with it, was the newest in several other sessions."""
        return any(
            len([each for each in self._texts.get(name, ()) if each != session]) >= SESSIONS
            for name in recurring(space, text)
        )

    def agents_task(self, space: str, text: str) -> bool:
        """Whether a text, or a paragraph of it, is what the model itself wrote into a tool call."""
        fields = (unescaped(each["said"]) for each in _FIELD.finditer(text[:MOST_LETTERS]))
        parts = (text, *text[:MOST_LETTERS].split("\n\n"), *fields)
        long = (part.strip() for part in parts if len(part.strip()) >= LONG_ARGUMENT)
        return any(digest(space, part) in self._arguments for part in long)

    def summed(self, space: str, texts: Sequence[str]) -> str | None:
        """The session of the summary that these texts contain, if they contain most of one."""
        found: dict[str, int] = {}
        for text in texts:
            for line in lines_of(text):
                session = self._summaries.get(digest(space, line)) if len(line) >= LONG_LINE else None
                if session:
                    found[session] = found.get(session, 0) + 1
        best = max(found, key=lambda each: found[each], default=None)
        return best if best is not None and list(found.values()).count(found[best]) == 1 else None

    def quotes(self, space: str, text: str) -> bool:
        """Whether a text contains, under labels or with other text, what was said in a conversation: words and a reply
        of it, or a long line after a label.
        """
        sessions: dict[str, set[bool]] = {}
        for found, said, is_labelled in self._quoted(space, text):
            if is_labelled and len(said) >= LONG_LINE:
                return True
            sessions.setdefault(found.session, set()).add(found.is_reply)
        return len(lines_of(text)) > 2 and any(len(kinds) == 2 for kinds in sessions.values())

    def restated(self, space: str, arrival: Arrival) -> str | None:
        """The session of which a request begins with a whole reply, followed by new words, as after a compaction."""
        spoken = [item for item in arrival.messages if item.role is not Role.SYSTEM]
        if len(spoken) < 2 or any(item.role is not Role.USER for item in spoken):
            return None
        found = [self._lines.get(digest(space, each)) for each in lines_of(spoken[0].text) if len(each) >= LONG_LINE]
        system = _opening_of(arrival.messages)
        replies = [each for each in found if each is not None and each.is_reply and each.system == system]
        sessions = {each.session for each in replies if each.session}
        return sessions.pop() if len(replies) >= RESTATED and len(sessions) == 1 else None

    def quotes_from_elsewhere(self, space: str, text: str, arrival: Arrival) -> bool:
        """Whether a text contains a long line of a reply that was given after another system text."""
        held = (self._lines.get(digest(space, each)) for each in lines_of(text) if len(each) >= DISTINCT)
        system = _opening_of(arrival.messages)
        return bool(system) and any(each is not None and each.is_reply and each.system != system for each in held)

    def quoted_session(self, space: str, texts: Sequence[str]) -> str | None:
        """The conversation that a request quotes most."""
        counts = Counter(found.session for text in texts for found, _, _ in self._quoted(space, text))
        best = counts.most_common(2)
        return best[0][0] if len(best) == 1 or (best and best[0][1] > best[1][1]) else None

    def _quoted(self, space: str, text: str) -> Iterator[tuple[_Line, str, bool]]:
        """The lines of a text that were said in only one conversation, unchanged or after a label."""
        for line in lines_of(text):
            label = _ELEMENT.fullmatch(line) or _LABEL.fullmatch(line)
            fields = [unescaped(each["said"]) for each in _FIELD.finditer(line)]
            labelled = [label["said"].rstrip("\"',"), *fields] if label else fields
            for said, is_labelled in ((line, False), *((each, True) for each in labelled)):
                found = self._lines.get(digest(space, said)) if said else None
                if found is not None and found.session:
                    yield found, said, is_labelled

    def missing(self, session: str, arrival: Arrival, parent: Turn | None) -> MissingFeatures | None:
        """What the session's requests have and this one lacks."""
        if parent is not None:
            before = UsualRequest(bool(parent.tools), _opening_of(parent.messages))
        else:
            known = self._baselines.get(session)
            if known is None:
                return None
            before = known
        now = _baseline(arrival)
        if before.has_tools and not now.has_tools:
            return MissingFeatures.TOOLS
        if before.system and not now.system:
            return MissingFeatures.SYSTEM
        if parent is None and before.system and now.system != before.system and not _has_reply(arrival):
            return MissingFeatures.HISTORY
        return None

    def _put(self, held: OrderedDict[str, Held], name: str, value: Held) -> None:
        held[name] = value
        self._used(held, name)

    def _used(self, held: OrderedDict[str, Held], name: str) -> None:
        held.move_to_end(name)
        while len(held) > self._most:
            held.popitem(last=False)


def is_quoted(text: str) -> bool:
    """Whether all of it is in one pair of quotation marks."""
    return len(text) > 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1].replace('\\"', "")


def is_long_form(text: str) -> bool:
    """Whether a text may be instructions of a program's: long, and of many lines."""
    bare = text.strip()
    return len(bare) >= LONG_FORM and sum(bool(line.strip()) for line in bare.split("\n")) >= FORM_LINES


def is_probe(arrival: Arrival) -> bool:
    """Whether a request only tests the connection: a word or two, with hardly any tokens for the answer."""
    most = arrival.max_tokens
    spoken = [item for item in arrival.messages if item.role is not Role.SYSTEM]
    return (
        most is not None
        and most <= PROBE_TOKENS
        and len(spoken) == 1
        and not arrival.tools
        and len(spoken[0].text.strip()) <= PROBE_LETTERS
    )


def _baseline(arrival: Arrival) -> UsualRequest:
    return UsualRequest(bool(arrival.tools), _opening_of(arrival.messages))


def _opening_of(messages: Sequence[Message]) -> str:
    """The beginning of the system text, without words with digits: some clients put a digest of the request there."""
    return _NUMBERED.sub("", system_text(messages)[: 2 * OPENING])[:OPENING]


def _has_reply(arrival: Arrival) -> bool:
    return any(item.role is Role.ASSISTANT for item in arrival.messages)


def _openings(space: str, messages: Sequence[Message], *, has_tools: bool) -> list[str]:
    """The beginning of a request that may be made from a template: its first message if another follows directly, else
    its first line if others follow it.
    """
    spoken = [item for item in messages if item.role is not Role.SYSTEM]
    if has_tools or not spoken or spoken[0].role is not Role.USER:
        return []
    first, head = spoken[0].text.strip(), system_text(messages)
    if len(spoken) > 1 and spoken[1].role is Role.USER:
        return [digest(space, f"opens {head}\n{first}")]
    line, _, rest = first.partition("\n")
    return [digest(space, f"opens {head}\n{line}")] if rest.strip() and len(line) >= LONG_OPENING else []
