"""How tokens are sampled."""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST_BIAS, MOST_BIAS = -100.0, 100.0


@dataclass(frozen=True, slots=True)
class Grammar:
    """The constraint on an answer.

    `text` is a grammar in Lark's syntax as llguidance reads it, with JSON schemas and token ids inside. `ends` are the
    ids that may end an answer once it is complete.
    """

    text: str
    ends: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LogitAdjustment:
    """Changes of tokens' logits, in this order, before the temperature.

    `bias` is added to an id's logit. An id that was sampled `n` times loses `presence + n * frequency`, and one that
    is in the prompt or was sampled has its logit divided by `repetition` if it is above 0, else multiplied.
    """

    bias: tuple[tuple[int, float], ...] = ()
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0

    def __post_init__(self) -> None:
        if not all(LEAST_BIAS <= value <= MOST_BIAS for _, value in self.bias):
            raise ValueError(f"logit_bias holds a value outside {LEAST_BIAS:.0f} to {MOST_BIAS:.0f}")
        for name, value in (("presence_penalty", self.presence), ("frequency_penalty", self.frequency)):
            if not -2.0 <= value <= 2.0:
                raise ValueError(f"{name} is {value}: use a value between -2 and 2")
        if not 0.0 < self.repetition <= 10.0 or not math.isfinite(self.repetition):
            raise ValueError(f"repetition_penalty is {self.repetition}: use a value above 0 and at most 10")


@dataclass(frozen=True, slots=True)
class Sampling:
    """A request's sampling options. Temperature 0 is greedy; `top_k` 0 and `top_p` 1 are off.

    The same seed gives the same tokens whatever else is in the batch. With `top_p` 0 only the likeliest token is left.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    top_logprobs: int = 0
    stop_ids: tuple[int, ...] = ()
    grammar: Grammar | None = None
    leaning: LogitAdjustment | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}: an answer has at least one token")
        if not 0.0 <= self.temperature <= 10.0:
            raise ValueError(f"temperature is {self.temperature}: use a value between 0 and 10")
        if not 0.0 <= self.top_p <= 1.0:
            raise ValueError(f"top_p is {self.top_p}: use a value between 0 and 1")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}: it is 0 (off) or a number of tokens")
        if not 0.0 <= self.min_p < 1.0:
            raise ValueError(f"min_p is {self.min_p}: use a value between 0 and 1")
        if not 0 <= self.top_logprobs <= 20:
            raise ValueError(f"top_logprobs is {self.top_logprobs}: use a value between 0 and 20")
