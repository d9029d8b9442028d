"""A turn and what followed it, as the numbers that a classifier reads: its words and plain marks.

Nothing of what was read is kept, so there is nothing here to forget.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.core.message import Message, Role

MOST_WORDS = 64  # of what followed, from both ends if it is longer
MOST_CONTEXT = 40  # of the request and of the reply each
MARKS = ("upper", "title", "digit", "sign", "quoted", "asked", "replied", "single")
_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
_OPENS, _CLOSES = "\"“„«‹「『'‘", "\"”“»›」』'’"
_PAUSES = frozenset(".,;:!…。，！")
_MOST_LETTERS = 24


@dataclass(frozen=True, slots=True)
class TurnReading:
    """What followed a reply, word by word with marks, and the words of the request and of the reply.

    `places` are the positions of the words in `text`, which is what was said.
    """

    kind: str  # who spoke: user, tool, or error for a tool that reports one
    text: str
    words: tuple[str, ...]
    marks: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, int], ...]
    request: tuple[str, ...]
    reply: tuple[str, ...]


def reading(request: Sequence[Message], reply: Message, said: Sequence[Message]) -> TurnReading:
    """The reading of a turn. `request` contains the messages that the reply answered."""
    text = "\n".join(item.text for item in said)
    found = [(match.group(), match.start(), match.end()) for match in _WORD.finditer(text)]
    if len(found) > MOST_WORDS:
        found = found[: MOST_WORDS // 2] + found[-(MOST_WORDS - MOST_WORDS // 2) :]
    asked = _context(_last_asked(request))
    replied = _context(reply.text + "".join(f" {call.name} {call.arguments}" for call in reply.tool_calls))
    words = tuple(folded(word) for word, _, _ in found)
    kind = "user"
    if said and said[-1].role is Role.TOOL:
        kind = "error" if any(item.is_error for item in said) else "tool"
    return TurnReading(
        kind,
        text,
        words,
        _marks([word for word, _, _ in found], words, frozenset(asked), frozenset(replied)),
        tuple((start, end) for _, start, end in found),
        asked,
        replied,
    )


def plain_words(text: str) -> tuple[str, ...]:
    """The words of a text, without full stops, commas and exclamation marks."""
    return tuple(folded(word) for word in _WORD.findall(text) if word not in _PAUSES)


def folded(word: str) -> str:
    """The word in lower case, without the signs on its letters."""
    plain = unicodedata.normalize("NFKD", word.casefold().replace("’", "'"))
    return "".join(letter for letter in plain if not unicodedata.combining(letter))[:_MOST_LETTERS]


def _last_asked(request: Sequence[Message]) -> str:
    return next((item.text for item in reversed(request) if item.role is not Role.ASSISTANT), "")


def _context(text: str) -> tuple[str, ...]:
    found = _WORD.findall(text[:4000])
    if len(found) > MOST_CONTEXT:
        found = found[: MOST_CONTEXT // 2] + found[-(MOST_CONTEXT // 2) :]
    return tuple(folded(word) for word in found)


def _marks(
    words: Sequence[str], plain: Sequence[str], asked: frozenset[str], replied: frozenset[str]
) -> tuple[tuple[int, ...], ...]:
    made, is_open = [], False
    for word, said in zip(words, plain, strict=True):
        is_quote = word in _OPENS or word in _CLOSES
        if is_quote and word not in "'’":
            is_open = not is_open
        made.append(
            (
                int(len(word) > 1 and word.isupper()),
                int(word[:1].isupper() and not word.isupper()),
                int(word[:1].isdigit()),
                int(not word[:1].isalnum()),
                int(is_open or is_quote),
                int(said in asked),
                int(said in replied),
                int(len(word) == 1),
            )
        )
    return tuple(made)
