"""What an engine's and a trainer's process take on a CPU: peak resident memory while they work, less a bare baseline.

The baseline is the same processes doing the same on a model of no size: the interpreter, the libraries and what they
allocate for themselves. The peak is the kernel's own (VmHWM), reset once the model is loaded.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from benchmarks.common import make_model
from openclaw_rl.core.adapter import StepReport
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.trainers.process import TrainerProcess
from openclaw_rl.trainers.settings import TrainerSettings

Dtype = Literal["float32", "bfloat16"]
Bits = Literal["auto", "8bit", "4bit"]
MIB = 1 << 20
REPLY, HINT, WRITTEN = 64, 24, 8  # tokens of a sample's reply, of its hint, and of each answer the engine writes


@dataclass(frozen=True, slots=True)
class MadeModel:
    """The sizes of a random Qwen3."""

    hidden: int
    layers: int
    vocabulary: int
    is_tied: bool = True

    def __str__(self) -> str:
        """As figures name it."""
        tied = "" if self.is_tied else ", head of its own"
        return f"Qwen3, {self.layers} layers, hidden {self.hidden}, vocabulary {self.vocabulary}{tied}"


@dataclass(frozen=True, slots=True)
class Load:
    """What the processes are given to do."""

    dtype: Dtype = "float32"
    weights: Bits = "auto"
    context: int = 512
    users: int = 2
    rank: int = 16
    reply: int = REPLY
    samples: int = 1
    device: str = "cpu"
    cache_bytes: int = 0


def made_model(folder: Path, made: MadeModel) -> Path:
    """Writes a random model in float32."""
    heads = max(2, made.hidden // 64)
    return make_model(
        folder,
        vocab_size=made.vocabulary,
        hidden_size=made.hidden,
        intermediate_size=3 * made.hidden,
        num_hidden_layers=made.layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        head_dim=64,
        tie_word_embeddings=made.is_tied,
    )


def measured(model: Path, load: Load) -> tuple[float, float]:
    """Mebibytes of the engine's process, and of the trainer's."""
    bare = _bare(load.dtype, load.weights)
    engine, trainer = asyncio.run(_engine(model, load)), asyncio.run(_trainer(model, load))
    return engine - bare[0], trainer - bare[1]


@cache
def _bare(dtype: Dtype, weights: Bits) -> tuple[float, float]:
    """The processes with a model of half a million weights, of which no more than 5 MiB are its own."""
    with tempfile.TemporaryDirectory() as place:
        model = made_model(Path(place) / "bare", MadeModel(64, 1, 512))
        load = Load(dtype=dtype, weights=weights, context=REPLY + 16, users=1, rank=1)
        return asyncio.run(_engine(model, load)), asyncio.run(_trainer(model, load))


def together(model: Path, load: Load) -> dict[str, float]:
    """Mebibytes of both processes while both are up and have worked: resident, and their proportional share.

    A page that both map counts half for each in the latter, so the difference is what they share; the libraries' pages
    are among it.
    """

    async def both() -> dict[str, float]:
        engine, trainer = await opened_engine(model, load), await opened_trainer(model, load)
        try:
            await served(engine, load)
            await learned(trainer, load)
            assert trainer.pid is not None
            pids = (engine.pid, trainer.pid)
            return {
                "resident_mib": round(sum(_rollup_mib(pid, "Rss") for pid in pids)),
                "proportional_mib": round(sum(_rollup_mib(pid, "Pss") for pid in pids)),
                "weights_file_resident_mib": round(sum(_mapped_mib(pid, "Rss") for pid in pids)),
                "weights_file_proportional_mib": round(sum(_mapped_mib(pid, "Pss") for pid in pids)),
            }
        finally:
            await engine.aclose()
            await trainer.aclose()

    return asyncio.run(both())


async def opened_engine(model: Path, load: Load) -> LocalEngine:
    """An engine's process for the load."""
    settings = EngineSettings(
        model=str(model), device=load.device, seed=0, step_target_ms=1000.0, max_rows=max(16, load.users)
    )
    other = replace(settings, dtype=load.dtype, weights=load.weights, cache_bytes=load.cache_bytes)
    return await LocalEngine.start(other)


async def _engine(model: Path, load: Load) -> float:
    async with aclosing(await opened_engine(model, load)) as engine:
        _reset_peak(engine.pid)
        await served(engine, load)
        return _peak_mib(engine.pid)


async def served(engine: LocalEngine, load: Load) -> None:
    """Every user asks once, at the same time, with a context that the answer fills."""

    async def one(number: int) -> None:
        prompt = Prompt(_ids(load.context - WRITTEN, number))
        async for _ in engine.generate(prompt, Sampling(max_tokens=WRITTEN), BASE):
            pass

    async with asyncio.TaskGroup() as group:
        for number in range(load.users):
            group.create_task(one(number))


async def opened_trainer(model: Path, load: Load) -> TrainerProcess:
    """A trainer's process for the load."""
    settings = TrainerSettings(rank=load.rank, alpha=2.0 * load.rank, device=load.device, updates=3, nice=0)
    return await TrainerProcess.start(model, replace(settings, dtype=load.dtype, weights=load.weights))


async def _trainer(model: Path, load: Load) -> float:
    async with aclosing(await opened_trainer(model, load)) as trainer:
        assert trainer.pid is not None
        _reset_peak(trainer.pid)
        await learned(trainer, load)
        return _peak_mib(trainer.pid)


async def learned(trainer: TrainerProcess, load: Load) -> StepReport:
    """A step over replies to different prompts, each at the end of a context and corrected with a hint."""

    def sample(number: int) -> Sample:
        prompt, reply = _ids(load.context - load.reply, 10 * number + 1), _ids(load.reply, 10 * number + 2)
        hint = HintPrompt("a hint", prompt + _ids(HINT, 3))
        return Sample(
            turn=f"turn {number}", session="session", user="user", prompt=prompt, response=reply,
            logp=(-6.0,) * load.reply, mask=(True,) * load.reply, version=BASE, score=-1.0, hints=(hint,),
        )  # fmt: skip

    return await trainer.step([sample(number) for number in range(load.samples)], resume=None)


def _ids(count: int, seed: int) -> tuple[int, ...]:
    return tuple((at * (2 * seed + 3) + seed) % 500 + 4 for at in range(count))


def _reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / MIB


def _rollup_mib(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024 / MIB


def _mapped_mib(pid: int, name: str) -> float:
    """Of the file that holds weights in few bits."""
    total, is_inside = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_inside = "openclaw-rl/weights" in line
        elif is_inside and line.startswith(f"{name}:"):
            total += int(line.split()[1])
    return total * 1024 / MIB
