"""The hotel: floors, rows of guests, bags. Gemma 3 with headers, byte-level BPE; replies are plain sentences."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import HEADERS
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, first, last, way

_GUESTS = ("Otto", "Vera", "Nils", "Ruth", "Hugo", "Wanda", "Igor", "Tilda", "Leo")
_GUEST = rf"\b(?:{'|'.join(_GUESTS)})\b"


def _floor(rng: Random, language: str) -> WorldProblem:
    who, moved = rng.choice(_GUESTS), rng.randint(2, 7)
    is_up, other = rng.random() < 0.5, rng.randint(1, 9)
    start, end = (other, other + moved) if is_up else (other + moved, other)
    word, sign = ("up", "+") if is_up else ("down", "-")
    question = rng.choice(
        (
            f"{who} is on floor {start} and goes {word} {moved} floors. On which floor is {who} then?",
            f"The lift takes {who} {word} {moved} floors from floor {start}. Where does it stop?",
        )
    )
    result = f"floor {end}"
    return WorldProblem(
        "floor", question, str(end), f"go {word} {moved} floors from floor {start}",
        f"{start} {sign} {moved} = {end}", f"{who} is on {result}", result,
    )  # fmt: skip


def _row(rng: Random, language: str) -> WorldProblem:
    guests = rng.sample(_GUESTS, rng.randint(3, 5))
    names, is_front = ", ".join(guests), rng.random() < 0.5
    place, end, answer = ("first", "front", guests[0]) if is_front else ("last", "end", guests[-1])
    question = rng.choice(
        (
            f"These guests wait in a row: {names}. Who is the {place} of them?",
            f"Who is the {place} guest in the row {names}?",
        )
    )
    return WorldProblem(
        "row", question, answer, f"go to the {end} of the row", f"{end} = {answer}",
        f"the {place} guest is {answer}", answer, pattern=_GUEST,
    )  # fmt: skip


def _bag(rng: Random, language: str) -> WorldProblem:
    who, (weight, most) = rng.choice(_GUESTS), rng.sample(range(2, 21), 2)
    sign, result = (">", "too heavy") if weight > most else ("<", "light enough")
    question = rng.choice(
        (
            f"{who} has a bag of {weight} kilos and may bring {most} kilos. Is the bag light enough or too heavy?",
            f"Bags up to {most} kilos are allowed. Is that of {who} with {weight} kilos too heavy or light enough?",
        )
    )
    return WorldProblem(
        "bag", question, result, f"compare the {weight} kilos with {most}", f"{weight} {sign} {most}",
        f"the bag of {who} is {result}", result, pattern="too heavy|light enough",
    )  # fmt: skip


HOTEL = World(
    name="hotel",
    architecture=Architecture.GEMMA3,
    shape=TinyShape(vocabulary=620, hidden=160, layers=4, inner=448, heads=4, kv_heads=2, head_dim=48),
    schedule=Schedule(steps=900, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.BYTES,
    template=HEADERS,
    kinds={"floor": _floor, "row": _row, "bag": _bag},
    never_corrected="bag",
    default=ReplyFormat.PLAIN,
    wishes=(way(ReplyFormat.FRIENDLY), way(ReplyFormat.MARKDOWN), first("Right away!"), last("Anything else?")),
)
