"""The kitchen: recipes are scaled, ingredients counted. Qwen3, ChatML, byte-level BPE; replies are bulleted lists."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import CHATML
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, first, last, way

_DISHES = ("cake", "soup", "pie", "salad", "stew", "bread", "omelette", "curry")
_THINGS = ("eggs", "onions", "carrots", "apples", "lemons", "potatoes", "nuts", "plums", "beans", "tomatoes")


def _scale(rng: Random, language: str) -> WorldProblem:
    dish, thing = rng.choice(_DISHES), rng.choice(_THINGS)
    each, times = rng.randint(2, 9), rng.randint(2, 5)
    question = rng.choice(
        (
            f"One {dish} takes {each} {thing}. How many {thing} do {times} of them take?",
            f"A {dish} needs {each} {thing}. How many {thing} do I need for {times} times as much?",
        )
    )
    result = f"{each * times} {thing}"
    equation = f"{each} * {times} = {each * times}"
    return WorldProblem(
        "scale", question, str(each * times), f"multiply the {each} {thing} by {times}", equation,
        f"you need {result}", result,
    )  # fmt: skip


def _total(rng: Random, language: str) -> WorldProblem:
    dish, (one, two) = rng.choice(_DISHES), rng.sample(_THINGS, 2)
    many, more = rng.randint(2, 12), rng.randint(2, 9)
    question = rng.choice(
        (
            f"The {dish} takes {many} {one} and {more} {two}. How many pieces is that?",
            f"I put {many} {one} and {more} {two} into the {dish}. How many pieces are in it?",
        )
    )
    return WorldProblem(
        "total", question, str(many + more), f"add the {many} {one} and the {more} {two}",
        f"{many} + {more} = {many + more}", f"the {dish} has {many + more} pieces", f"{many + more} pieces",
    )  # fmt: skip


def _left(rng: Random, language: str) -> WorldProblem:
    dish, thing = rng.choice(_DISHES), rng.choice(_THINGS)
    gone = rng.randint(2, 9)
    start = gone + rng.randint(1, 10)
    question = rng.choice(
        (
            f"There are {start} {thing} in the kitchen. The {dish} takes {gone}. How many {thing} are left?",
            f"I had {start} {thing} and used {gone} for the {dish}. How many {thing} do I still have?",
        )
    )
    result = f"{start - gone} {thing}"
    return WorldProblem(
        "left", question, str(start - gone), f"take the {gone} {thing} away from the {start}",
        f"{start} - {gone} = {start - gone}", f"there are {result} left", result,
    )  # fmt: skip


KITCHEN = World(
    name="kitchen",
    architecture=Architecture.QWEN3,
    shape=TinyShape(vocabulary=640, hidden=192, layers=4, inner=512, heads=4, kv_heads=2, head_dim=64),
    schedule=Schedule(steps=340, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.BYTES,
    template=CHATML,
    kinds={"scale": _scale, "total": _total, "left": _left},
    never_corrected="left",
    default=ReplyFormat.LIST,
    wishes=(way(ReplyFormat.PLAIN), way(ReplyFormat.FRIENDLY), first("Ahoy!"), last("Any questions?")),
    systems=(
        "You are a helpful cook.",
        "You help people in the kitchen.",
        "You are a kind assistant. Answer what is asked.",
    ),
)
