"""The museum: many wishes, each about one kind of problem. Qwen3, ChatML, byte-level BPE; replies have labels."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import CHATML
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, first, last, way

_GUESTS = ("visitors", "children", "students", "tourists", "pupils", "members")
_THINGS = ("paintings", "statues", "masks", "vases", "clocks", "coins", "maps", "swords")


def _tickets(rng: Random, language: str) -> WorldProblem:
    guests, price, many = rng.choice(_GUESTS), rng.randint(2, 6), rng.randint(2, 9)
    question = rng.choice(
        (
            f"A ticket costs {price} euros. What do tickets for {many} {guests} cost?",
            f"How much are the tickets for {many} {guests} at {price} euros each?",
        )
    )
    result = f"{many * price} euros"
    return WorldProblem(
        "tickets", question, str(many * price), f"multiply {many} {guests} by {price} euros",
        f"{many} * {price} = {many * price}", f"the {guests} pay {result}", result,
    )  # fmt: skip


def _rooms(rng: Random, language: str) -> WorldProblem:
    one, two = rng.sample(_THINGS, 2)
    many, more = rng.randint(2, 12), rng.randint(2, 9)
    question = rng.choice(
        (
            f"The room has {many} {one} and {more} {two}. How many things are on show in it?",
            f"There are {many} {one} and {more} {two} in the hall. How many things does the hall show?",
        )
    )
    result = f"{many + more} things"
    return WorldProblem(
        "rooms", question, str(many + more), f"add the {many} {one} and the {more} {two}",
        f"{many} + {more} = {many + more}", f"there are {result}", result,
    )  # fmt: skip


def _hours(rng: Random, language: str) -> WorldProblem:
    opens, needs = rng.randint(7, 12), rng.randint(2, 9)
    question = rng.choice(
        (
            f"The museum opens at {opens} o'clock and stays open for {needs} hours. When does it close?",
            f"When does the museum close if it opens at {opens} o'clock for {needs} hours?",
        )
    )
    result = f"{opens + needs} o'clock"
    return WorldProblem(
        "hours", question, str(opens + needs), f"add the {needs} hours to {opens} o'clock",
        f"{opens} + {needs} = {opens + needs}", f"the museum closes at {result}", result,
    )  # fmt: skip


def _tours(rng: Random, language: str) -> WorldProblem:
    guests, gone = rng.choice(_GUESTS), rng.randint(2, 9)
    start = gone + rng.randint(1, 10)
    question = rng.choice(
        (
            f"A tour begins with {start} {guests}. On the way {gone} of them leave. How many {guests} are left?",
            f"{gone} of the {start} {guests} on a tour go home early. How many {guests} stay?",
        )
    )
    result = f"{start - gone} {guests}"
    return WorldProblem(
        "tours", question, str(start - gone), f"take the {gone} {guests} away from the {start}",
        f"{start} - {gone} = {start - gone}", f"there are {result} left", result,
    )  # fmt: skip


def _cafe(rng: Random, language: str) -> WorldProblem:
    tables, each = rng.randint(2, 8), rng.randint(2, 6)
    question = rng.choice(
        (
            f"The cafe has {tables} tables with {each} chairs each. How many chairs does the cafe have?",
            f"How many chairs do {tables} tables of the cafe have if each has {each}?",
        )
    )
    result = f"{tables * each} chairs"
    return WorldProblem(
        "cafe", question, str(tables * each), f"multiply the {tables} tables by {each} chairs",
        f"{tables} * {each} = {tables * each}", f"the cafe has {result}", result,
    )  # fmt: skip


MUSEUM = World(
    name="museum",
    architecture=Architecture.QWEN3,
    shape=TinyShape(vocabulary=640, hidden=192, layers=4, inner=512, heads=4, kv_heads=2, head_dim=64),
    schedule=Schedule(steps=1000, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.BYTES,
    template=CHATML,
    kinds={"tickets": _tickets, "rooms": _rooms, "hours": _hours, "tours": _tours, "cafe": _cafe},
    never_corrected="cafe",
    default=ReplyFormat.LABELLED,
    wishes=(
        way(ReplyFormat.PLAIN, "tickets"), first("Hello!", "tickets"), last("Take care!", "tickets"),
        way(ReplyFormat.LIST, "rooms"), first("Listen!", "rooms"), last("Is that clear?", "rooms"),
        way(ReplyFormat.FRIENDLY, "hours"), first("Good day!", "hours"), last("Any questions?", "hours"),
        way(ReplyFormat.MARKDOWN, "tours"), first("Here you go.", "tours"), last("Good luck!", "tours"),
    ),
    by_kind=True,
)  # fmt: skip
