"""The settings of an engine. No torch: the server reads this too."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal

from openclaw_rl.errors import ConfigError

DTYPES = ("auto", "float32", "bfloat16", "float16")


class EngineKind(StrEnum):
    """What computes tokens."""

    LOCAL = "local"  # this project's own, in a process on this machine
    VLLM = "vllm"
    SGLANG = "sglang"


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """Servers of vLLM or SGLang: reached at `urls`, or started here."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset({"check_s", "gather_ms", "silent_s", "start_s"})

    urls: tuple[str, ...] = ()
    """Where servers of the model are, one for each replica, such as `["http://127.0.0.1:8000"]`. If empty, they are
    started here. Change it when your own servers run elsewhere; they must read the folder of adapters."""
    api_key: str = ""
    """What these servers ask for as their key. Set it when they were started with one."""
    python: str = ""
    """The Python that has vLLM or SGLang installed; empty takes the one that runs this server. Change it when the
    engine is installed in an environment of its own, which is advisable."""
    replicas: int = 1
    """How many servers are started here. Change it when the machine has several GPUs; see `options` for which."""
    options: tuple[str, ...] = ()
    """Further arguments for each server that is started here, such as `["--gpu-memory-utilization", "0.6"]`. Change it
    when memory or parallelism must be arranged as the engine's own documentation says."""
    start_s: float = 600.0
    """How long a server may take to start, in seconds."""
    check_s: float = 5.0
    """Seconds between checks whether a server that does not answer is available again."""
    silent_s: float = 600.0
    """How long a server may send nothing in the middle of an answer, or before one, in seconds. Then the answer
    continues at another server, or at this one once it answers again."""
    gather_ms: float = 50.0
    """How long vLLM may hold sampled tokens back to send several at once, in milliseconds, by how fast it sampled for
    earlier requests; with more than 8 answers at once in proportion longer, up to 4 times. The first and the last ones
    are sent immediately. With 0 each is, which takes more CPU time."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ConfigError(f"engine.remote.replicas is {self.replicas}", fix="it is at least 1")
        for name, value in (("start_s", self.start_s), ("check_s", self.check_s), ("silent_s", self.silent_s)):
            if value <= 0:
                raise ConfigError(f"engine.remote.{name} is {value}", fix="it is above 0")
        if self.gather_ms < 0:
            raise ConfigError(f"engine.remote.gather_ms is {self.gather_ms}", fix="it is at least 0")
        for url in self.urls:
            if not url.startswith(("http://", "https://")):
                raise ConfigError(f"engine.remote.urls holds {url!r}", fix="write http:// or https:// in front")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the model is run. Threads, memory and devices are those of the local engine."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset(
        {"cache_tokens", "cuda_graphs", "max_full_versions", "max_restarts", "max_waiting", "nice", "step_target_ms"}
    )

    kind: EngineKind = EngineKind.LOCAL
    """`local` (this project's own engine), `vllm` or `sglang`. Change it when the model has billions of weights and
    many people use it."""
    model: str = ""
    """Folder (or hub name) of a Hugging Face causal language model."""
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1` ...; `auto` takes a GPU if there is one. Change it when the model should run on
    another GPU, or on the CPU although there is a GPU."""
    dtype: str = "auto"
    """`float32`, `bfloat16` or `float16`; `auto` is float32 below 100 M parameters on a CPU, else bfloat16. Change it
    when memory is short, or when the automatic number format is not the one you want."""
    weights: Literal["auto", "8bit", "4bit"] = "auto"
    """In how many bits the base weights are stored: `8bit`, `4bit`, or `auto`: all of `dtype`. LoRA weights are not
    affected, and the trainer does the same unless `trainer.weights` is set (docs/plan.md). Change it when the model
    does not fit into memory otherwise."""
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
    """Memory for keys and values; 0 takes two contexts or 1 GiB, whichever is more, at most a quarter of what is free.
    Change it when conversations are long and memory is free, or when the GPU is shared with the trainer."""
    cuda_graphs: bool = True
    """On a GPU, whether the kernels of a decode step are recorded once and launched together. It costs a few MB for
    each number of running requests. Switch it off to look for a fault in the engine."""
    step_target_ms: float = 25.0
    """The longest decode step, in milliseconds, while a prompt is read and other answers are running. If the running
    answers alone take more than half of it, prompts get as long as they do. Change it when running answers pause too
    long while a long prompt is read (lower), or long prompts wait too long (higher)."""
    seed: int | None = None
    """Random seed for requests that send none. If unset, their answers are not repeatable. Change it when answers must
    be repeatable, as in tests."""
    max_restarts: int = 3
    """How often a dead engine process is restarted within ten minutes."""

    remote: RemoteSettings = field(default_factory=RemoteSettings)
    """Where servers of vLLM or SGLang are, or how they are started."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ConfigError(f"engine.dtype is {self.dtype!r}", fix=f"use one of {', '.join(DTYPES)}")
        if self.weights != "auto" and self.kind is not EngineKind.LOCAL:
            raise ConfigError(
                f"engine.weights is {self.weights} and engine.kind {self.kind}: only the local engine does this",
                fix=f"quantise with {self.kind}'s own option in engine.remote.options, and leave engine.weights out",
            )
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
