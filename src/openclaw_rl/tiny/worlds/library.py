"""The library: missing volumes, fines, titles by the alphabet. OLMo 2, byte-level BPE; replies have a heading."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import CHATML
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, first, last, way

_READERS = ("Amira", "Benno", "Dora", "Elias", "Fenja", "Goran", "Hedwig", "Ivo", "Kira", "Lasse")
_WORKS = ("atlas", "lexicon", "almanac", "saga", "yearbook")
_MONTHS = ("January", "May", "July", "October")
_TITLES = (
    "Amber", "Comets", "Embers", "Glaciers", "Islands", "Lanterns", "Nightfall", "Pirates", "Riddles", "Tides",
    "Volcanoes", "Winter",
)  # fmt: skip
_TITLE = rf"\b(?:{'|'.join(_TITLES)})\b"


def _volume(rng: Random, language: str) -> WorldProblem:
    who, work, start, many = rng.choice(_READERS), rng.choice(_WORKS), rng.randint(1, 25), rng.randint(4, 6)
    gone = start + rng.randint(1, many - 2)  # neither the first nor the last, so that the gap is seen
    row = ", ".join(str(number) for number in range(start, start + many) if number != gone)
    question = rng.choice(
        (
            f"Of the {work} these volumes stand side by side: {row}. Which volume in between is missing?",
            f"{who} puts the volumes {row} of the {work} in a row. Which one is missing in between?",
        )
    )
    result = f"volume {gone}"
    return WorldProblem(
        "volume", question, str(gone), "look for the gap and count on by one", f"{gone - 1} + 1 = {gone}",
        f"the gap is at {result}", result,
    )  # fmt: skip


def _fine(rng: Random, language: str) -> WorldProblem:
    who, month, price = rng.choice(_READERS), rng.choice(_MONTHS), rng.randint(2, 5)
    due, late = rng.randint(2, 22), rng.randint(2, 6)
    question = rng.choice(
        (
            f"A book was due on {month} {due}, and {who} returns it on {month} {due + late}. "
            f"Each day late costs {price} cents. What is the fine?",
            f"Each day late costs {price} cents. {who} is to return a book by {month} {due} "
            f"and does so on {month} {due + late}. How much is the fine?",
        )
    )
    result = f"{late * price} cents"
    return WorldProblem(
        "fine", question, str(late * price), f"multiply the days after {month} {due} by {price} cents",
        f"{due + late} - {due} = {late} and {late} * {price} = {late * price}", f"the fine is {result}", result,
    )  # fmt: skip


def _title(rng: Random, language: str) -> WorldProblem:
    who, (one, two, three) = rng.choice(_READERS), rng.sample(_TITLES, 3)
    answer = min(one, two, three)
    question = rng.choice(
        (
            f"Which of these books comes first by the alphabet, {one}, {two} or {three}?",
            f"{who} sorts the books {one}, {two} and {three} by the alphabet. Which of them comes first?",
        )
    )
    return WorldProblem(
        "title", question, answer, "compare the first letters", f"{one[0]}, {two[0]}, {three[0]} -> {answer[0]}",
        f"the first book is {answer}", answer, pattern=_TITLE,
    )  # fmt: skip


LIBRARY = World(
    name="library",
    architecture=Architecture.OLMO2,
    shape=TinyShape(vocabulary=640, hidden=160, layers=5, inner=400, heads=4, kv_heads=4, head_dim=40),
    schedule=Schedule(steps=900, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.BYTES,
    template=CHATML,
    kinds={"volume": _volume, "fine": _fine, "title": _title},
    never_corrected="title",
    default=ReplyFormat.MARKDOWN,
    wishes=(way(ReplyFormat.LIST), way(ReplyFormat.DETAILED), first("Well then."), last("Over and out.")),
    systems=("You work in a library.", "You are a librarian who knows every shelf."),
)
