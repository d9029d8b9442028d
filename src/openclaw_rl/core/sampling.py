"""How tokens are drawn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a request asks of the sampler. Temperature 0 is greedy; `top_k` 0 and `top_p` 1 are off.

    The same seed gives the same tokens whoever else is in the batch.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    top_logprobs: int = 0
    stop_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}: an answer has at least one token")
        if not 0.0 <= self.temperature <= 10.0:
            raise ValueError(f"temperature is {self.temperature}: it lies between 0 and 10")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p is {self.top_p}: it lies above 0 and up to 1")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}: it is 0 (off) or a number of tokens")
        if not 0.0 <= self.min_p < 1.0:
            raise ValueError(f"min_p is {self.min_p}: it lies between 0 and 1")
        if not 0 <= self.top_logprobs <= 20:
            raise ValueError(f"top_logprobs is {self.top_logprobs}: it lies between 0 and 20")
