"""How far a history agrees with a served turn, even if not word for word: clients add tags to replies, remove reminders
from users' messages again, clear old results, and rename calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from openclaw_rl.collect.frames import without_stamp
from openclaw_rl.core.message import Message, Role

DISTINCT = 60  # letters of a reply that does not occur twice by accident
OPENING, SHORT = 40, 16  # letters with which a reply is searched for
LEAST_PART = 3  # letters of a user's message that are on separate lines within another
LEAST_INSERT = 12  # letters of text that was removed from a message again
LEAST_WITH_MORE = 16  # letters of a reply after which a client may write as much as it likes
_THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>\s*", re.DOTALL)
_TAG = re.compile(r"\s*(?:</?[\w|:-]{1,40}>|```|<\|?[\w-]{1,40}\|?>)\s*")
_MARKS = re.compile("[^0-9A-Za-z]+")
_ID = re.compile(r"\bcall_?[0-9a-f]{12}\d{1,3}\b")  # in the form that this server gives out


@dataclass(slots=True)
class Alignment:
    """How many messages both end with, how many of them word for word, and whether that is all of the history.

    `inserts` are texts that were in users' messages when they were sent, and are missing now. `by_id`: the reply made a
    call with an id that this server gave out.
    """

    size: int = 0
    exact: int = 0
    is_whole: bool = False  # all of the history, and of the turn
    covers: bool = False  # all of the history
    by_id: bool = False
    inserts: list[str] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """Whether all of it agrees word for word."""
        return self.size == self.exact


def align(theirs: Sequence[Message], stop: int, mine: Sequence[Message]) -> Alignment:
    """Compares a history up to `stop` with a turn's conversation, its reply last, both from their ends."""
    found, last, gone = Alignment(), len(mine), list[str]()
    while found.size < min(stop, last - len(gone)):
        at = last - 1 - found.size - len(gone)
        their, own = theirs[stop - 1 - found.size], mine[at]
        if their.role is own.role and _is_alike(their, own, found):
            found.size += 1
        elif found.size and _is_left_out(their, mine, at):
            gone.append(own.text.strip())
        else:
            break
    found.inserts += [text for text in gone if len(text) >= LEAST_INSERT]
    found.exact -= bool(gone) and found.is_exact  # it was not word for word what was said
    found.covers = found.size == stop
    found.is_whole = found.covers and found.size + len(gone) == last
    return found


def _is_left_out(their: Message, mine: Sequence[Message], at: int) -> bool:
    """Whether a user message was sent and not kept: the message before it is in its place, word for word."""
    before = mine[at - 1] if at else None
    return (
        mine[at].role is Role.USER
        and before is not None
        and before.role is their.role is not Role.ASSISTANT
        and before.text.strip() == their.text.strip()
    )


def call_key(name: str | None, function: str = "") -> str:
    """A call's id without the marks that some clients remove; empty if it is the function's name, as many may be."""
    if not name or (function and function in name) or name.startswith("functions."):
        return ""
    return _MARKS.sub("", name)


def quoted_keys(text: str) -> tuple[str, ...]:
    """The ids of calls that a reply contains as text, if a client writes calls in words."""
    return tuple(dict.fromkeys(call_key(name) for name in _ID.findall(text))) if "call" in text else ()


def openings(text: str) -> tuple[str, ...]:
    """The text with which a reply is searched for: its beginning, with and without a tag at its end."""
    bare = said(text)
    return tuple(dict.fromkeys(each[:size] for each in (bare, _untagged(bare)) for size in (OPENING, SHORT) if each))


def said(text: str) -> str:
    """A reply's words without its thoughts."""
    return _THOUGHT.sub("", text).strip() if "<think" in text else text.strip()


def is_same_reply(theirs: Message, mine: Message) -> bool:
    """Whether both are one reply: by the id of a call, or by its words, more or less a tag."""
    if _shares_call(theirs, mine):
        return True
    their, own = said(theirs.text), said(mine.text)
    if not own and not their:
        return bool(mine.tool_calls) and _calls(theirs) == _calls(mine)
    if their == own or (len(own) >= LEAST_WITH_MORE and _folded(their) == _folded(own)):
        return len(own) >= LEAST_WITH_MORE or _calls(theirs) == _calls(mine)
    return bool(own) and bool(their) and _is_more(their, own)


def part_of(theirs: str, mine: str) -> str | None:
    """The part of `mine` that is missing in `theirs`, if `theirs` is whole on separate lines of it, or after a label
    that ends in a colon, or after a date and time in brackets; else None.
    """
    their, own = theirs.strip(), mine.strip()
    if len(their) < LEAST_PART or len(their) >= len(own):
        return None
    if without_stamp(own).strip() == their:
        return "\x00"
    at = own.rfind(their)
    while at >= 0:
        end = at + len(their)
        if (at == 0 or own[at - 1] in '\n>"' or own.endswith(": ", 0, at)) and (end == len(own) or own[end] in '\n<"'):
            return f"{own[:at]}\x00{own[end:]}"
        at = own.rfind(their, 0, at + len(their) - 1)
    return None


def _is_alike(their: Message, own: Message, found: Alignment) -> bool:
    if their.role is Role.ASSISTANT:
        if not is_same_reply(their, own):
            return False
        found.by_id = found.by_id or (found.size == 0 and _shares_call(their, own))
        found.exact += said(their.text) == said(own.text) and _calls(their) == _calls(own)
        return True
    if their.text.strip() == own.text.strip():
        found.exact += 1
        return True
    if their.role is Role.TOOL:  # results are cleared or cut later on
        key = call_key(own.tool_call_id)
        return bool(key) and call_key(their.tool_call_id) == key
    rest = part_of(their.text, own.text)
    if rest is not None:
        found.inserts += [each.strip() for each in rest.split("\x00") if len(each.strip()) >= LEAST_INSERT]
        return True
    return part_of(own.text, their.text) is not None


def _shares_call(theirs: Message, mine: Message) -> bool:
    """Whether both made a call with the same id; calls written as text must all agree, each with its name."""
    own = {call_key(call.id, call.name) for call in mine.tool_calls} - {""}
    if not own or any(call_key(call.id) in own for call in theirs.tool_calls):
        return bool(own)
    quoted = () if theirs.tool_calls else quoted_keys(theirs.text)
    return set(quoted) == own and all(call.name in theirs.text for call in mine.tool_calls)


def _calls(item: Message) -> list[tuple[str, str]]:
    return [(call.name, "".join(call.arguments.split())) for call in item.tool_calls]


def _is_more(longer: str, shorter: str) -> bool:
    """Whether one is the other with a tag, or with lines of the client's, at its end."""
    if len(longer) < len(shorter):
        return shorter.startswith(longer) and _TAG.fullmatch(shorter[len(longer) :]) is not None
    rest = longer[len(shorter) :]
    if not longer.startswith(shorter):
        return False
    if _TAG.fullmatch(rest):
        return True
    tag = _TAG.match(rest)
    after = rest[tag.end() - 1 :] if tag else rest
    return len(shorter) >= LEAST_WITH_MORE and (after.startswith("\n") or (tag is not None and "\n" in tag[0]))


def _folded(text: str) -> str:
    """Without what changes when a client writes an object again: the kind of quotation marks, and spaces."""
    return "".join(text.replace("'", '"').split())


def _untagged(text: str) -> str:
    end = text.rfind("<")
    if end <= 0:
        return text.removesuffix("```").rstrip()
    return text[:end].rstrip() if _TAG.fullmatch(text[end:]) else text
