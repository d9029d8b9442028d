"""What OpenClaw (seen: 2026.9.6) writes around its users' words, and how its own requests differ from theirs.

Users can type whatever the client writes, so a text counts as the client's only where the client puts it: the Runtime
line at the end of the system text or of the first user message, the internal block as the last message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.core.message import Message, Role, TextPart, Tool
from openclaw_rl.core.turn import TurnKind

# How the system text begins. The first two are an agent's, the others belong to requests on the side, named here.
AGENT = ("<!-- openclaw:attempt:", "You are a personal assistant running inside OpenClaw")
ERRANDS = {
    "Generate a concise session title": "a session's title",
    "You are a context summarization assistant": "a summary for compaction",
    "You are keeping a dream diary": "a dream diary",
    "Current model identity: ": "a single answer",
}
RUNTIME = re.compile(r"Runtime: agent=\S+ \| session=(?P<key>\S.*?)(?: \| sessionId=(?P<id>\S+))? \| host=\S.*")
SYSTEM_END = "<!-- /openclaw:"  # begins the mark behind the last part of the system text
STAMP = re.compile(r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)? [^\]\n]{1,40}\] ")
INTERNAL_KEY = re.compile(r"agent:[^:]+:(cron|subagent|acp|boot|helper|hook|internal-session-effects)(?::|\Z)")
BLOCK_BEGIN = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
BLOCK_END = "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
SUMMARY = "The conversation history before this point was compacted into the following summary:"

# The client's own words in a user's message. These go on with what a user asked for:
GOES_ON = (
    "Continue the current task from the existing transcript",
    "[Queued user message",
    "<turn_aborted>",
    "The previous attempt did not produce",
    "A background task completed",
    "This turn ended before a reply",
)
# These begin an errand; the first ones may stand behind a time stamp too:
MARKED_ERRANDS = ("[OpenClaw heartbeat poll]", "[Subagent Context]", "[cron:")
TOLD_ERRANDS = (
    "Follow the heartbeat monitor",
    "A scheduled reminder has been triggered",
    "Pre-compaction memory flush",
)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the client's Runtime line says of the session: its key, and its id where it has one."""

    key: str
    id: str | None


class OpenClaw:
    """OpenClaw's habits."""

    def recognises(self, messages: Sequence[Message]) -> bool:
        """Whether the system text begins as this client writes it; users write none."""
        return _system(messages).lstrip().startswith((*AGENT, *ERRANDS))

    def spoken(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages without the internal block and the Runtime line, which are written afresh each time."""
        kept = list(messages[:-1] if messages and is_internal_block(messages[-1]) else messages)
        first = _first_user(kept)
        if first is not None:
            words, line = _cut(kept[first])
            if line is not None:
                kept[first] = kept[first].with_text(words)
        return tuple(kept)

    def heard(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Tool results, and users' words without their time stamps; nothing the client said itself."""
        return tuple(
            _unstamped(item)
            for item in messages
            if item.role is not Role.USER or not is_clients_own(_without_stamp(item.text), stamped=_is_stamped(item))
        )

    def session(self, messages: Sequence[Message]) -> tuple[str, str] | None:
        """The session id of the Runtime line, or its key where an automation has no id."""
        runtime = runtime_of(messages)
        return None if runtime is None else (runtime.id or runtime.key, "the Runtime line")

    def kind(self, messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[TurnKind, str]:
        """Main is what has tools, a session of a user's, and a user's words as the newest; all else is side."""
        if not tools:
            begun = _system(messages).lstrip()
            errand = next((what for text, what in ERRANDS.items() if begun.startswith(text)), None)
            return TurnKind.SIDE, "has no tools" if errand is None else f"has no tools, and asks for {errand}"
        runtime = runtime_of(messages)
        if runtime is None:
            return TurnKind.SIDE, "has no Runtime line"
        internal = INTERNAL_KEY.match(runtime.key)
        if internal is not None:
            return TurnKind.SIDE, f"its session key is the client's own ({internal[1]})"
        return _kind_by_words(self.spoken(messages))


def runtime_of(messages: Sequence[Message]) -> Runtime | None:
    """The Runtime line where the client puts it: the end of the system text, else of the first user message."""
    found = RUNTIME.fullmatch(_last_line(_system(messages)))
    first = _first_user(messages)
    if found is None and first is not None:
        found = _cut(messages[first])[1]
    return None if found is None else Runtime(found["key"], found["id"])


def is_internal_block(item: Message) -> bool:
    """Whether the message is the client's notes to the model and nothing else."""
    text = item.text.strip()
    return item.role is Role.USER and text.startswith(BLOCK_BEGIN) and text.endswith(BLOCK_END)


def is_clients_own(words: str, *, stamped: bool) -> bool:
    """Whether these words in a user's message, its time stamp aside, are the client's."""
    if not stamped and (words.startswith(TOLD_ERRANDS) or words.startswith(SUMMARY)):
        return True
    return words.startswith((*GOES_ON, *MARKED_ERRANDS))


def _kind_by_words(spoken: Sequence[Message]) -> tuple[TurnKind, str]:
    newest = next((item for item in reversed(spoken) if item.role is Role.USER), None)
    if newest is None:
        return TurnKind.SIDE, "has no user's message"
    stamped, words = _is_stamped(newest), _without_stamp(newest.text)
    if words.startswith(MARKED_ERRANDS) or (not stamped and words.startswith(TOLD_ERRANDS)):
        return TurnKind.SIDE, f"the client's own errand ({words[:24].rstrip()}...)"
    if words.startswith(GOES_ON):
        return TurnKind.MAIN, "has tools, and the client goes on with a user's turn"
    if stamped:
        return TurnKind.MAIN, "has tools and a user's time stamp"
    if words.startswith(SUMMARY):
        return TurnKind.MAIN, "has tools, and goes on after a compaction"
    return TurnKind.SIDE, "its newest message has no user's time stamp"


def _system(messages: Sequence[Message]) -> str:
    """The system text before anybody speaks; a developer's counts as one."""
    texts = []
    for item in messages:
        if item.role is not Role.SYSTEM:
            break
        texts.append(item.text)
    return "\n".join(texts)


def _last_line(system: str) -> str:
    before, mark, after = system.rpartition(SYSTEM_END)
    is_end = mark and after.rstrip().endswith("-->") and "\n" not in after.rstrip()
    return (before if is_end else system).rstrip().rpartition("\n")[2]


def _first_user(messages: Sequence[Message]) -> int | None:
    return next((at for at, item in enumerate(messages) if item.role is Role.USER), None)


def _cut(item: Message) -> tuple[str, re.Match[str] | None]:
    """The message's text without the Runtime line, and the line: a part of its own, or a last paragraph."""
    parts = [part.text for part in item.content if isinstance(part, TextPart)]
    if not parts:
        return "", None
    before, gap, last = parts[-1].rpartition("\n\n")
    line = RUNTIME.fullmatch(last.rstrip()) if gap or not before else None
    return "".join([*parts[:-1], before]) if line is not None else item.text, line


def _is_stamped(item: Message) -> bool:
    return STAMP.match(item.text) is not None


def _without_stamp(text: str) -> str:
    """The text without the client's time stamp; one typed behind it stays."""
    return STAMP.sub("", text, count=1) if STAMP.match(text) else text


def _unstamped(item: Message) -> Message:
    return item.with_text(_without_stamp(item.text)) if item.role is Role.USER and _is_stamped(item) else item
