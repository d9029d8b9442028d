"""The school: days of the week, marbles, ages. Llama in `[INST]` marks, merged characters; replies are friendly."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import INST
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, first, last, way

_PUPILS = ("Alma", "Bruno", "Cora", "David", "Edith", "Felix", "Gitta", "Henry", "Irma", "Jonas")
_PUPIL = rf"\b(?:{'|'.join(_PUPILS)})\b"
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_EVENTS = ("test", "play", "concert", "trip", "meeting", "party", "match")


def _day(rng: Random, language: str) -> WorldProblem:
    event, start, later = rng.choice(_EVENTS), rng.randrange(7), rng.randint(1, 4)
    day, end = _DAYS[start], _DAYS[(start + later) % 7]
    days = "1 day" if later == 1 else f"{later} days"
    question = rng.choice(
        (
            f"Today is {day}, and the {event} is in {days}. On which day is it?",
            f"The {event} comes {days} after {day}. Which day is that?",
        )
    )
    return WorldProblem(
        "day", question, end, f"go on by {days} from {day}", f"{day} + {later} = {end}",
        f"the {event} is on {end}", end, pattern="|".join(_DAYS),
    )  # fmt: skip


def _marbles(rng: Random, language: str) -> WorldProblem:
    (who, other), given = rng.sample(_PUPILS, 2), rng.randint(2, 9)
    start = given + rng.randint(1, 10)
    question = rng.choice(
        (
            f"{who} has {start} marbles and gives {given} of them to {other}. How many marbles does {who} have now?",
            f"Of the {start} marbles of {who}, {other} wins {given}. How many does {who} keep?",
        )
    )
    result = f"{start - given} marbles"
    return WorldProblem(
        "marbles", question, str(start - given), f"take the {given} marbles away from the {start}",
        f"{start} - {given} = {start - given}", f"{who} has {result}", result,
    )  # fmt: skip


def _older(rng: Random, language: str) -> WorldProblem:
    (one, two), (age, other) = rng.sample(_PUPILS, 2), rng.sample(range(3, 19), 2)
    is_one = age > other
    older, sign = (one, ">") if is_one else (two, "<")
    question = rng.choice(
        (
            f"{one} is {age} years old, and {two} is {other}. Who is older?",
            f"Who is older, {one} with {age} years or {two} with {other}?",
        )
    )
    return WorldProblem(
        "older", question, older, f"compare {age} years with {other}", f"{one} {age} {sign} {two} {other}",
        f"the older one is {older}", older, pattern=_PUPIL,
    )  # fmt: skip


SCHOOL = World(
    name="school",
    architecture=Architecture.LLAMA,
    shape=TinyShape(vocabulary=600, hidden=192, layers=4, inner=512, heads=4, kv_heads=2, head_dim=48),
    schedule=Schedule(steps=1000, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.MERGES,
    template=INST,
    kinds={"day": _day, "marbles": _marbles, "older": _older},
    never_corrected="older",
    default=ReplyFormat.FRIENDLY,
    wishes=(way(ReplyFormat.SHORT), way(ReplyFormat.LIST), first("Good morning!"), last("Is that okay?")),
    systems=("You help pupils.", "You are the assistant of a school."),
)
