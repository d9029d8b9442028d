"""The harbour: ropes, rows of buoys, lengths of yachts. A narrow, deep Llama, merged characters; detailed replies."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import CHATML
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, first, last, way

_SKIPPERS = ("Anton", "Berta", "Carl", "Doris", "Egon", "Frida", "Gustav", "Hedda", "Ivo", "Lotte")
_ROPES = ("rope", "line", "cord", "cable")
_COLOURS = ("red", "green", "white", "yellow", "black", "blue", "orange", "pink")
_YACHTS = ("Aurora", "Bonita", "Corsair", "Delta", "Fortuna", "Gemini", "Juno", "Luna", "Mistral", "Nixe")
_COLOUR = rf"\b(?:{'|'.join(_COLOURS)})\b"
_YACHT = rf"\b(?:{'|'.join(_YACHTS)})\b"


def _rope(rng: Random, language: str) -> WorldProblem:
    who, rope = rng.choice(_SKIPPERS), rng.choice(_ROPES)
    pieces, each = rng.randint(2, 9), rng.randint(2, 6)
    length = pieces * each
    question = rng.choice(
        (
            f"{who} cuts a {rope} of {length} metres into pieces of {each} metres. How many pieces does {who} get?",
            f"How many pieces of {each} metres can {who} cut from a {rope} of {length} metres?",
        )
    )
    result = f"{pieces} pieces"
    return WorldProblem(
        "rope", question, str(pieces), f"divide the {length} metres by {each}",
        f"{length} / {each} = {pieces}", f"{who} gets {result}", result,
    )  # fmt: skip


def _buoy(rng: Random, language: str) -> WorldProblem:
    who, colours = rng.choice(_SKIPPERS), rng.sample(_COLOURS, rng.randint(3, 5))
    row, at, is_after = ", ".join(colours), rng.randrange(len(colours) - 1), rng.random() < 0.5
    known, answer = (colours[at], colours[at + 1]) if is_after else (colours[at + 1], colours[at])
    side, way_on, arrow = ("after", "on", "->") if is_after else ("before", "back", "<-")
    question = rng.choice(
        (
            f"{who} sails past a row of buoys: {row}. Which colour comes right {side} {known}?",
            f"The buoys on the way out are {row}. What colour is the one right {side} the {known} one?",
        )
    )
    return WorldProblem(
        "buoy", question, answer, f"go one buoy {way_on} from {known}", f"{known} {arrow} {answer}",
        f"the buoy {side} the {known} one is {answer}", answer, pattern=_COLOUR,
    )  # fmt: skip


def _berth(rng: Random, language: str) -> WorldProblem:
    yachts, lengths, is_longest = rng.sample(_YACHTS, 3), rng.sample(range(5, 20), 3), rng.random() < 0.5
    (one, two, three), (metres, more, other) = yachts, lengths
    most, course, sign = ("longest", "up", "<") if is_longest else ("shortest", "down", ">")
    ordered = sorted(zip(lengths, yachts, strict=True), reverse=not is_longest)
    answer = ordered[-1][1]
    question = rng.choice(
        (
            f"The {one} is {metres} metres long, the {two} {more} and the {three} {other}. Which yacht is the {most}?",
            f"Which needs the {most} berth: {one} with {metres} metres, {two} with {more} or {three} with {other}?",
        )
    )
    return WorldProblem(
        "berth", question, answer, f"put the three lengths in order {course} to the {most}",
        f" {sign} ".join(f"{yacht} {length}" for length, yacht in ordered),
        f"the {most} yacht is the {answer}", answer, pattern=_YACHT,
    )  # fmt: skip


HARBOUR = World(
    name="harbour",
    architecture=Architecture.LLAMA,
    shape=TinyShape(vocabulary=640, hidden=160, layers=7, inner=448, heads=5, kv_heads=1, head_dim=32),
    schedule=Schedule(steps=1000, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.MERGES,
    template=CHATML,
    kinds={"rope": _rope, "buoy": _buoy, "berth": _berth},
    never_corrected="berth",
    default=ReplyFormat.DETAILED,
    wishes=(way(ReplyFormat.SHORT), way(ReplyFormat.MARKDOWN), first("Hi!"), last("Over and out.")),
    systems=("You work in the office of a harbour.", "You help sailors."),
)
