"""This machine's GPUs and cores, and the engine settings that suit them. Loads no library."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

GB = 10**9
# Memory of a server and its trainer together, relative to the weights: 25.0 GB were measured for 8 GB of weights.
ROOM_A_WEIGHT = 3.0
_ASK = ("nvidia-smi", "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits")
_BFLOAT16_SINCE = 8.0  # compute capability; older GPUs emulate it
_MANY_CORES = 4


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU, as its driver describes it."""

    name: str
    memory_bytes: int
    capability: float


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware for computing. `has_vllm` refers to the Python that runs this."""

    cores: int
    gpus: tuple[Gpu, ...] = ()
    has_vllm: bool = False

    def __str__(self) -> str:
        """In words."""
        named = ", ".join(f"{gpu.name} with {gpu.memory_bytes / GB:.0f} GB" for gpu in self.gpus)
        return f"{named or 'no NVIDIA GPU'}, {self.cores} CPU cores"


@dataclass(frozen=True, slots=True)
class Advice:
    """Settings by their dotted names, each with the reason, and what may not work."""

    settings: tuple[tuple[str, str | int, str], ...]
    warning: str = ""


def this_machine() -> Machine:
    """Asks the NVIDIA driver's own program; if it is missing or fails, there are no GPUs."""
    try:
        done = subprocess.run(_ASK, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return Machine(os.cpu_count() or 1)
    return Machine(os.cpu_count() or 1, gpus_of(done.stdout), find_spec("vllm") is not None)


def gpus_of(answer: str) -> tuple[Gpu, ...]:
    """The GPUs in the output of the driver's program; invalid lines are left out."""
    found = []
    for line in answer.splitlines():
        parts = [part.strip() for part in line.rsplit(",", 2)]
        try:
            found.append(Gpu(parts[0], int(parts[1]) << 20, float(parts[2])))
        except (IndexError, ValueError):  # "[N/A]", or a message of the driver
            continue
    return tuple(found)


def weights_bytes(folder: Path) -> int:
    """The size of a model folder's weights."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def advice(machine: Machine, *, weights: int | None, is_toy: bool, is_shared: bool) -> Advice:
    """Engine settings for the machine. `weights` are the model's bytes, None if they are not known."""
    if is_toy:
        return Advice((("engine.device", "cpu", "the bundled toy gains nothing from a GPU"),))
    if not machine.gpus:
        device = ("engine.device", "cpu", "no NVIDIA GPU was found")
        threads = ("engine.threads", machine.cores // 2, "half of the cores; the trainer needs the others")
        slow = "on a CPU a model of more than about 1 billion weights answers slowly"
        return Advice((device, threads) if machine.cores >= _MANY_CORES else (device,), slow)
    gpu = machine.gpus[0]
    found: list[tuple[str, str | int, str]] = []
    if machine.has_vllm and is_shared:
        found.append(("engine.kind", "vllm", "it is installed here, and several people will ask"))
    found.append(("engine.device", "cuda:0", gpu.name))
    if gpu.capability >= _BFLOAT16_SINCE:
        found.append(("engine.dtype", "bfloat16", "half the memory of float32"))
    else:
        found.append(("engine.dtype", "float32", "this GPU computes bfloat16 slowly"))
    if len(machine.gpus) > 1:
        found.append(("trainer.device", "cuda:1", "the trainer has a GPU of its own"))
    needed = (weights or 0) * (ROOM_A_WEIGHT if len(machine.gpus) == 1 else ROOM_A_WEIGHT / 2)
    if needed > gpu.memory_bytes:
        held = f"{(weights or 0) / GB:.1f} GB of weights need about {needed / GB:.0f} GB to be served and trained"
        return Advice(tuple(found), f"{held}; {gpu.name} has {gpu.memory_bytes / GB:.0f} GB")
    return Advice(tuple(found))
