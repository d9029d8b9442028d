"""What OpenClaw (observed: 2026.9.6) writes around its users' words, and how its own requests differ from theirs.

Users can type whatever the client writes, so a text counts as the client's only where the client puts it: the Runtime
line at the end of the system text or of the first user message, the internal block as the last message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.collect.clients.by_rules import system_text
from openclaw_rl.core.message import Message, Role, TextPart
from openclaw_rl.core.turn import Arrival, TurnKind

# How the system text begins. The first two are an agent's, the others belong to requests on the side, named here.
AGENT = ("<!-- openclaw:attempt:", "You are a personal assistant running inside OpenClaw")
ERRANDS = {
    "Generate a concise session title": "a session's title",
    "You are a context summarization assistant": "a summary for compaction",
    "You are keeping a dream diary": "a dream diary",
    "Current model identity: ": "a single answer",
}
RUNTIME = re.compile(r"Runtime: agent=\S+ \| session=(?P<key>\S.*?)(?: \| sessionId=(?P<id>\S+))? \| host=\S.*")
SYSTEM_END = "<!-- /openclaw:"  # begins the mark after the last part of the system text
INTERNAL_KEY = re.compile(r"agent:[^:]+:(cron|subagent|acp|boot|helper|hook|internal-session-effects)(?::|\Z)")
BLOCK_BEGIN = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
BLOCK_END = "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
# `[Tue 2031-02-04 09:15 Europe/Rome] `; a channel may name its sender in front, and weekdays have names in any language
STAMP = re.compile(
    r"\[(?:[^\]\n]{1,80} )?[^\W\d_]{1,12}\.? \d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?(?: [^\]\n]{1,40})?\] "
)
SUMMARY = "The conversation history before this point was compacted into the following summary:"
QUEUED = re.compile(r"(?:\A|\n\n)\[Queued user message[^\]\n]*\]\n")
QUEUED_BEGIN = "[Queued user message"
CONTINUE = "Continue the current task from the existing transcript"
BACKGROUND = "A background task completed"

# The client's own words in a user's message. These continue what a user asked for:
NUDGES = (CONTINUE, "<turn_aborted>", "The previous attempt did not produce", "This turn ended before a reply")
# These begin an errand; the first ones may also follow a time stamp:
MARKED_ERRANDS = ("[OpenClaw heartbeat poll]", "[Subagent Context]", "[cron:")
TOLD_ERRANDS = (
    "Follow the heartbeat monitor",
    "A scheduled reminder has been triggered",
    "Pre-compaction memory flush",
)
_GOES_ON = "the client continues with a user's turn"


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the client's Runtime line says about the session: its key, and its id if it has one."""

    key: str
    id: str | None


class OpenClaw:
    """OpenClaw's habits."""

    @property
    def name(self) -> str:
        """The name of the client."""
        return "openclaw"

    def recognises(self, arrival: Arrival) -> bool:
        """Whether the system text begins as this client writes it; users write none."""
        return system_text(arrival.messages).lstrip().startswith((*AGENT, *ERRANDS))

    def spoken(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages without the internal block and the Runtime line, which are rewritten each time."""
        kept = _without_blocks(messages)
        first = _first_user(kept)
        if first is not None:
            words, line = _cut(kept[first])
            if line is not None:
                kept[first] = kept[first].with_text(words)
        return tuple(kept)

    def heard(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Tool results, and users' words without stamp or retry, each once; nothing of the client's own."""
        kept: list[Message] = []
        for item in messages:
            words = users_words(item.text) if item.role is Role.USER else item.text
            is_again = item.text.startswith(QUEUED_BEGIN) or is_stamped(item.text)
            if words is None or (is_again and words in [other.text for other in kept if other.role is Role.USER]):
                continue
            kept.append(item if words == item.text else item.with_text(words))
        return tuple(kept)

    def readable(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation without inserts, with users' words as they typed them."""
        kept = []
        for item in self.spoken(messages):
            words = users_words(item.text) if item.role is Role.USER else item.text
            words = without_stamp(item.text) if words is None else words
            kept.append(item if words == item.text else item.with_text(words))
        return tuple(kept)

    def noted(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """Whether the users' messages are the client's own words and nothing else."""
        said = [item.text for item in _without_blocks(messages) if item.role is Role.USER]
        return ("the client's own words",) if said and not any(users_words(text) for text in said) else ()

    def session(self, arrival: Arrival) -> tuple[str, str] | None:
        """The session id of the Runtime line, or its key if an automation has no id."""
        runtime = runtime_of(arrival.messages)
        return None if runtime is None else (runtime.id or runtime.key, "the Runtime line")

    def thread(self, arrival: Arrival) -> str | None:
        """None: its other conversations have their own sessions."""
        return None

    def stamps(self, messages: Sequence[Message]) -> bool:
        """Whether any user's message has the client's time stamp."""
        return any(is_stamped(item.text) for item in messages if item.role is Role.USER)

    def kind(self, arrival: Arrival, *, has_stamped: bool = False) -> tuple[TurnKind, str]:
        """Main if it has a Runtime line, a user's session, and a user's words as the newest message; else side.

        Tools are not required: a user may have turned them off in the client. Nor are time stamps, unless this
        conversation has others or `has_stamped`.
        """
        messages, tools = arrival.messages, arrival.tools
        runtime = runtime_of(messages)
        if runtime is None:
            begun = system_text(messages).lstrip()
            errand = next((what for text, what in ERRANDS.items() if begun.startswith(text)), None)
            what = "has no Runtime line" if tools else "has neither tools nor a Runtime line"
            return TurnKind.SIDE, what if errand is None else f"{what}, and asks for {errand}"
        internal = INTERNAL_KEY.match(runtime.key)
        if internal is not None:
            return TurnKind.SIDE, f"its session key is the client's own ({internal[1]})"
        return _kind_by_words(self.spoken(messages), "has tools" if tools else "has no tools", has_stamped=has_stamped)

    def is_summed(self, messages: Sequence[Message]) -> bool:
        """Whether a summary replaces what was said before."""
        first = _first_user(messages)
        return first is not None and messages[first].text.startswith(SUMMARY)

    def starts_over(self, messages: Sequence[Message]) -> bool:
        """Whether there is no reply yet: a session has one history, so an older one of it is over.

        Not if the client tries again, or says that it could not.
        """
        if any(item.role is Role.ASSISTANT for item in messages) or self.is_summed(messages):
            return False
        asked = [item.text for item in messages if item.role is Role.USER]
        return bool(asked) and not any(is_nudge(text) or without_stamp(text).startswith(QUEUED_BEGIN) for text in asked)


def runtime_of(messages: Sequence[Message]) -> Runtime | None:
    """The Runtime line where the client puts it: the end of the system text, else of the first user message."""
    found = RUNTIME.fullmatch(_last_line(system_text(messages)))
    kept = _without_blocks(messages)
    first = _first_user(kept)
    if found is None and first is not None:
        found = _cut(kept[first])[1]
    return None if found is None else Runtime(found["key"], found["id"])


def is_internal_block(item: Message) -> bool:
    """Whether the message is the client's notes to the model and nothing else."""
    text = item.text.strip()
    return item.role is Role.USER and text.startswith(BLOCK_BEGIN) and text.endswith(BLOCK_END)


def _kind_by_words(spoken: Sequence[Message], with_tools: str, *, has_stamped: bool) -> tuple[TurnKind, str]:
    said = [item.text for item in spoken if item.role is Role.USER]
    if not said:
        return TurnKind.SIDE, "has no user's message"
    if without_stamp(said[-1]).startswith(BACKGROUND):
        return TurnKind.MAIN, f"{with_tools}, and {_GOES_ON}"
    asked = [text for text in said if not is_nudge(text)]
    newest = asked[-1] if asked else said[-1]
    if is_errand(newest):
        return TurnKind.SIDE, f"the client's own errand ({without_stamp(newest)[:24].rstrip()}...)"
    if newest.startswith(SUMMARY):
        return TurnKind.MAIN, f"{with_tools}, and continues after a compaction"
    has_stamp = is_stamped(newest)
    has_stamped = has_stamped or any(is_stamped(text) for text in said)
    if asked and has_stamped and not has_stamp and not _is_tried_again(newest):
        return TurnKind.SIDE, "its newest message has no user's time stamp"
    if is_nudge(said[-1]) or _is_tried_again(newest):
        return TurnKind.MAIN, f"{with_tools}, and {_GOES_ON}"
    if has_stamp:
        return TurnKind.MAIN, f"{with_tools} and a user's time stamp"
    return TurnKind.MAIN, f"{with_tools}, and is not an errand of the client, which adds no time stamps"


def _is_tried_again(text: str) -> bool:
    return without_stamp(text).startswith(QUEUED_BEGIN)


def _last_line(system: str) -> str:
    before, mark, after = system.rpartition(SYSTEM_END)
    is_end = mark and after.rstrip().endswith("-->") and "\n" not in after.rstrip()
    return (before if is_end else system).rstrip().rpartition("\n")[2]


def _without_blocks(messages: Sequence[Message]) -> list[Message]:
    """The messages without the client's notes: whole messages, or the end of the last one.

    In the Responses API notes are within the history too, after the results of tools.
    """
    messages = [item for item in messages if not is_internal_block(item)]
    if not messages or messages[-1].role is not Role.USER:
        return messages
    text = messages[-1].text
    words, mark, _ = text.rpartition(f"\n\n{BLOCK_BEGIN}")
    if mark and text.rstrip().endswith(BLOCK_END):
        return [*messages[:-1], messages[-1].with_text(words)]
    return list(messages)


def _first_user(messages: Sequence[Message]) -> int | None:
    return next((at for at, item in enumerate(messages) if item.role is Role.USER), None)


def _cut(item: Message) -> tuple[str, re.Match[str] | None]:
    """The message's text without the Runtime line, and the line: a separate part, or the last paragraph."""
    parts = [part.text for part in item.content if isinstance(part, TextPart)]
    if not parts:
        return "", None
    between = "\n" if item.text.startswith(SUMMARY) else "\n\n"  # a summary is followed by one alone
    before, gap, last = parts[-1].rstrip().rpartition(between)
    line = RUNTIME.fullmatch(last.rstrip()) if gap or not before else None
    return "".join([*parts[:-1], before]) if line is not None else item.text, line


def is_stamped(text: str) -> bool:
    """Whether the client put the time in front."""
    return STAMP.match(text) is not None


def without_stamp(text: str) -> str:
    """The text without the client's time stamp; one typed after it stays."""
    return STAMP.sub("", text, count=1) if is_stamped(text) else text


def users_words(text: str) -> str | None:
    """The user's words in this message, without time stamp and retry; None if all of it is the client's.

    A retry contains the user's words after a mark of the client's, and ends with a paragraph of the client's.
    """
    words = without_stamp(text)
    if words.startswith(QUEUED_BEGIN):
        return _queued(words)
    if not is_stamped(text) and words.startswith((*TOLD_ERRANDS, SUMMARY)):
        return None
    return None if words.startswith((*NUDGES, BACKGROUND, *MARKED_ERRANDS)) else words


def is_nudge(text: str) -> bool:
    """Whether the message is the client's, to make the model continue what was asked before."""
    words = without_stamp(text)
    if words.startswith(QUEUED_BEGIN):
        return _queued(words) is None and not is_errand(text)
    return words.startswith(NUDGES)


def is_errand(text: str) -> bool:
    """Whether this is a request of the client itself."""
    words = without_stamp(text)
    if words.startswith(QUEUED_BEGIN):
        return any(_is_errand(piece) for piece in _pieces(words)) and _queued(words) is None
    return words.startswith(MARKED_ERRANDS) or (not is_stamped(text) and words.startswith(TOLD_ERRANDS))


def _queued(words: str) -> str | None:
    """The users' part of a message that was tried again."""
    said = [piece for piece in _pieces(words) if not _is_errand(piece)]
    return "\n\n".join(said) or None


def _pieces(words: str) -> list[str]:
    """What was queued, one piece for each mark; the client's closing paragraph is left out."""
    pieces = QUEUED.split(words)[1:]
    if pieces:
        before, gap, last = pieces[-1].rpartition("\n\n")
        if last.startswith(CONTINUE):
            pieces[-1] = before if gap else ""
    plain = [without_stamp(piece.strip("\n")) for piece in pieces]
    return [piece for piece in plain if piece.strip() and not piece.startswith((*NUDGES, BACKGROUND))]


def _is_errand(piece: str) -> bool:
    return piece.startswith((*MARKED_ERRANDS, *TOLD_ERRANDS))
