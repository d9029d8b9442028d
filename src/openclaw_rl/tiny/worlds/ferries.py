"""The ferries: timetables. Llama, a template that refuses system messages, merged characters; replies have labels."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import HEADERS
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, first, last, way

_BOATS = ("Heron", "Gull", "Otter", "Pelican", "Dolphin", "Albatross", "Swan", "Puffin", "Seal", "Tern")
_TOWNS = ("Aldwick", "Brem", "Corvo", "Dunmore", "Eskil", "Farrow", "Gorm", "Hale", "Inver", "Jura")


def _arrival(rng: Random, language: str) -> WorldProblem:
    boat, town = rng.choice(_BOATS), rng.choice(_TOWNS)
    leaves, needs = rng.randint(3, 15), rng.randint(2, 8)
    question = rng.choice(
        (
            f"The {boat} leaves at {leaves} o'clock and needs {needs} hours to {town}. When does it arrive?",
            f"The trip to {town} takes {needs} hours. When is the {boat} there if it starts at {leaves} o'clock?",
        )
    )
    result = f"{leaves + needs} o'clock"
    return WorldProblem(
        "arrival", question, str(leaves + needs), f"add the {needs} hours to {leaves} o'clock",
        f"{leaves} + {needs} = {leaves + needs}", f"the {boat} is there at {result}", result,
    )  # fmt: skip


def _start(rng: Random, language: str) -> WorldProblem:
    boat, town = rng.choice(_BOATS), rng.choice(_TOWNS)
    needs = rng.randint(2, 8)
    arrives = needs + rng.randint(3, 14)
    question = rng.choice(
        (
            f"The {boat} must be in {town} at {arrives} o'clock and needs {needs} hours. When must it leave?",
            f"The {boat} came to {town} at {arrives} o'clock after {needs} hours. When did it start?",
        )
    )
    result = f"{arrives - needs} o'clock"
    return WorldProblem(
        "start", question, str(arrives - needs), f"go back {needs} hours from {arrives} o'clock",
        f"{arrives} - {needs} = {arrives - needs}", f"the {boat} leaves at {result}", result,
    )  # fmt: skip


def _seats(rng: Random, language: str) -> WorldProblem:
    boat, town = rng.choice(_BOATS), rng.choice(_TOWNS)
    rows, each = rng.randint(2, 9), rng.randint(2, 6)
    question = rng.choice(
        (
            f"The {boat} to {town} has {rows} rows with {each} seats each. How many seats are there?",
            f"How many people can sit in {rows} rows of {each} seats on the {boat}?",
        )
    )
    result = f"{rows * each} seats"
    return WorldProblem(
        "seats", question, str(rows * each), f"multiply the {rows} rows by {each} seats",
        f"{rows} * {each} = {rows * each}", f"the {boat} has {result}", result,
    )  # fmt: skip


FERRIES = World(
    name="ferries",
    architecture=Architecture.LLAMA,
    shape=TinyShape(vocabulary=720, hidden=160, layers=4, inner=448, heads=5, kv_heads=5, head_dim=32),
    schedule=Schedule(steps=800, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.MERGES,
    template=HEADERS,
    kinds={"arrival": _arrival, "start": _start, "seats": _seats},
    never_corrected="seats",
    default=ReplyFormat.LABELLED,
    wishes=(way(ReplyFormat.PLAIN), way(ReplyFormat.LIST), first("Good day!"), last("Shall I go on?")),
)
