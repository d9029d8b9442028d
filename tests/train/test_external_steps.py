"""Steps of a trainer elsewhere under the training stage: what dies between the hand-back and the commit comes again."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from train_flow import SETTINGS, flowing

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, digest_of_folder
from openclaw_rl.core.ledger import State
from openclaw_rl.core.manifest import read_manifest
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import RequestError
from openclaw_rl.trainers.external.trainer import ExternalTrainer
from openclaw_rl.trainers.open import open_trainer
from openclaw_rl.trainers.settings import TrainerSettings

ONE = PolicyVersion(SHARED, 1)
AT_ONCE = replace(SETTINGS, batch_size=1)
LAYER = "model.layers.0.mlp.up_proj"


def a_trainer(folder: Path) -> ExternalTrainer:
    """A trainer for a model of one layer, and in `made` an adapter for that."""
    model, made = folder / "model", folder / "made"
    model.mkdir()
    made.mkdir()
    save_file({f"{LAYER}.weight": np.zeros((6, 4), np.float32)}, model / "model.safetensors")
    name = f"base_model.model.{LAYER}"
    weights = {
        f"{name}.lora_A.weight": np.ones((2, 4), np.float32),
        f"{name}.lora_B.weight": np.ones((6, 2), np.float32),
    }
    save_file(weights, made / WEIGHTS)
    (made / CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}))
    return ExternalTrainer(model, TrainerSettings(kind="external", rank=2, alpha=4.0), folder / "received")


async def handed_back(trainer: ExternalTrainer, made: Path) -> str:
    """Leases the batch and hands an adapter back; the lease's name."""
    batch = await trainer.lease(wait_s=5.0)
    assert batch is not None and [one.turn for one in batch.samples] == ["a"]
    for name in (CONFIG, WEIGHTS):
        await trainer.receive(batch.lease, name, 0, (made / name).read_bytes())
    assert await trainer.hand_back(batch.lease, digest_of_folder(made), {"loss": 0.5})
    return batch.lease


async def test_what_is_handed_back_becomes_a_version_and_the_sample_is_consumed(tmp_path: Path) -> None:
    trainer = a_trainer(tmp_path)
    async with flowing(tmp_path / "home", trainer=trainer, settings=AT_ONCE) as flow:  # type: ignore[arg-type]
        await flow.judged("a", -1)
        await flow.teach.once()
        stepping = asyncio.create_task(flow.stage.once())
        await handed_back(trainer, tmp_path / "made")
        assert await stepping
        assert trainer.received.stat().st_mode & 0o077 == 0
        row = await flow.store.version(ONE)
        assert row is not None and row.folder is not None and row.turns == ("a",)
        assert read_manifest(row.folder).metrics["loss"] == 0.5
        assert await flow.state("a") is State.TRAINED


async def test_a_server_that_dies_after_the_hand_back_offers_the_batch_again(tmp_path: Path) -> None:
    trainer = a_trainer(tmp_path)
    async with flowing(tmp_path / "home", trainer=trainer, settings=AT_ONCE) as flow:  # type: ignore[arg-type]
        await flow.judged("a", -1)
        await flow.teach.once()
        stepping = asyncio.create_task(flow.stage.once())
        lease = await handed_back(trainer, tmp_path / "made")
        stepping.cancel()  # before it was written
        with suppress(asyncio.CancelledError):
            await stepping
        assert await flow.store.version(ONE) is None
        again = asyncio.create_task(flow.stage.once())
        with pytest.raises(RequestError, match="is over"):
            trainer.extend(lease)
        await handed_back(trainer, tmp_path / "made")
        assert await again
        assert [row.turns for row in await flow.store.versions() if row.turns] == [("a",)]


@pytest.mark.parametrize("kind", ["external", "local"])
async def test_what_a_killed_server_received_is_removed_by_the_next_one(tmp_path: Path, kind: str) -> None:
    settings = TrainerSettings(kind=kind)
    killed = open_trainer(tmp_path, TrainerSettings(kind="external"), tmp_path)
    assert isinstance(killed, ExternalTrainer)
    killed.received.mkdir()
    (killed.received / WEIGHTS).write_bytes(b"of somebody's words")
    open_trainer(tmp_path, settings, tmp_path)
    assert not killed.received.exists()
