"""Made models as fields of the damage benchmark: their worlds' problems, wishes and checks."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

from benchmarks.damage_fields import Asked, Field, WishOfField, after
from openclaw_rl.tiny.worlds import world
from openclaw_rl.tiny.worlds.talks import hint_of, request
from openclaw_rl.tiny.worlds.ways import holds
from openclaw_rl.tiny.worlds.world import World


def made(name: str, folder: Path) -> Field:
    """The model of a world, in this folder. Raises ConfigError for a world that there is not."""
    held, rng = world(name), Random(f"wishes of {name}")
    language = held.languages[0]
    wishes = tuple(
        WishOfField(wish.value, hint_of(wish, rng), partial(holds, wish=wish, language=language), kind=wish.scope)
        for wish in held.wishes
    )
    return Field(name, folder, partial(_asked, held, language), (*wishes, after(wishes[0], wishes[-1])))


def _asked(held: World, language: str, rng: Random, held_out: bool) -> Asked:
    problem = held.problem(rng, language=language, held_out=held_out)
    is_rare = problem.kind == held.never_corrected
    return Asked(request(problem, rng), problem.is_right, is_rare, problem.answer, problem.kind)
