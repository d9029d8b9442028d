"""The models that versions are damaged on: what is asked, what users wish for, and when a reply is right."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from openclaw_rl.errors import ConfigError
from openclaw_rl.tiny import world

IN_VAIN = 2_000  # requests drawn one after the other without a new one: there are no more
RARE = re.compile(r"together\?|get back\?|\bbuys\b.*\bmore\b")  # kinds of problems that nobody here ever corrects


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, whether a reply to it is right, whether it is of a kind that is never corrected, and its kind if that
    matters to a wish.
    """

    text: str
    is_right: Callable[[str], bool]
    is_rare: bool
    answer: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class WishOfField:
    """A user's wish: the hint that says so, whether a reply keeps to it, and the hints of `earlier` wishes.

    With a `kind` it is about requests of that kind alone.
    """

    name: str
    hint: str
    holds: Callable[[str], bool]
    earlier: tuple[str, ...] = ()
    kind: str = ""

    @property
    def told(self) -> str:
        """All that the user has wished for, as a teacher reads it."""
        return " ".join((*self.earlier, self.hint))


def after(first: WishOfField, then: WishOfField) -> WishOfField:
    """The wish of a user who has wished for something else before, and still does."""
    return WishOfField(
        f"{first.name}, then {then.name}",
        then.hint,
        lambda said: first.holds(said) and then.holds(said),
        (*first.earlier, first.hint),
        then.kind,
    )


@dataclass(frozen=True, slots=True)
class Field:
    """A model with its requests and wishes. `asked` draws a request, from those nobody was taught where `held_out`.

    The last of the wishes is that of a user who wished for the first one before.
    """

    name: str
    folder: Path
    asked: Callable[[Random, bool], Asked]
    wishes: tuple[WishOfField, ...]

    def some(self, source: str, count: int, *, held_out: bool, is_rare: bool | None) -> list[Asked]:
        """So many different requests of the corrected kinds, of the others, or of any; fewer if there are no more."""
        rng, found, again = Random(f"{self.name} {source}"), dict[str, Asked](), 0
        while len(found) < count and again < IN_VAIN:
            one = self.asked(rng, held_out)
            again += 1
            if one.text not in found and (is_rare is None or one.is_rare is is_rare):
                found[one.text], again = one, 0
        return list(found.values())


def bundled() -> Field:
    """The model that ships with the package, and the world it was taught."""
    rng = Random("wishes of bundled")
    wishes = [
        world.Wish(world.Aspect.STYLE, world.Style.NATURAL),
        world.Wish(world.Aspect.STYLE, world.Style.FRIENDLY),
        world.Wish(world.Aspect.STYLE, world.Style.DETAILED),
        world.Wish(world.Aspect.FIRST, "Good morning my friend!"),
        world.Wish(world.Aspect.LAST, "Stay curious!"),
    ]
    found = [WishOfField(str(wish.value), wish.hint(rng), wish.holds) for wish in wishes]
    return Field("bundled", world.bundled_model(), _bundled_problem, (*found, after(found[0], found[-1])))


def _bundled_problem(rng: Random, held_out: bool) -> Asked:
    problem = world.problem(rng, held_out=held_out)
    return Asked(
        world.request(problem, rng),
        lambda reply: world.is_right(problem, reply),
        RARE.search(problem.question) is not None,
        problem.answer,
    )


def named(name: str) -> Field:
    """`bundled`, or a made model by its world's name and its folder: NAME=FOLDER. Raises ConfigError."""
    if name == "bundled":
        return bundled()
    from benchmarks.damage_worlds import made

    world_name, _, folder = name.partition("=")
    if not folder:
        raise ConfigError(f"{name!r} names no folder", fix=f"write {name}=FOLDER, where its model lies")
    return made(world_name, Path(folder))
