"""The trainer is started ahead of a step, while samples for it are being made."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from train_flow import SETTINGS, flowing

from openclaw_rl.errors import TrainerError
from openclaw_rl.testing.trainer import ScriptedTrainer


@pytest.mark.parametrize(("batch_size", "is_frozen", "prepared"), [(1, False, 1), (2, False, 0), (1, True, 0)])
async def test_the_trainer_is_started_while_a_sample_for_a_step_is_being_made(
    tmp_path: Path, batch_size: int, is_frozen: bool, prepared: int
) -> None:
    settings = replace(SETTINGS, batch_size=batch_size, min_batch=batch_size)
    async with flowing(tmp_path, settings=settings) as flow:
        flow.teach.before_samples = flow.stage.expect_step
        if is_frozen:
            await flow.store.orders.freeze(at_s=1.0)
        await flow.teach.once()
        assert flow.stage._preparing is None  # nothing was judged
        await flow.judged("a", 1)
        await flow.teach.once()
        assert flow.stage._preparing is not None
        await flow.stage._preparing
        assert flow.trainer.prepared == prepared


@pytest.mark.parametrize("problem", [TrainerError("no memory"), OSError("no memory")])
async def test_a_trainer_that_cannot_be_started_ahead_is_no_failure_of_a_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, problem: Exception
) -> None:
    class Away(ScriptedTrainer):
        async def prepare(self) -> None:
            raise problem

    caplog.set_level("INFO")
    async with flowing(tmp_path, trainer=Away(), settings=replace(SETTINGS, batch_size=1)) as flow:
        flow.stage.expect_step()
        assert flow.stage._preparing is not None
        await flow.stage._preparing
        assert "cannot be started ahead of the step, which will try again: no memory" in caplog.text
        assert not flow.stage.status.failures


async def test_what_prepares_a_trainer_ends_with_the_stage(tmp_path: Path) -> None:
    class Slow(ScriptedTrainer):
        async def prepare(self) -> None:
            await asyncio.sleep(600)

    async with flowing(tmp_path, trainer=Slow(), settings=replace(SETTINGS, batch_size=1)) as flow:
        running = asyncio.ensure_future(flow.stage.run())
        await asyncio.sleep(0.05)
        flow.stage.expect_step()
        flow.stage.expect_step()  # it is under way
        preparing = flow.stage._preparing
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert preparing is not None and preparing.cancelled()
