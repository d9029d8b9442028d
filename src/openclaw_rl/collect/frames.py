"""Lines that a client writes around each of its owner's messages: known since messages of a conversation share them.

Nobody begins two different messages with the same lines, apart from numbers in them; a program does. What is compared
are messages as they were sent and as they stand in a history. A frame once found is known in other conversations, too.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

LEAST_FRAME = 12  # letters of shared lines; fewer a person may well write twice
LEAST_ALONE = 24  # letters of a single shared line by which a frame is known in other conversations
MOST_LETTERS, MOST_LINES = 8_000, 200  # of a message that is compared
MOST_SENT, MOST_SESSIONS = 4, 1_000  # messages of a session that are held as they were sent, and sessions
MOST_FRAMES = 32  # of a key
STAMP_NUMBERS = 3  # of a date or a time in brackets
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_STAMP = re.compile(r"\s*[\[(](?P<inside>[^\[\]()\n]{4,60})[\])]:?\s+(?=\S)")


@dataclass(frozen=True, slots=True)
class Frame:
    """The first and the last of the lines that stand before words, or after them."""

    first: str
    last: str
    is_head: bool


@dataclass(frozen=True, slots=True)
class FramedText:
    """A message: the owner's words, empty where it is in doubt which they are, and the frame around them."""

    words: str
    frames: tuple[Frame, ...] = ()


class FrameMemory:
    """What was sent of late, and the frames that were found. One object for all requests, on one event loop."""

    def __init__(self) -> None:
        self._sent: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._frames: OrderedDict[str, list[Frame]] = OrderedDict()
        self._stamped: OrderedDict[str, None] = OrderedDict()  # keys whose client puts the time before words

    @property
    def held(self) -> int:
        """How many texts and frames are held."""
        listed = [*self._sent.values(), *self._frames.values()]
        return sum(len(each) for each in listed) + len(self._stamped)

    def let_go(self) -> None:
        """Knows nothing any more."""
        for held in (self._sent, self._frames, self._stamped):
            held.clear()

    def enter(self, session: str, text: str) -> None:
        """Notes a message as it was sent."""
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
        for other in others:
            found = compared(text, without_stamp(other))
            if found is not None:
                self._learn(space, found.frames)
                return found.words
        return _without_known(text, self._frames.get(space, ()))

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


def compared(text: str, other: str) -> FramedText | None:
    """What of a message another one does not share, where both begin or end with the same lines; else None."""
    if max(len(text), len(other)) > MOST_LETTERS:
        return None
    mine, theirs = _Lines(text), _Lines(other)
    if min(len(mine.keys), len(theirs.keys)) < 2 or max(len(mine.keys), len(theirs.keys)) > MOST_LINES:
        return None
    is_head, is_tail = mine.keys[0] == theirs.keys[0], mine.keys[-1] == theirs.keys[-1]
    if not (is_head or is_tail):
        return None
    blocks = SequenceMatcher(None, mine.keys, theirs.keys, autojunk=False).get_matching_blocks()
    shared = [(block.a + step, block.b + step) for block in blocks for step in range(block.size)]
    if len(shared) in (len(mine.keys), len(theirs.keys)):  # one of them holds all of the other: no two messages
        return None
    if sum(len(mine.keys[at]) for at, _ in shared) < LEAST_FRAME:
        return None
    if is_head and is_tail:
        return _between(mine, [at for at, _ in shared])
    first, (last, their_last) = shared[0][0], shared[-1]
    if is_head:
        words = _without_label(mine.between(last + 1, None), theirs.between(their_last + 1, None))
        return FramedText(words, (Frame(mine.keys[0], mine.keys[last], is_head=True),))
    return FramedText(mine.between(0, first), (Frame(mine.keys[first], mine.keys[-1], is_head=False),))


class _Lines:
    """A text's lines that are not empty, with keys by which they are compared: the numbers in a frame change."""

    def __init__(self, text: str) -> None:
        self._raw = text.split("\n")
        self._at = [at for at, line in enumerate(self._raw) if line.strip()]
        self.keys = [_NUMBER.sub("0", self._raw[at].strip()) for at in self._at]

    def between(self, start: int, stop: int | None) -> str:
        """The text from one of them to before another."""
        held = self._at[start:stop]
        return "\n".join(self._raw[held[0] : held[-1] + 1]).strip() if held else ""


def _between(mine: _Lines, shared: Sequence[int]) -> FramedText | None:
    """The words between two shared parts; where several places are not shared, nobody knows which are the words."""
    gaps = [(one, two) for one, two in pairwise(shared) if two > one + 1]
    if len(gaps) != 1:
        return FramedText("") if gaps else None
    before, after = gaps[0]
    head, tail = (mine.keys[0], mine.keys[before]), (mine.keys[after], mine.keys[-1])
    return FramedText(mine.between(before + 1, after), (Frame(*head, is_head=True), Frame(*tail, is_head=False)))


def _without_label(words: str, theirs: str) -> str:
    """Words without the label that stands before the other message's, too."""
    size = next((at for at, (one, two) in enumerate(zip(words, theirs, strict=False)) if one != two), 0)
    line = words.partition("\n")[0]
    return words[line.rfind(": ", 0, size) + 2 :].strip() if ": " in line[:size] else words


def _without_known(text: str, frames: Sequence[Frame]) -> str:
    """The text without a frame that stood around other conversations' messages."""
    if not frames or len(text) > MOST_LETTERS:
        return text
    for frame in reversed(frames):
        lines = _Lines(text)
        keys = lines.keys
        if frame.is_head and keys[:1] == [frame.first] and frame.last in keys[:-1]:
            text = lines.between(keys.index(frame.last) + 1, None)
        elif not frame.is_head and keys[-1:] == [frame.last] and frame.first in keys[1:]:
            text = lines.between(0, len(keys) - 1 - keys[::-1].index(frame.first))
    return text
