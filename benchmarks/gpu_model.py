"""What the parts of `benchmarks.gpu` share: a model of Qwen3-4B's shape, and how much of a device's memory is used."""

from __future__ import annotations

import math
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

import torch

from benchmarks.common import Figures, progress
from openclaw_rl.engines import EngineSettings

CONTEXT = 40_960
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Qwen3."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    is_tied: bool = True

    def __str__(self) -> str:
        """As conditions state it."""
        return f"random Qwen3, {self.layers} layers, hidden {self.hidden}, vocabulary {self.vocabulary}, bfloat16"


QWEN3_4B = Shape(2560, 9728, 36, 32, 8, 128, 151_936)
QWEN3_1_7B = Shape(2048, 6144, 28, 16, 8, 128, 151_936)
QWEN3_0_6B = Shape(1024, 3072, 28, 16, 8, 128, 151_936)
TINY = Shape(64, 192, 2, 4, 2, 16, 4096)


@dataclass(frozen=True, slots=True)
class Setup:
    """What every part is given."""

    home: Path
    device: str
    shape: Shape
    graphs: bool = True  # whether the engine may replay decode steps as CUDA graphs

    @property
    def model(self) -> Path:
        """The model's folder."""
        return self.home / "model"

    @property
    def is_gpu(self) -> bool:
        """Whether there is a device to measure; without one the parts run on small sizes, to be tried."""
        return self.device == "cuda"

    def sized(self, full: int, small: int) -> int:
        """The size on a GPU, or what does for a try without one."""
        return full if self.is_gpu else small

    @property
    def usual_logp(self) -> float:
        """What the model gives a random token, in nats, near enough: its logits have a spread of about 1."""
        return -math.log(self.shape.vocabulary) - 0.5


def engine_settings(
    setup: Setup,
    *,
    model: Path | None = None,
    dtype: Literal["float32", "bfloat16"] = "bfloat16",
    max_rows: int = 16,
    graphs: bool | None = None,
) -> EngineSettings:
    """The settings of an engine of this model or another; `graphs` as the run was asked for if it is None."""
    return EngineSettings(
        model=str(model or setup.model),
        device=setup.device,
        dtype=dtype,
        max_rows=max_rows,
        cuda_graphs=setup.graphs if graphs is None else graphs,
    )


def make(setup: Setup) -> int:
    """Writes the model, drawn on the device itself; the number of its parameters."""
    return make_shape(setup.model, setup.shape, setup.device)


def make_shape(folder: Path, shape: Shape, device: str) -> int:
    """Writes a model of these sizes; the number of its parameters."""
    from transformers import AutoModelForCausalLM, Qwen3Config

    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.is_tied,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        initializer_range=0.02,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return int(model.num_parameters())


def guarded(work: Callable[[], Figures]) -> Figures:
    """What was measured, or what went wrong; what comes after it is measured all the same."""
    try:
        return work()
    except Exception as problem:
        traceback.print_exc()
        return {"error": f"{type(problem).__name__}: {problem}"[:1000]}
    finally:
        free_unused()


def free_unused() -> None:
    """Gives back what this process keeps of the device's memory without using it."""
    import gc

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def used_bytes() -> int:
    """What all processes together use of the device, contexts and what allocators keep included."""
    free, total = torch.cuda.mem_get_info()
    return total - free


class Watch:
    """The device's memory while it is entered, beyond what was used before: in use now, and at most. 0 without one."""

    def __init__(self, setup: Setup) -> None:
        self._is_on = setup.is_gpu
        self._before = used_bytes() if self._is_on else 0
        self._most = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="memory")

    def now_bytes(self) -> int:
        """What is in use."""
        return used_bytes() - self._before if self._is_on else 0

    def most_bytes(self) -> int:
        """The most that was seen."""
        self._most = max(self._most, self.now_bytes())
        return self._most

    def __enter__(self) -> Watch:
        """Begins."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends."""
        self._is_over.set()
        self._thread.join()

    def _poll(self) -> None:
        while self._is_on and not self._is_over.wait(POLL_S):
            self.most_bytes()


def ballast(setup: Setup, *, leaving_bytes: int) -> torch.Tensor | None:
    """Memory held so that just so much of the device is free for others: a large card is a small one to them."""
    if not setup.is_gpu:
        return None
    free_unused()
    spare = torch.cuda.mem_get_info()[0] - leaving_bytes
    if spare <= 0:
        return None
    progress(f"{gb(spare)} GB of the device are held, {gb(leaving_bytes)} GB are free")
    return torch.empty(spare, dtype=torch.uint8, device=setup.device)


def gb(size_bytes: float) -> float:
    """Bytes in GB, of 10^9 bytes."""
    return round(size_bytes / 1e9, 3)
