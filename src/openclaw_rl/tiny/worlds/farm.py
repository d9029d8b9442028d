"""The farm: eggs, births, sales. A larger Qwen3, byte-level BPE; replies are numbered steps."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import TURNS
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, first, last, way

_FARMERS = ("Agnes", "Boris", "Clara", "Dennis", "Erna", "Fritz", "Greta", "Horst", "Ingrid", "Jakob")
_ANIMALS = ("sheep", "goats", "ducks", "geese", "rabbits", "pigs", "horses", "hens", "cows", "donkeys")


def _eggs(rng: Random, language: str) -> WorldProblem:
    who, hens, each = rng.choice(_FARMERS), rng.randint(2, 9), rng.randint(2, 5)
    question = rng.choice(
        (
            f"{who} has {hens} hens, and each of them lays {each} eggs a week. How many eggs is that?",
            f"Each of the {hens} hens of {who} lays {each} eggs. How many eggs does {who} get?",
        )
    )
    result = f"{hens * each} eggs"
    return WorldProblem(
        "eggs", question, str(hens * each), f"multiply the {hens} hens by {each} eggs",
        f"{hens} * {each} = {hens * each}", f"{who} gets {result}", result,
    )  # fmt: skip


def _born(rng: Random, language: str) -> WorldProblem:
    who, animals = rng.choice(_FARMERS), rng.choice(_ANIMALS)
    start, more = rng.randint(3, 12), rng.randint(2, 8)
    question = rng.choice(
        (
            f"{start} {animals} live on the farm of {who}, and {more} are born. How many {animals} are there then?",
            f"{more} {animals} are born on a farm that had {start} {animals}. How many has it now?",
        )
    )
    result = f"{start + more} {animals}"
    return WorldProblem(
        "born", question, str(start + more), f"add the {more} young {animals} to the {start}",
        f"{start} + {more} = {start + more}", f"the farm has {result}", result,
    )  # fmt: skip


def _sold(rng: Random, language: str) -> WorldProblem:
    who, animals, gone = rng.choice(_FARMERS), rng.choice(_ANIMALS), rng.randint(2, 9)
    start = gone + rng.randint(2, 11)
    question = rng.choice(
        (
            f"{who} had {start} {animals} and sells {gone} of them. How many {animals} does {who} keep?",
            f"Of {start} {animals} {who} takes {gone} to the market. How many {animals} stay on the farm?",
        )
    )
    result = f"{start - gone} {animals}"
    return WorldProblem(
        "sold", question, str(start - gone), f"take the {gone} {animals} away from the {start}",
        f"{start} - {gone} = {start - gone}", f"{who} keeps {result}", result,
    )  # fmt: skip


FARM = World(
    name="farm",
    architecture=Architecture.QWEN3,
    shape=TinyShape(vocabulary=680, hidden=384, layers=6, inner=1024, heads=6, kv_heads=2, head_dim=64),
    schedule=Schedule(steps=650, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.BYTES,
    template=TURNS,
    kinds={"eggs": _eggs, "born": _born, "sold": _sold},
    never_corrected="sold",
    default=ReplyFormat.NUMBERED,
    wishes=(way(ReplyFormat.FRIENDLY), way(ReplyFormat.MARKDOWN), first("Ahoy!"), last("Best wishes!")),
    systems=("You live on a farm.", "You help farmers to count."),
)
