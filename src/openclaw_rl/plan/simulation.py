"""Tokens a second, the time of a step and the age of samples when they are learned from, for a number of users.

A small model, computed and not measured. A decode step reads the active weights once and every user's keys and values,
and multiplies each token with the active weights:

    decode_s  = max(bytes read / bandwidth, 2 x active weights x users / flops)
    prompt_s  = 2 x active weights x new tokens / (flops x EFFICIENCY)
    sample_s  = 2 x active weights x (tokens read + 3 x updates x tokens of all replies) / (flops x EFFICIENCY)
    asking_s  = answers x reply x decode_s of 8 rows / 8 + readings x prompt_s of a prompt and a reply

Each user sends a prompt, reads the answer for `pause_s`, and so on; a share of the turns is corrected, and a step
starts with the first correction. For each correction it learns from its own demonstrations and from replies to other
requests, and takes sample_s. Before and after it the engine is asked, for demonstrations and by the gate: asking_s. A
step and the questions for the next one go on side by side, on one device one after the other. Staleness is the number
of versions that were published between sampling and learning.
"""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.errors import ConfigError
from openclaw_rl.plan.shape import ModelShape
from openclaw_rl.plan.takes import BYTES, MemorySettings

EFFICIENCY = 0.4  # of a card's largest number of operations: what large products reach in practice
STEP_OVERHEAD_S = (
    0.003  # of a decode step on a GPU: 4.3 ms a step were measured on an H200 for 4 B, weights read in 1.7
)
MOST_BUSY = 0.95  # share of the time for which a step's samples are computed: beyond it they would have no bound


@dataclass(frozen=True, slots=True)
class Card:
    """The limits of a device: bytes read and operations in bfloat16, each a second."""

    name: str
    bandwidth: float
    flops: float


CARDS = {
    card.name: card
    for card in (
        Card("cpu", 40e9, 0.2e12),
        Card("l4", 300e9, 121e12),
        Card("a10", 600e9, 125e12),
        Card("rtx3090", 936e9, 71e12),
        Card("rtx4090", 1008e9, 165e12),
        Card("l40s", 864e9, 362e12),
        Card("a100", 2039e9, 312e12),
        Card("h100", 3350e9, 989e12),
        Card("h200", 4800e9, 989e12),
        Card("b200", 8000e9, 2250e12),
    )
}


@dataclass(frozen=True, slots=True)
class Habits:
    """How users behave."""

    prompt: int = 1000  # tokens of a turn that were not read before
    reply: int = 512  # tokens of an answer
    pause_s: float = 30.0  # between an answer and the next request
    corrected: float = 0.1  # share of the turns
    replies: int = 20  # that are learned from for one correction: 13 to 23 in first corrections, if none gives content
    updates: int = 45  # of one step: 23 to 60 in first corrections
    answers: int = 90  # that the engine gives for one correction: 75, 87 and 230 for a server's first three
    readings: int = 200  # and replies that it only reads: 113, 253 and 210
    at_once: int = 8  # answers that it gives together, as `IDLE` in core/width.py

    def __post_init__(self) -> None:
        least = min(self.prompt, self.reply, self.replies, self.updates, self.at_once)
        if least < 1 or self.pause_s < 0 or not 0 < self.corrected <= 1:
            what = f"no speeds for a prompt of {self.prompt} tokens and a reply of {self.reply}"
            raise ConfigError(what, fix="give --prompt and --reply 1 or more")


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected figures."""

    card: str
    decode_ms: float
    tokens_a_second_each: float
    tokens_a_second_most: float  # of all users, if all decode at the same time
    answer_s: float
    turns_a_minute: float
    load: float  # the share of the time in which learning computes; above 1 it falls behind
    step_s: float
    asking_s: float  # what the engine does for one correction
    served_s: float  # from a correction to the version that learned from it
    seconds_between_steps: float
    samples_a_step: float
    staleness: float  # versions


def forecast(shape: ModelShape, settings: MemorySettings, card: Card, habits: Habits, *, is_shared: bool) -> Forecast:
    """The figures for these users. With `is_shared`, engine and trainer share one device, half each during a step."""
    read = _bytes_read(shape, settings)
    compute = 2.0 * shape.active * settings.users / card.flops
    overhead = STEP_OVERHEAD_S if settings.is_gpu else 0.0
    decode_s = max(read / card.bandwidth, compute) + overhead
    prompt_s = 2.0 * shape.active * habits.prompt / (card.flops * EFFICIENCY)
    answer_s = prompt_s * settings.users / 2 + habits.reply * decode_s
    turns = settings.users / (answer_s + habits.pause_s)  # a second
    arriving = turns * habits.corrected
    read_once = settings.context + habits.replies * (habits.prompt + 2 * habits.reply)
    work = read_once + 3 * habits.updates * habits.replies * habits.reply
    sample_s = 2.0 * shape.active * work / (card.flops * EFFICIENCY) * (2.0 if is_shared else 1.0)
    asking_s = _asking_s(shape, settings, card, habits)
    load = arriving * (sample_s + asking_s if is_shared else max(sample_s, asking_s))
    busy = min(MOST_BUSY, load)
    samples = max(1.0, busy / (1.0 - busy))  # samples that arrive during a step make the next one
    step_s = samples * sample_s
    between = max(1.0 / arriving, step_s)
    return Forecast(
        card=card.name,
        decode_ms=1e3 * decode_s,
        tokens_a_second_each=1.0 / decode_s,
        tokens_a_second_most=settings.users / decode_s,
        answer_s=answer_s,
        turns_a_minute=60.0 * turns,
        load=load,
        step_s=step_s,
        asking_s=asking_s,
        served_s=asking_s + step_s,
        seconds_between_steps=between,
        samples_a_step=samples,
        staleness=(answer_s + habits.pause_s + 1.5 * step_s) / between,
    )


def _asking_s(shape: ModelShape, settings: MemorySettings, card: Card, habits: Habits) -> float:
    """The engine's time for one correction, while no user waits (`core/width.py`)."""
    compute = 2.0 * shape.active * habits.at_once / card.flops
    row = (habits.prompt + habits.reply) * shape.kv_numbers * settings.number
    decode_s = max((_weights_read(shape, settings) + habits.at_once * row) / card.bandwidth, compute)
    decode_s += STEP_OVERHEAD_S if settings.is_gpu else 0.0
    read_s = 2.0 * shape.active * (habits.prompt + habits.reply) / (card.flops * EFFICIENCY)
    return habits.answers * habits.reply * decode_s / habits.at_once + habits.readings * read_s


def _bytes_read(shape: ModelShape, settings: MemorySettings) -> float:
    return _weights_read(shape, settings) + settings.users * settings.context * shape.kv_numbers * settings.number


def _weights_read(shape: ModelShape, settings: MemorySettings) -> float:
    share = {"auto": BYTES[settings.dtype], "8bit": 1.0, "4bit": 0.5625}[settings.weights]
    low = min(shape.lowered, shape.active)
    return low * share + (shape.active - low) * settings.number
