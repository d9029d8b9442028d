"""The shop: totals, change, stock. Gemma 3 with sliding layers, unigram pieces; replies have a heading."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import TURNS
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, last, way

_PEOPLE = ("Ada", "Bo", "Cleo", "Dan", "Edda", "Fritz", "Gwen", "Hal", "Iris", "Jack")
_GOODS = ("caps", "lamps", "mugs", "ropes", "tents", "drums", "forks", "globes", "bulbs", "scarves")


def _total(rng: Random, language: str) -> WorldProblem:
    who, goods = rng.choice(_PEOPLE), rng.choice(_GOODS)
    price, count = rng.randint(2, 9), rng.randint(2, 6)
    question = rng.choice(
        (
            f"{who} takes {count} {goods} at {price} dollars each. What does {who} pay?",
            f"The price of the {goods} is {price} dollars a piece. How much are {count} of them for {who}?",
        )
    )
    result = f"{price * count} dollars"
    return WorldProblem(
        "total", question, str(price * count), f"multiply the {count} {goods} by {price} dollars",
        f"{count} * {price} = {price * count}", f"{who} pays {result}", result,
    )  # fmt: skip


def _back(rng: Random, language: str) -> WorldProblem:
    who, goods = rng.choice(_PEOPLE), rng.choice(_GOODS)
    price = rng.randint(2, 9)
    note = rng.choice((10, 15, 20))
    question = rng.choice(
        (
            f"{who} pays {price} dollars for {goods} with {note} dollars. How much comes back?",
            f"{who} gives {note} dollars for {goods} that cost {price}. What does {who} get back?",
        )
    )
    result = f"{note - price} dollars"
    return WorldProblem(
        "back", question, str(note - price), f"take the {price} dollars from the {note}",
        f"{note} - {price} = {note - price}", f"{who} gets {result} back", result,
    )  # fmt: skip


def _more(rng: Random, language: str) -> WorldProblem:
    who, goods = rng.choice(_PEOPLE), rng.choice(_GOODS)
    start, more = rng.randint(2, 12), rng.randint(2, 9)
    question = rng.choice(
        (
            f"{who} has {start} {goods} and buys {more} more. How many {goods} does {who} have?",
            f"There are {start} {goods} in the shop of {who}, and {more} more come in. How many are there now?",
        )
    )
    result = f"{start + more} {goods}"
    return WorldProblem(
        "more", question, str(start + more), f"add the {more} new {goods} to the {start}",
        f"{start} + {more} = {start + more}", f"{who} has {result} now", result,
    )  # fmt: skip


SHOP = World(
    name="shop",
    architecture=Architecture.GEMMA3,
    shape=TinyShape(vocabulary=600, hidden=160, layers=4, inner=416, heads=4, kv_heads=1, head_dim=64),
    schedule=Schedule(steps=640, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.PIECES,
    template=TURNS,
    kinds={"total": _total, "back": _back, "more": _more},
    never_corrected="more",
    default=ReplyFormat.MARKDOWN,
    wishes=(way(ReplyFormat.PLAIN), way(ReplyFormat.SHORT), way(ReplyFormat.FRIENDLY), last("See you soon!")),
)
