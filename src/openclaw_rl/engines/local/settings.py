"""What the local engine can be told, and what it tells about itself. No torch: the server reads this too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from openclaw_rl.errors import ConfigError

DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class LocalEngineSettings:
    """How the local engine runs a model."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset({"cache_tokens", "max_full_versions", "max_restarts", "nice"})

    model: str = ""
    """Folder (or hub name) of a Hugging Face causal language model."""
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1` ...; `auto` takes a GPU where there is one. Change it when the model should run on
    another GPU, or on the CPU although there is a GPU."""
    dtype: str = "auto"
    """`float32`, `bfloat16` or `float16`; `auto` is float32 below 100 M parameters on a CPU, else bfloat16. Change it
    when memory is short, or when the automatic number format is not the one you want."""
    threads: int = 1
    """CPU threads of the engine. 2 pay off only without a trainer on the same cores, and for models of real size.
    Change it when the model runs on a CPU with idle cores."""
    nice: int = 0
    """Nice value of the engine's process; 19 is the lowest priority."""
    max_rows: int = 16
    """How many requests decode at the same time. Change it when more requests should be answered at the same time, or
    when memory is short."""
    max_waiting: int = 256
    """How many further requests may wait. One more is answered with 429. Change it when clients should wait longer, or
    be refused earlier, under load."""
    max_versions: int = 8
    """How many adapters are loaded at the same time. Change it when many users or agents have adapters of their own."""
    max_full_versions: int = 2
    """With trainer.parameters = full: how many full copies of the model are loaded besides the base model."""
    cache_tokens: int = 0
    """Tokens whose keys and values are kept, running rows included; 0 leaves it to `cache_bytes`."""
    cache_bytes: int = 0
    """Memory for keys and values; 0 takes two contexts or 1 GiB, whichever is more, in a quarter of the free. Change it
    when conversations are long and memory is free, or when the GPU is shared with the trainer."""
    step_target_ms: float = 25.0
    """The longest decode step, in milliseconds, while a prompt is read and other answers are running. Change it when
    running answers pause too long while a long prompt is read (lower), or long prompts wait too long (higher)."""
    seed: int | None = None
    """Random seed for requests that send none. If unset, their answers are not repeatable. Change it when answers must
    be repeatable, as in tests."""
    max_restarts: int = 3
    """How often a dead engine process is restarted within ten minutes."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ConfigError(f"engine.dtype is {self.dtype!r}", fix=f"use one of {', '.join(DTYPES)}")
        for name, value in (
            ("threads", self.threads),
            ("max_rows", self.max_rows),
            ("max_versions", self.max_versions),
        ):
            if value < 1:
                raise ConfigError(f"engine.{name} is {value}", fix="it is at least 1")
        if self.max_full_versions < 2:
            raise ConfigError(
                f"engine.max_full_versions is {self.max_full_versions}",
                fix="it is at least 2: the version being served, and the one that is being tried",
            )
        for name, value in (
            ("max_waiting", self.max_waiting),
            ("cache_tokens", self.cache_tokens),
            ("cache_bytes", self.cache_bytes),
            ("max_restarts", self.max_restarts),
        ):
            if value < 0:
                raise ConfigError(f"engine.{name} is {value}", fix="it is 0 or more")
        if self.step_target_ms <= 0:
            raise ConfigError(f"engine.step_target_ms is {self.step_target_ms}", fix="it is above 0")


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is being served. `context_length` is what fits: the model's own, or less where the cache is smaller."""

    name: str
    architecture: str
    parameters: int
    vocab_size: int
    context_length: int
    eos_ids: tuple[int, ...]  # by the model's two configurations; its tokenizer and template may name others
    dtype: str
    device: str
    cache_tokens: int
    linear_kernels: tuple[str, ...]  # what was timed fastest for the linears, for the log and the benchmarks


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
    unwiped_tokens: int = 0  # of what was flushed, whose keys and values are still to be overwritten
