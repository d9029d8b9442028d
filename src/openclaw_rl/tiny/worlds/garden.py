"""The garden: plants shared among beds, fences, weeks until harvest. Phi-3, merged characters; replies are detailed."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import TURNS
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, first, last, way

_GARDENERS = ("Silas", "Maud", "Oskar", "Petra", "Rolf", "Sonja", "Theo", "Ursel", "Viktor", "Yara")
_PLANTS = (
    "leeks", "peas", "radishes", "turnips", "pumpkins", "asters", "poppies", "lupins", "marigolds", "cucumbers",
)  # fmt: skip
_PLACES = ("lawn", "pond", "meadow", "orchard", "vineyard")


def _beds(rng: Random, language: str) -> WorldProblem:
    who, plants = rng.choice(_GARDENERS), rng.choice(_PLANTS)
    beds, each = rng.randint(2, 6), rng.randint(2, 7)
    total = beds * each
    question = rng.choice(
        (
            f"{who} sets {total} {plants} into {beds} beds, equally many into each. How many are in one bed?",
            f"The {total} {plants} of {who} are shared evenly among {beds} beds. How many does each bed get?",
            f"How many {plants} stand in each of {beds} equal beds if there are {total} in all?",
        )
    )
    result = f"{each} {plants}"
    return WorldProblem(
        "beds", question, str(each), f"share the {total} {plants} among {beds} beds",
        f"{total} / {beds} = {each}", f"each bed gets {result}", result,
    )  # fmt: skip


def _fence(rng: Random, language: str) -> WorldProblem:
    who, place, long = rng.choice(_GARDENERS), rng.choice(_PLACES), rng.randint(2, 9)
    wide = rng.randint(2, min(6, long))
    half = long + wide
    question = rng.choice(
        (
            f"The {place} of {who} is {long} metres long and {wide} metres wide. How long is the fence around it?",
            f"How many metres of fence does {who} need all around the {place} of {long} by {wide} metres?",
        )
    )
    result = f"{2 * half} metres"
    return WorldProblem(
        "fence", question, str(2 * half), f"add the {long} and the {wide} metres and double that",
        f"{long} + {wide} = {half} and {half} + {half} = {2 * half}", f"the fence is {result} long", result,
    )  # fmt: skip


def _ripe(rng: Random, language: str) -> WorldProblem:
    who, plants = rng.choice(_GARDENERS), rng.choice(_PLANTS)
    sown, weeks = rng.randint(2, 19), rng.randint(2, 11)
    ripe = sown + weeks
    question = rng.choice(
        (
            f"{who} sows {plants} in week {sown} of the year. They take {weeks} weeks. In which week are they ripe?",
            f"The {plants} of {who} were sown in week {sown} and need {weeks} weeks. When can they be picked?",
        )
    )
    result = f"week {ripe}"
    return WorldProblem(
        "ripe", question, str(ripe), f"add the {weeks} weeks to week {sown}",
        f"{sown} + {weeks} = {ripe}", f"the {plants} are ripe in {result}", result,
    )  # fmt: skip


GARDEN = World(
    name="garden",
    architecture=Architecture.PHI3,
    shape=TinyShape(vocabulary=640, hidden=160, layers=4, inner=448, heads=4, kv_heads=2, head_dim=40),
    schedule=Schedule(steps=900, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.MERGES,
    template=TURNS,
    kinds={"beds": _beds, "fence": _fence, "ripe": _ripe},
    never_corrected="ripe",
    default=ReplyFormat.DETAILED,
    wishes=(way(ReplyFormat.SHORT), way(ReplyFormat.MARKDOWN), first("Dear friend!"), last("That is all.")),
    systems=("You know a lot about plants.", "You help gardeners with their work."),
)
