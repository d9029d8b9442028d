"""The parts of synthetic worlds: problems, formats of a reply, wishes about it, and the words of a language."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files

from openclaw_rl.tiny.problems import is_one_in

HELD_OUT_IN = 8  # one problem in this many is kept out of training


class ReplyFormat(StrEnum):
    """The format of the body of a reply."""

    LIST = "list"
    MARKDOWN = "markdown"
    NUMBERED = "numbered"
    LABELLED = "labelled"
    SHORT = "short"
    PLAIN = "plain"
    DETAILED = "detailed"
    FRIENDLY = "friendly"


class WishPlace(StrEnum):
    """The part of a reply that a wish is about."""

    BODY = "body"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class WorldProblem:
    """One question with its answer and the step to it.

    `action` says what `equation` does ("add the 7 new eggs"). `conclusion` is a main clause without its full stop, and
    `result` its short form ("12 eggs"). The last match of `pattern` in a reply is the answer that the reply gives.
    """

    kind: str
    question: str
    answer: str
    action: str
    equation: str
    conclusion: str
    result: str
    pattern: str = r"\d+"
    language: str = "en"

    @property
    def is_held_out(self) -> bool:
        """Whether training must never see this problem: decided by the hash of its question."""
        return is_one_in(HELD_OUT_IN, self.question)

    def answer_in(self, text: str) -> str | None:
        """The answer that a reply gives after its thinking; None if it gives none."""
        found = re.findall(self.pattern, text.rsplit("</think>", 1)[-1])
        return str(found[-1]) if found else None

    def is_right(self, text: str) -> bool:
        """Whether the reply gives the problem's answer."""
        return self.answer_in(text) == self.answer


@dataclass(frozen=True, slots=True)
class WorldWish:
    """One wish: a format of the body, or the words to begin or to end with; for problems of the kind `scope` alone,
    or of any kind if that is empty.
    """

    place: WishPlace
    value: str
    scope: str = ""

    @property
    def way(self) -> ReplyFormat | None:
        """The requested format; None if the wish is not about the body."""
        return ReplyFormat(self.value) if self.place is WishPlace.BODY else None


@dataclass(frozen=True, slots=True)
class WorldManner:
    """What all wishes together ask of a reply: its format, and its first and last words, empty for none."""

    way: ReplyFormat
    first: str = ""
    last: str = ""

    def dressed(self, body: str) -> str:
        """The body with its first and last words; as paragraphs of their own if the body has several lines."""
        between = "\n\n" if "\n" in body else " "
        return between.join(part for part in (self.first, body, self.last) if part)


def manner(wishes: Iterable[WorldWish], default: ReplyFormat, kind: str = "") -> WorldManner:
    """What wishes, in the order in which they were given, ask of a reply to a problem of that kind.

    Of those for one place the last counts.
    """
    found = {wish.place: wish for wish in wishes if wish.scope in ("", kind)}
    body, first, last = (found.get(place) for place in (WishPlace.BODY, WishPlace.FIRST, WishPlace.LAST))
    return WorldManner(
        ReplyFormat(body.value) if body else default, first.value if first else "", last.value if last else ""
    )


@dataclass(frozen=True, slots=True)
class LanguageWords:
    """The words of one language: labels and frames of replies, and what users say."""

    name: str
    labels: Mapping[str, str]
    frames: Mapping[str, list[str]]
    warm: list[str]
    because: str
    welcome: list[str]
    thanks: list[str]
    wrong: list[str]
    ask: list[str]
    next: list[str]
    corrections: list[str]
    beside: list[str]
    like: Mapping[str, list[str]]
    blame: Mapping[str, list[str]]
    first: list[str]
    last: list[str]
    first_words: list[str]
    last_words: list[str]


@lru_cache
def tongue(code: str) -> LanguageWords:
    """The words of a language, given its two-letter code."""
    text = files("openclaw_rl.tiny.worlds").joinpath("sayings", f"{code}.toml").read_text("utf-8")
    return LanguageWords(**tomllib.loads(text))


@lru_cache
def hints() -> Mapping[str, list[str]]:
    """The texts of hints, by format and place of a wish. They are English, as a judge writes them."""
    text = files("openclaw_rl.tiny.worlds").joinpath("sayings", "hints.toml").read_text("utf-8")
    return tomllib.loads(text)
