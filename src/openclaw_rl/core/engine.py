"""An engine's information: the model it serves, and its counters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The served model. `context_length` is the usable length: the model's own, or less if the cache is smaller."""

    name: str
    architecture: str
    parameters: int
    vocab_size: int
    context_length: int
    eos_ids: tuple[int, ...]  # by the model's two configurations; its tokenizer and template may name others
    dtype: str
    device: str
    cache_tokens: int
    linear_kernels: tuple[str, ...]  # the fastest kernels for linear layers, for the log and the benchmarks


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the engine's process started, and the step times of the last 1,000 steps."""

    running: int
    waiting: int
    cached_tokens: int
    tokens_sampled: int
    prompt_tokens_read: int
    prompt_tokens_reused: int
    steps: int
    step_ms_p50: float
    step_ms_p99: float
    versions: tuple[str, ...] = ()
    restarts: int = 0
    unwiped_tokens: int = 0  # flushed, with keys and values not yet overwritten
