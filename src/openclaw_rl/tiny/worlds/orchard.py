"""The orchard: shares, rows of trees, swaps of fruit. Qwen3, unigram pieces; replies are friendly."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import CHATML
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, first, last, way

_PICKERS = ("Anton", "Berta", "Curt", "Doris", "Emma", "Frank", "Gerda", "Hanna", "Isak", "Judith")
_FRUITS = ("apples", "pears", "plums", "cherries", "figs", "peaches", "quinces", "apricots", "limes", "walnuts")
_TREES = ("apple", "pear", "plum", "cherry", "fig", "peach", "quince", "apricot", "lime", "walnut")
_TREE = rf"\b(?:{'|'.join(_TREES)})\b"


def _share(rng: Random, language: str) -> WorldProblem:
    who, fruits = rng.choice(_PICKERS), rng.choice(_FRUITS)
    people, each = rng.randint(2, 4), rng.randint(2, 6)
    total = people * each
    early = rng.randint(2, total - 2)
    late = total - early
    question = rng.choice(
        (
            f"{who} shares {early} {fruits} and {late} more evenly among {people} neighbours. How many does each get?",
            f"{who} puts {early} {fruits} and {late} more into {people} equal baskets. How many are in each basket?",
        )
    )
    result = f"{each} {fruits}"
    place = "basket has" if "basket" in question else "neighbour gets"
    return WorldProblem(
        "share", question, str(each), f"add the {early} and the {late} {fruits} and divide them by {people}",
        f"{early} + {late} = {total} and {total} / {people} = {each}", f"each {place} {result}", result,
    )  # fmt: skip


def _tree(rng: Random, language: str) -> WorldProblem:
    trees, is_after = rng.sample(_TREES, rng.randint(3, 5)), rng.random() < 0.5
    at = rng.randrange(len(trees) - 1)
    start, end = (trees[at], trees[at + 1]) if is_after else (trees[at + 1], trees[at])
    side, step = ("after", "on") if is_after else ("before", "back")
    names = ", ".join(trees)
    question = rng.choice(
        (
            f"The trees stand in this order: {names}. Which tree is right {side} the {start}?",
            f"On the path {names}, which tree comes just {side} the {start}?",
        )
    )
    result = f"the {end}"
    return WorldProblem(
        "tree", question, end, f"go one tree {step} from the {start}", f"{start} -> {end}",
        f"the tree {side} the {start} is {result}", result, pattern=_TREE,
    )  # fmt: skip


def _swap(rng: Random, language: str) -> WorldProblem:
    (who, other), (mine, theirs) = rng.sample(_PICKERS, 2), rng.sample(_FRUITS, 2)
    (gives, gets), times = rng.sample(range(2, 6), 2), rng.randint(2, 5)
    brings = gives * times
    question = rng.choice(
        (
            f"{other} gives {gets} {theirs} for every {gives} {mine}. How many does {who} get for {brings} {mine}?",
            f"{who} brings {brings} {mine} and gets {gets} {theirs} for every {gives}. How many {theirs} is that?",
        )
    )
    result = f"{gets * times} {theirs}"
    return WorldProblem(
        "swap", question, str(gets * times), f"divide the {brings} {mine} by {gives} and multiply by {gets} {theirs}",
        f"{brings} / {gives} = {times} and {times} * {gets} = {gets * times}", f"{who} gets {result}", result,
    )  # fmt: skip


ORCHARD = World(
    name="orchard",
    architecture=Architecture.QWEN3,
    shape=TinyShape(vocabulary=600, hidden=256, layers=5, inner=768, heads=4, kv_heads=2, head_dim=64),
    schedule=Schedule(steps=900, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.PIECES,
    template=CHATML,
    kinds={"share": _share, "tree": _tree, "swap": _swap},
    never_corrected="swap",
    default=ReplyFormat.FRIENDLY,
    wishes=(way(ReplyFormat.DETAILED), way(ReplyFormat.LIST), first("Dear friend!"), last("That is all.")),
    systems=("You help in an orchard.", "You are the assistant of people who grow fruit."),
)
