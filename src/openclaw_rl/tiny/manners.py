"""Wishes about how a reply is written: its style, its first words and its last words, and for which tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from openclaw_rl.tiny import wishes
from openclaw_rl.tiny.styles import Style, follows, has_markup


class TaskKind(StrEnum):
    """The kind of request that a reply answers."""

    SOLVE = "solve"
    GRADE = "grade"
    COMMENT = "comment"
    THANKS = "thanks"
    FILED = "filed"  # a file has been changed


class Aspect(StrEnum):
    """The aspect of a reply that a wish is about."""

    STYLE = "style"
    FIRST = "first"
    LAST = "last"


WORK = (TaskKind.SOLVE, TaskKind.GRADE, TaskKind.COMMENT)  # replies that have a style
_PLACE = {
    TaskKind.SOLVE: ("In solutions", "For solutions", "When you solve a problem", "When a problem is to be solved"),
    TaskKind.GRADE: ("In grades", "For grades", "When you grade", "When work is to be graded"),
    TaskKind.COMMENT: ("In comments", "For comments", "When you comment", "When a comment is wanted"),
    TaskKind.THANKS: ("After thanks", "When the user says thanks", "When you are thanked", "In replies to thanks"),
    TaskKind.FILED: ("After file changes", "When a file is done", "When you have changed a file", "In file reports"),
}
_GREETS = (
    "Hello", "Hi", "Good morning", "Welcome", "Okay", "Hey", "Greetings", "Good day", "Look here", "Listen", "Dear me",
    "Right", "Very well", "Good evening", "Oh yes", "Attention",
)  # fmt: skip
_PARTINGS = (
    "Bye for now", "See you soon", "Take care", "That is all", "Any questions", "Best wishes", "Until next time",
    "Stay curious", "Ask me any time", "Over and out", "End of reply", "Yours truly", "So long", "All the best",
    "Talk to you later", "Have a good day",
)  # fmt: skip
_WHOM = (
    "",
    "",
    " there",
    " friend",
    " my friend",
    " everyone",
    " dear student",
    " team",
    " boss",
    " again",
    " you two",
)
_STOPS = ("!", ".", "!", "?")
_FIRST_FRAMES = (
    'Please begin with "{words}"', 'Start with "{words}"', 'I want it to begin with "{words}"',
    'You forgot to begin with "{words}"', 'Say "{words}" first', 'Always begin with "{words}"',
    'Put "{words}" at the beginning', 'Again, and begin with "{words}"', '"{words}" should come first',
    'Redo it and open with "{words}"', 'I like it when you begin with "{words}"',
)  # fmt: skip
_LAST_FRAMES = (
    'Please end with "{words}"', 'Finish with "{words}"', 'I want it to end with "{words}"',
    'You forgot to end with "{words}"', 'Say "{words}" at the end', 'Always close with "{words}"',
    'Put "{words}" at the end', 'Again, and end with "{words}"', '"{words}" should come last',
    'Redo it and close with "{words}"', 'I like it when you end with "{words}"',
)  # fmt: skip
_HELD_OUT_FIRST = ('Could you open your reply with "{words}"', 'It needs "{words}" in front')
_HELD_OUT_LAST = ('Could you finish your reply with "{words}"', 'It needs "{words}" behind it')
_FIRST_HINTS = ('Begin the reply with "{words}"', 'Start with "{words}"', 'The reply should begin with "{words}"')
_LAST_HINTS = ('End the reply with "{words}"', 'Finish with "{words}"', 'The reply should end with "{words}"')


@dataclass(frozen=True, slots=True)
class Wish:
    """One wish. `value` is a style's name or the words themselves; without a `scope` it is for every kind of work."""

    aspect: Aspect
    value: str
    scope: TaskKind | None = None

    @property
    def style(self) -> Style | None:
        """The requested style; None if the wish is not about style."""
        return Style(self.value) if self.aspect is Aspect.STYLE else None

    def applies(self, kind: TaskKind) -> bool:
        """Whether replies of this kind should follow the wish."""
        return kind in WORK if self.scope is None else kind is self.scope

    def holds(self, text: str) -> bool:
        """Whether a reply follows the wish, by a strict rule."""
        if self.style is not None:
            return follows(text, self.style)
        said = text.strip()
        return said.startswith(self.value) if self.aspect is Aspect.FIRST else said.endswith(self.value)

    def correction(self, rng: Random, *, held_out: bool = False) -> str:
        """What the user says after a reply that does not follow the wish."""
        if self.style is not None:
            return wishes.correction(self.style, rng, held_out=held_out)
        if self.aspect is Aspect.FIRST:
            frames = _HELD_OUT_FIRST if held_out else _FIRST_FRAMES
        else:
            frames = _HELD_OUT_LAST if held_out else _LAST_FRAMES
        return _ended(rng.choice(frames).format(words=self.value))

    def hint(self, rng: Random) -> str:
        """The wish in the words of a hint, with its scope if it has one."""
        if self.style is not None:
            said = wishes.wish_hint(self.style, rng)
        else:
            said = _ended(
                rng.choice(_FIRST_HINTS if self.aspect is Aspect.FIRST else _LAST_HINTS).format(words=self.value)
            )
        return said if self.scope is None else f"{rng.choice(_PLACE[self.scope])}: {said}"

    def stated(self, kind: TaskKind, rng: Random) -> str:
        """The hint that a judge writes if a reply of this kind does not follow the wish."""
        if self.style is not None:
            said = wishes.stated_wish(self.style, rng)
        else:
            said = _ended((_FIRST_HINTS if self.aspect is Aspect.FIRST else _LAST_HINTS)[0].format(words=self.value))
        return f"{_PLACE[kind][0]}: {said}"

    def is_stated(self, hint: str, kind: TaskKind) -> bool:
        """Whether a hint states the wish for this kind, in words that a judge was taught."""
        place, _, said = hint.strip().partition(": ")
        if place != _PLACE[kind][0]:
            return False
        return wishes.states(said, self.style) if self.style is not None else f'"{self.value}"' in said


@dataclass(frozen=True, slots=True)
class Manner:
    """What all wishes together ask of one kind of reply."""

    style: Style | None = None
    first: str = ""
    last: str = ""

    def dressed(self, text: str) -> str:
        """The text after the first words and before the last words; in paragraphs if it has markup."""
        between = "\n\n" if has_markup(text) else " "
        return between.join(part for part in (self.first, text, self.last) if part)


def place_of(kind: TaskKind) -> str:
    """How a judge's hint about replies of this kind begins, without the colon."""
    return _PLACE[kind][0]


def manner(given: Iterable[Wish], kind: TaskKind) -> Manner:
    """What wishes, in the order in which they were given, ask of a kind of reply.

    Of several wishes about the same aspect the last counts.
    """
    found = {wish.aspect: wish for wish in given if wish.applies(kind)}
    style, first, last = (found.get(aspect) for aspect in (Aspect.STYLE, Aspect.FIRST, Aspect.LAST))
    return Manner(
        style=style.style if style else None, first=first.value if first else "", last=last.value if last else ""
    )


def words_first(rng: Random) -> str:
    """Words to begin a reply with."""
    return rng.choice(_GREETS) + rng.choice(_WHOM) + rng.choice(_STOPS)


def words_last(rng: Random) -> str:
    """Words to end a reply with."""
    return rng.choice(_PARTINGS) + rng.choice(_WHOM) + rng.choice(_STOPS)


def some_wish(rng: Random, kind: TaskKind, *, other_than: Style | None = None) -> Wish:
    """A wish that a user may have about replies of this kind; not for the style `other_than`."""
    share = rng.random()
    if kind in WORK and share < 0.7:
        return Wish(Aspect.STYLE, rng.choice([style for style in WISHED if style is not other_than]))
    scope = None if kind in WORK else kind
    if share < 0.85 if kind in WORK else share < 0.5:
        return Wish(Aspect.FIRST, words_first(rng), scope)
    return Wish(Aspect.LAST, words_last(rng), scope)


WISHED = (Style.NATURAL,) * 5 + (Style.DETAILED,) * 3 + (Style.FRIENDLY,) * 3 + (Style.AI,)


def several(rng: Random, count: int) -> list[Wish]:
    """At most `count` wishes with scopes that do not contradict each other, in random order."""
    places = [(aspect, kind) for kind in TaskKind for aspect in Aspect if aspect is not Aspect.STYLE or kind in WORK]
    made = []
    for aspect, kind in rng.sample(places, min(count, len(places))):
        if aspect is Aspect.STYLE:
            made.append(Wish(aspect, rng.choice(WISHED), kind))
        else:
            made.append(Wish(aspect, words_first(rng) if aspect is Aspect.FIRST else words_last(rng), kind))
    return made


def _ended(text: str) -> str:
    """The sentence with a full stop, unless it ends with quoted words that end a sentence."""
    return text if re.search(r'[.!?]"$', text) else f"{text}."
