"""On a GPU: base weights of engine and trainer are in its memory once, and a trainer outlives the engine's process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gpu_processes
import pytest
import torch
from gpu_processes import engine_on, samples, save_model, settings_for
from torch.testing import assert_close

from openclaw_rl.errors import TrainerError
from openclaw_rl.trainers.process import TrainerProcess
from openclaw_rl.weights.lending import loan_folder
from openclaw_rl.weights.mapped_files import cache_folder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {size: save_model(folder / size, size) for size in gpu_processes.SIZES}


def _trained(models: dict[str, Path], folder: str, result: Path) -> dict[str, int]:
    words = [sys.executable, gpu_processes.__file__, str(models["large"]), str(models["tiny"]), folder, str(result)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    print(folder or "own", found)
    return found


def test_the_second_process_adds_little_and_computes_the_same(models: dict[str, Path], tmp_path: Path) -> None:
    with engine_on("cuda", models["large"], "float32"):
        files = list(loan_folder(cache_folder()).iterdir())
        assert [file.suffix for file in files] == [".json"]
        shared = _trained(models, str(loan_folder(cache_folder())), tmp_path / "shared")
        own = _trained(models, "", tmp_path / "own")
    assert shared["is_shared"] and not own["is_shared"]
    assert shared["took_step"] and own["took_step"]
    weights = own["weights"]
    assert own["taken"] > 0.9 * weights and own["allocated"] > 0.9 * weights  # the measure sees weights
    assert shared["allocated"] < weights / 10
    assert shared["taken"] < weights / 4
    assert shared["peak"] < weights / 4  # while it was compared, too
    first, second = (torch.load(tmp_path / name, weights_only=True) for name in ("shared", "own"))
    assert_close(first.pop("logits"), second.pop("logits"), rtol=0, atol=1e-3)
    for name, one in first.items():
        # the first update is near the rate for each number, so a sign that rounding turns shows as two rates
        assert float(((one - second[name]).abs() > 1e-4).float().mean()) < 0.01, name


async def _until(claim: Callable[[], bool]) -> None:
    while True:
        if claim():
            return
        await asyncio.sleep(0.01)


async def test_a_trainer_ends_with_the_engine_whose_weights_it_reads_and_begins_again(models: dict[str, Path]) -> None:
    trainer = TrainerProcess(models["large"], settings_for("cuda", "bfloat16", updates=2000))
    try:
        async with asyncio.timeout(240):
            with engine_on("cuda", models["large"], "bfloat16") as engine:
                step = asyncio.create_task(trainer.step(samples(hinted=True), resume=None))
                await _until(lambda: step.done() or (trainer.progress is not None and trainer.progress.updates > 0))
                assert not step.done(), step
                engine.kill()
                with pytest.raises(TrainerError, match="ended"):
                    await step
            with engine_on("cuda", models["large"], "bfloat16") as engine:
                await trainer.step(samples(), resume=None)  # starts it again, with the new engine's weights
                pid = trainer.pid
                assert pid is not None
                engine.kill()
                # without a call, too: as long as it maps the memory of a process that is gone, nobody else has it
                await _until(lambda: trainer.pid is None)
            await trainer.step(samples(), resume=None)  # with its own weights
            assert trainer.pid not in (None, pid)
    finally:
        await trainer.aclose()
