"""Lines that a client writes around each of its owner's messages: known since messages of a conversation share them.

Nobody begins two different messages with the same lines, apart from numbers in them; a program does. Messages are
compared as they were sent and as they are in a history. A frame that was found is known in other conversations, too.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise

from openclaw_rl.core.message import Json

LEAST_FRAME = 12  # letters of shared lines; fewer a person may well write twice
LEAST_ALONE = 24  # letters of a single shared line by which a frame is known in other conversations
MOST_LETTERS, MOST_LINES = 8_000, 200  # of a message that is compared
MOST_SENT, MOST_SESSIONS = 6, 1_000  # messages of a session that are kept as they were sent, and sessions
MOST_FRAMES = 32  # of a key
LEAST_LABEL, MOST_LABEL = 6, 60  # letters
LEAST_ALIKE = 2  # this many messages with a frame show that one without it was written by another author
STAMP_NUMBERS = 3  # of a date or a time in brackets
COMPARED = 512  # cached pairs and lines of messages: a session's are compared at each request
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_STAMP = re.compile(r"\s*[\[(](?P<inside>[^\[\]()\n]{4,60})[\])]:?\s+(?=\S)")


@dataclass(frozen=True, slots=True)
class Frame:
    """The first and the last of the lines before words, or after them."""

    first: str
    last: str
    is_head: bool


@dataclass(frozen=True, slots=True)
class FramedText:
    """A message: the owner's words, empty if it is uncertain which they are, and the frame around them."""

    words: str
    frames: tuple[Frame, ...] = ()


class FrameMemory:
    """What was sent recently, and the frames that were found. One object for all requests, on one event loop."""

    def __init__(self) -> None:
        self._sent: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._frames: OrderedDict[str, list[Frame]] = OrderedDict()
        self._stamped: OrderedDict[str, None] = OrderedDict()  # keys with a client that puts the time before words

    @property
    def held(self) -> int:
        """How many texts and frames are in memory."""
        listed = [*self._sent.values(), *self._frames.values()]
        return sum(len(each) for each in listed) + len(self._stamped)

    def let_go(self) -> None:
        """Removes everything from memory."""
        for held in (self._sent, self._frames, self._stamped):
            held.clear()
        _shared.cache_clear()
        _lines.cache_clear()

    def enter(self, session: str, text: str) -> None:
        """Records a message as it was sent."""
        if len(text) <= MOST_LETTERS:
            sent = self._sent.get(session, ())
            self._sent[session] = (*(each for each in sent if each != text), text)[-MOST_SENT:]
            self._sent.move_to_end(session)
            while len(self._sent) > MOST_SESSIONS:
                self._sent.popitem(last=False)

    def words(self, space: str, session: str, text: str, history: Sequence[str]) -> str:
        """The text without a frame that other messages of its conversation share, or that is known."""
        others = (*reversed(self._sent.get(session, ())), *reversed(history[-MOST_SENT:]))
        others = tuple(each for each in others if each.strip() != text.strip())
        bare = without_stamp(text)
        if bare != text and (space in self._stamped or any(without_stamp(each) != each for each in others)):
            text, self._stamped[space] = bare, None
            while len(self._stamped) > MOST_SESSIONS:
                self._stamped.popitem(last=False)
        inside = from_object(text, others)
        if inside is not None:
            return inside
        found = unframed(text, [without_stamp(each) for each in others])
        if found is None:
            return _without_known(text, self._frames.get(space, ()))
        self._learn(space, found.frames)
        return found.words

    def lacks_frame(self, session: str, text: str) -> bool:
        """Whether most messages of a session share lines as they were sent, or are objects, and this one differs."""
        others = [each for each in self._sent.get(session, ()) if each.strip() != text.strip()]
        framed = [each for at, each in enumerate(others) if _is_like(each, [*others[:at], *others[at + 1 :]])]
        return len(framed) >= LEAST_ALIKE and 2 * len(framed) > len(others) and not _is_like(text, framed)

    def _learn(self, space: str, frames: Sequence[Frame]) -> None:
        held = self._frames.setdefault(space, [])
        known = [each for each in frames if each.first != each.last or len(each.first) >= LEAST_ALONE]
        held += [each for each in known if each not in held]
        del held[:-MOST_FRAMES]
        self._frames.move_to_end(space)
        while len(self._frames) > MOST_SESSIONS:
            self._frames.popitem(last=False)


def without_stamp(text: str) -> str:
    """The text without a date and a time in brackets at its beginning."""
    found = _STAMP.match(text)
    is_stamp = found is not None and len(re.findall(r"\d+", found["inside"])) >= STAMP_NUMBERS
    return text[found.end() :] if found is not None and is_stamp else text


def _is_like(text: str, others: Sequence[str]) -> bool:
    """Whether a message shares a frame with one of these, or its fields."""
    return any(unframed(text, [each]) is not None or from_object(text, [each]) is not None for each in others)


def from_object(text: str, others: Sequence[str]) -> str | None:
    """The words in a message that is a JSON object with the same fields as another message of its conversation.

    They are its only text with a space in it; empty if there are several, or none. None for any other message.
    """
    mine = _object(text)
    if mine is None or not any((_object(each) or {}).keys() == mine.keys() for each in others):
        return None
    said = [value for value in mine.values() if isinstance(value, str) and " " in value.strip()]
    return said[0] if len(said) == 1 else ""


def _object(text: str) -> dict[str, Json] | None:
    bare = text.strip()
    if len(bare) > MOST_LETTERS or not (bare.startswith("{") and bare.endswith("}")):
        return None
    try:
        held: Json = json.loads(bare)
    except (ValueError, RecursionError):
        return None
    return held if isinstance(held, dict) and held else None


def unframed(text: str, others: Sequence[str]) -> FramedText | None:
    """A message without the lines that it shares with others of its conversation that begin or end in the same way."""
    if len(text) > MOST_LETTERS:
        return None
    mine = _lines(text)
    if not 2 <= len(mine.keys) <= MOST_LINES:
        return None
    kept: list[tuple[frozenset[int], _Lines]] = []
    for other in others:
        theirs = _lines(other[: MOST_LETTERS + 1])
        shared = _shared(mine.keys, theirs.keys)
        # one of them may contain all of the other: then they are not two messages
        if shared and len(shared) not in (len(mine.keys), len(theirs.keys)):
            kept.append((shared, theirs))
    common = sorted(frozenset.intersection(*(shared for shared, _ in kept))) if kept else []
    ends = (bool(common) and common[0] == 0, bool(common) and common[-1] == len(mine.keys) - 1)
    if not any(ends) or sum(len(mine.keys[at]) for at in common) < LEAST_FRAME:
        return None
    if all(ends):
        return _between(mine, common, is_sure=len(kept) > 1)
    first, last = common[0], common[-1]
    if ends[1]:
        return FramedText(mine.between(0, first), (Frame(mine.keys[first], mine.keys[-1], is_head=False),))
    theirs = kept[0][1]
    after = theirs.between(theirs.keys.index(mine.keys[last]) + 1, None)
    words = _without_label(mine.between(last + 1, None), after)
    return FramedText(words, (Frame(mine.keys[0], mine.keys[last], is_head=True),))


@lru_cache(maxsize=COMPARED)
def _shared(keys: tuple[str, ...], theirs: tuple[str, ...]) -> frozenset[int]:
    """The lines of a message that another one has in the same order, if both begin or end alike."""
    if not 2 <= len(theirs) <= MOST_LINES or (keys[0] != theirs[0] and keys[-1] != theirs[-1]):
        return frozenset()
    blocks = SequenceMatcher(None, keys, theirs, autojunk=False).get_matching_blocks()
    return frozenset(block.a + step for block in blocks for step in range(block.size))


class _Lines:
    """A text's lines that are not empty, with keys by which they are compared: the numbers in a frame change."""

    def __init__(self, text: str) -> None:
        self._raw = text.split("\n")
        self._at = [at for at, line in enumerate(self._raw) if line.strip()]
        self.keys = tuple(_NUMBER.sub("0", self._raw[at].strip()) for at in self._at)

    def between(self, start: int, stop: int | None) -> str:
        """The text from one of them to before another."""
        held = self._at[start:stop]
        return "\n".join(self._raw[held[0] : held[-1] + 1]).strip() if held else ""


@lru_cache(maxsize=COMPARED)
def _lines(text: str) -> _Lines:
    return _Lines(text)


def _between(mine: _Lines, shared: Sequence[int], *, is_sure: bool) -> FramedText | None:
    """The words between two shared parts. If several parts are not shared, it is unknown which of them are the words.
    So it is if there is only one other message: its words may have been the same, and something else not.
    """
    gaps = [(one, two) for one, two in pairwise(shared) if two > one + 1]
    if not gaps:
        return None
    if len(gaps) > 1 or not is_sure:
        return FramedText("")
    before, after = gaps[0]
    head, tail = (mine.keys[0], mine.keys[before]), (mine.keys[after], mine.keys[-1])
    return FramedText(mine.between(before + 1, after), (Frame(*head, is_head=True), Frame(*tail, is_head=False)))


def _without_label(words: str, theirs: str) -> str:
    """The text after the last label that the other message has, too; all of it if there is none."""
    labels = {label for line in theirs.split("\n") if (label := _label(line))}
    lines = words.split("\n")
    at = next((at for at in range(len(lines) - 1, -1, -1) if _label(lines[at]) in labels), None)
    return words if at is None else "\n".join([lines[at][len(_label(lines[at])) :], *lines[at + 1 :]]).strip()


def _label(line: str) -> str:
    """The text before words on their line; empty if there is none."""
    label, colon, _ = line.partition(": ")
    return f"{label}{colon}" if colon and LEAST_LABEL <= len(label) <= MOST_LABEL else ""


def _without_known(text: str, frames: Sequence[Frame]) -> str:
    """The text without a frame that was around other conversations' messages."""
    if not frames or len(text) > MOST_LETTERS:
        return text
    for frame in reversed(frames):
        lines = _lines(text)
        keys = lines.keys
        if frame.is_head and keys[:1] == (frame.first,) and frame.last in keys[:-1]:
            text = lines.between(keys.index(frame.last) + 1, None)
        elif not frame.is_head and keys[-1:] == (frame.last,) and frame.first in keys[1:]:
            text = lines.between(0, len(keys) - 1 - keys[::-1].index(frame.first))
    return text
