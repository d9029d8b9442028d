"""The users of bench-transfer: each has one wish, words that nobody was taught, and problems of one world."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from random import Random

from openclaw_rl.core.hint import Hint, hinted
from openclaw_rl.core.message import Role, message
from openclaw_rl.evals.people.users import Check
from openclaw_rl.tiny import world as bundled
from openclaw_rl.tiny.worlds import WORLDS, talks, world
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldWish, hints
from openclaw_rl.tiny.worlds.ways import holds
from openclaw_rl.tiny.worlds.world import World, first, last, way

BUNDLED = "bundled"
MODELS = (BUNDLED, *(name for name, made in WORLDS.items() if not made.by_kind))
FIRST, LATE = "first", "late"
PEOPLE = {FIRST: "transfer_words.toml", LATE: "transfer_words_late.toml"}  # what they say, each by an author of its own
LONGEST = 700  # characters; no honest reply of these worlds is longer
ABOUT_LENGTH = (ReplyFormat.SHORT, ReplyFormat.DETAILED)
NEVER_ENDS = "in the end?"  # questions of the bundled model's kind that nobody corrects
_STYLES = {ReplyFormat.PLAIN: bundled.Style.NATURAL, ReplyFormat.FRIENDLY: bundled.Style.FRIENDLY}
Tell = Callable[[str, int, str], None]  # what was said, the right score, the right hint


@dataclass(frozen=True, slots=True)
class Asked:
    """A problem as it is put to the model, what is right, and which answer a reply gives."""

    opening: str
    answer: str
    given: Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a user's problems come from, held out or not, and how a reply is held against a wish."""

    problem: Callable[[Random, bool], Asked]
    holds: Callable[[str, WorldWish], bool]


def _tell_nobody(said: str, score: int, hint: str) -> None:
    """The judge hears for itself."""


@dataclass(frozen=True, slots=True)
class Errand:
    """One session's problem, as `evals.users.Task` wants it."""

    asked: Asked
    opening: str
    user: Visitor
    words: Random

    def check(self, reply: str) -> Check:
        """The wish and the answer by the world's strict rules."""
        return Check(
            follows=self.user.ground.holds(reply, self.user.want),
            right=self.asked.given(reply) == self.asked.answer,
            sane=0 < len(reply.strip()) <= LONGEST,
        )

    def answer(self, reply: str, check: Check) -> str:
        """A wrong answer is complained about first, then the wish is said; `tell` hears what either means."""
        words = said_in(self.user.language, self.user.people)
        if not check.right:
            given = self.asked.given(reply) or "that"
            text = self.words.choice(words["wrong"]).format(said=given, answer=self.asked.answer)
            self.user.tell(text, -1, "")
        elif not check.is_met:
            text = wished(self.user.want, self.user.language, self.words, self.user.people)
            self.user.tell(text, -1, hint_for(self.user.want))
        else:
            text = self.words.choice(words["thanks"])
            self.user.tell(text, 1, "")
        return text


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody with one wish, who speaks as one of these `people`. `hints` are put beside every request: what the base
    model does when it is told them.
    """

    name: str
    want: WorldWish
    language: str
    seed: int
    ground: Ground
    never: Ground  # problems of the kind that nobody corrects
    tell: Tell = field(default=_tell_nobody, compare=False)
    hints: tuple[str, ...] = ()
    people: str = FIRST

    @property
    def wish(self) -> str:
        """The wish in words for a report."""
        return f"{self.want.place}: {self.want.value}"

    @property
    def is_about_length(self) -> bool:
        """Whether the wish changes how long a reply should be."""
        return self.want.way in ABOUT_LENGTH

    def task(self, session: int, *, held_out: bool = False) -> Errand:
        """A fresh problem; the same number gives the same one and the same words."""
        words = Random(f"{self.name} {self.seed} {session} {held_out}")
        asked = self.ground.problem(words, held_out)
        opening = asked.opening
        if self.hints:
            opening = hinted((message(Role.USER, opening),), Hint(" ".join(self.hints)))[0].text
        return Errand(asked, opening, self, words)

    def elsewhere(self) -> Visitor:
        """The same user with the kind of problem that nobody corrects."""
        return replace(self, name=f"{self.name}-never", ground=self.never)

    def told(self, *hints: str) -> Visitor:
        """The same user, whose wish stands as a hint after each request, or these hints."""
        return replace(self, name=f"{self.name}-told", hints=hints or (hint_for(self.want),))


@lru_cache
def _words(people: str) -> dict[str, dict[str, list[str]]]:
    return tomllib.loads(Path(__file__).with_name(PEOPLE[people]).read_text("utf-8"))


def said_in(language: str, people: str = FIRST) -> dict[str, list[str]]:
    """What users say in a language."""
    return _words(people)[language]


def wished(want: WorldWish, language: str, words: Random, people: str = FIRST) -> str:
    """The wish in words that no judge was taught."""
    return words.choice(said_in(language, people)[want.way or want.place]).format(words=want.value)


def hint_for(want: WorldWish) -> str:
    """The wish as a judge that heard it right would put it."""
    text = hints()[want.way or want.place][0].format(words=want.value)
    text = f"In {want.scope}: {text}" if want.scope else text
    return text if want.way is not None or want.value[-1] in ".!?" else f"{text}."


def users_of(model: str, seed: int, tell: Tell = _tell_nobody, people: str = FIRST) -> list[Visitor]:
    """Everybody who visits a model."""
    if model == BUNDLED:
        wishes = (way(ReplyFormat.PLAIN), way(ReplyFormat.FRIENDLY), first("Good morning!"), last("Any questions?"))
        grounds = _bundled_ground(is_never=False), _bundled_ground(is_never=True)
        return [Visitor(_name(wish, "en"), wish, "en", seed, *grounds, tell=tell, people=people) for wish in wishes]
    made = world(model)
    found = []
    for index, wish in enumerate(made.wishes):
        language = made.languages[index % len(made.languages)]
        kinds = (wish.scope,) if wish.scope else made.taught
        grounds = _made_ground(made, kinds, language), _made_ground(made, (made.never_corrected,), language)
        found.append(Visitor(_name(wish, language), wish, language, seed, *grounds, tell=tell, people=people))
    return found


def stranger(seed: int) -> Visitor:
    """Somebody who wants plain sentences from the bundled model for problems that none of its recipes has: bought,
    and some given away. It solves them, but makes mistakes when it is told the wish.
    """
    corrected, never = (Ground(problem, _bundled_holds) for problem in (_strange, _simpler))
    return Visitor("gives", way(ReplyFormat.PLAIN), "en", seed, corrected, never)


def _strange(rng: Random, held_out: bool) -> Asked:
    who, to = rng.choice(("Mia", "Ivan", "Sara", "Tom", "Lena", "Ada")), rng.choice(("David", "Olga", "Ned"))
    things = rng.choice(("pens", "shirts", "books", "cups") if held_out else ("coins", "cards", "keys", "balls"))
    has, buys = rng.randint(3, 9), rng.randint(2, 8)
    gives = rng.randint(1, min(9, has + buys - 1))
    asked = f"{who} has {has} {things}. {who} buys {buys} more and gives {gives} of them to {to}. "
    return Asked(f"{asked}How many {things} does {who} have left?", str(has + buys - gives), _last_number)


def _simpler(rng: Random, held_out: bool) -> Asked:
    """What is never corrected: the same without giving anything away, in words that the model knows less well."""
    who, things = rng.choice(("Mia", "Ivan", "Sara", "Tom", "Lena")), rng.choice(("pens", "shirts", "books", "cups"))
    has, more = rng.randint(3, 9), rng.randint(2, 8)
    gets = rng.choice(("gets", "buys", "finds"))
    asked = f"{who} has {has} {things} and {gets} {more} more. How many {things} does {who} have?"
    return Asked(asked, str(has + more), _last_number)


def _last_number(reply: str) -> str | None:
    found = re.findall(r"\d+", reply)
    return found[-1] if found else None


def _name(wish: WorldWish, language: str) -> str:
    kind = f"{wish.scope}-{wish.place}" if wish.scope else (wish.way or wish.place).value
    return kind if language == "en" else f"{kind}-{language}"


def _made_ground(made: World, kinds: tuple[str, ...], language: str) -> Ground:
    def problem(rng: Random, held_out: bool) -> Asked:
        found = made.problem(rng, kinds=kinds, language=language, held_out=held_out)
        return Asked(talks.request(found, rng), found.answer, found.answer_in)

    return Ground(problem, lambda reply, wish: holds(reply, wish, language))


def _bundled_ground(*, is_never: bool) -> Ground:
    """Problems of the toy world: what is gained and lost again is the kind never corrected."""

    def problem(rng: Random, held_out: bool) -> Asked:
        while True:
            found = bundled.problem(rng, held_out=held_out)
            if found.question.endswith(NEVER_ENDS) is is_never:
                return Asked(bundled.request(found, rng), found.answer, bundled.answer_in)

    return Ground(problem, _bundled_holds)


def _bundled_holds(reply: str, wish: WorldWish) -> bool:
    style = _STYLES.get(wish.way) if wish.way else None
    return bundled.follows(reply, style) if style else holds(reply, wish)
