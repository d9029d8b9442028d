"""A user's adapter on top of the shared one: trained alone, written as one, and taken apart again."""

from __future__ import annotations

import json
import os
import signal
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from trainer_models import Recorder, policy_logp, settings_of

from openclaw_rl.core.adapter import CONFIG, TRAINER_FACTS, TRAINER_STATE, WEIGHTS, Adapter
from openclaw_rl.core.manifest import Manifest, write_manifest
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import AdapterError, TrainerError
from openclaw_rl.trainers.checkpoint import CheckpointCache
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.process import TrainerProcess
from openclaw_rl.trainers.settings import Method, MethodSettings

SETTINGS = settings_of(MethodSettings(name=Method.COMBINE))
SHARED_ONE, SHARED_TWO = PolicyVersion("shared", 1), PolicyVersion("shared", 2)
ANN_ONE, ANN_TWO = PolicyVersion("user-ann", 1), PolicyVersion("user-ann", 2)


@pytest.fixture
def trainer(trainer_model: Path) -> LoraTrainer:
    return LoraTrainer.open(trainer_model, SETTINGS)


def shared(trainer: LoraTrainer, recorder: Recorder, folder: Path, version: PolicyVersion, *, steps: int) -> Adapter:
    """A shared version so many steps from the base model."""
    trainer.restore(None)
    for _ in range(steps):
        trainer.step(recorder.batch())
    return trainer.export(folder, version)


def own_batch(recorder: Recorder) -> list[Sample]:
    """What ann alone said: praise for a reply of hers."""
    return [recorder.sample((9, 8, 7), (30, 31, 32, 33), turn="ann's", score=1.0)]


def logp(trainer: LoraTrainer, recorder: Recorder) -> torch.Tensor:
    return torch.cat([policy_logp(trainer, one) for one in [*recorder.batch(), *own_batch(recorder)]])


def test_a_fresh_adapter_on_top_says_what_the_one_below_says(
    trainer: LoraTrainer, recorder: Recorder, tmp_path: Path
) -> None:
    below = shared(trainer, recorder, tmp_path / "shared.1", SHARED_ONE, steps=2)
    want = logp(trainer, recorder)
    trainer.restore(None)
    assert float((logp(trainer, recorder) - want).abs().max()) > 1e-2
    trainer.restore(None, below.folder)
    assert float((logp(trainer, recorder) - want).abs().max()) < 1e-6


def test_a_step_moves_the_upper_adapter_alone_and_is_written_as_one(
    trainer: LoraTrainer, recorder: Recorder, tmp_path: Path
) -> None:
    below = shared(trainer, recorder, tmp_path / "shared.1", SHARED_ONE, steps=2)
    trainer.restore(None, below.folder)
    assert trainer.step(own_batch(recorder)).took_step
    trainer.export(tmp_path / "ann.1", ANN_ONE)
    lower, both = load_file(below.folder / WEIGHTS), load_file(tmp_path / "ann.1" / WEIGHTS)
    rank = SETTINGS.rank
    for name, whole in both.items():
        first = whole[:rank] if "lora_A" in name else whole[:, :rank]
        assert torch.equal(first, lower[name])
        assert whole.shape[0 if "lora_A" in name else 1] == 2 * rank
    config = json.loads((tmp_path / "ann.1" / CONFIG).read_text())
    assert (config["r"], config["lora_alpha"]) == (2 * rank, 2 * SETTINGS.alpha)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
def test_peft_reads_the_two_as_one_and_says_the_same(
    trainer: LoraTrainer, trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    from peft import PeftModel

    below = shared(trainer, recorder, tmp_path / "shared.1", SHARED_ONE, steps=2)
    trainer.restore(None, below.folder)
    trainer.step(own_batch(recorder))
    both = trainer.export(tmp_path / "ann.1", ANN_ONE)
    praised = own_batch(recorder)[0]
    other = Recorder(trainer_model)  # peft changes the model it was given
    other.model = PeftModel.from_pretrained(other.model, str(both.folder)).eval()
    theirs = torch.tensor(other.logp(praised.prompt, praised.response))
    assert float((theirs - policy_logp(trainer, praised)).abs().max()) < 1e-5


def test_training_goes_on_from_it_bit_for_bit(
    trainer: LoraTrainer, trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    below = shared(trainer, recorder, tmp_path / "shared.1", SHARED_ONE, steps=2)
    trainer.restore(None, below.folder)
    trainer.step(own_batch(recorder))
    first = trainer.export(tmp_path / "ann.1", ANN_ONE)
    trainer.step(own_batch(recorder))
    second = trainer.export(tmp_path / "ann.2", ANN_TWO)
    other = LoraTrainer.open(trainer_model, SETTINGS)
    other.restore(first.folder, below.folder)
    other.step(own_batch(recorder))
    assert other.export(tmp_path / "again", ANN_TWO).digest == second.digest


def test_the_upper_adapter_moves_onto_another_lower_one(
    trainer: LoraTrainer, recorder: Recorder, tmp_path: Path
) -> None:
    one = shared(trainer, recorder, tmp_path / "shared.1", SHARED_ONE, steps=1)
    two = shared(trainer, recorder, tmp_path / "shared.2", SHARED_TWO, steps=4)
    trainer.restore(None, one.folder)
    trainer.step(own_batch(recorder))
    ann = trainer.export(tmp_path / "ann.1", ANN_ONE)
    upper = trainer.model.weights()
    trainer.restore(ann.folder, two.folder)
    moved = trainer.export(tmp_path / "ann.2", ANN_TWO)
    rank, whole, lower = SETTINGS.rank, load_file(moved.folder / WEIGHTS), load_file(two.folder / WEIGHTS)
    for name, own in upper.items():
        assert torch.equal(whole[name][rank:] if "lora_A" in name else whole[name][:, rank:], own)
        assert torch.equal(whole[name][:rank] if "lora_A" in name else whole[name][:, :rank], lower[name])
    trainer.restore(ann.folder)  # and onto nothing at all
    assert trainer.export(tmp_path / "ann.3", ANN_TWO).digest != moved.digest
    assert json.loads((tmp_path / "ann.3" / CONFIG).read_text())["r"] == rank


def test_a_lower_adapter_of_another_rank_and_alpha_weighs_what_it_weighed(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    other = LoraTrainer.open(trainer_model, replace(SETTINGS, rank=3, alpha=SETTINGS.alpha * 2))
    below = shared(other, recorder, tmp_path / "shared.1", SHARED_ONE, steps=2)
    trainer = LoraTrainer.open(trainer_model, SETTINGS)
    trainer.restore(None, below.folder)
    assert float((logp(trainer, recorder) - logp(other, recorder)).abs().max()) < 1e-5


def test_a_lower_adapter_over_other_layers_is_refused_and_nothing_has_changed(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    narrow = LoraTrainer.open(trainer_model, replace(SETTINGS, targets="q_proj"))
    below = shared(narrow, recorder, tmp_path / "shared.1", SHARED_ONE, steps=1)
    trainer = LoraTrainer.open(trainer_model, SETTINGS)
    trainer.step(recorder.batch())
    before = logp(trainer, recorder)
    with pytest.raises(AdapterError, match="other layers"):
        trainer.restore(None, below.folder)
    assert torch.equal(logp(trainer, recorder), before)


def test_the_gap_is_measured_against_the_sum_that_sampled(
    trainer: LoraTrainer, recorder: Recorder, tmp_path: Path
) -> None:
    below = shared(trainer, recorder, tmp_path / "shared.1", SHARED_ONE, steps=2)
    trainer.restore(None, below.folder)
    first = own_batch(recorder)[0]
    of_shared = replace(first, version=SHARED_ONE, logp=tuple(policy_logp(trainer, first).tolist()))
    assert trainer.step([of_shared]).metrics["train_rollout_logp_gap"] < 1e-6
    ann = trainer.export(tmp_path / "ann.1", ANN_ONE)
    of_ann = replace(first, version=ANN_ONE, logp=tuple(policy_logp(trainer, first).tolist()))
    trainer.restore(ann.folder, below.folder)
    assert trainer.step([of_ann]).metrics["train_rollout_logp_gap"] < 1e-6
    trainer.restore(ann.folder)  # the same upper adapter on the base model is another policy
    assert "train_rollout_logp_gap" not in trainer.step([of_ann]).metrics


async def test_one_process_serves_several_scopes_as_if_each_had_its_own(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    hinted, praised, _ = recorder.batch()
    process = TrainerProcess(trainer_model, replace(SETTINGS, nice=0, scopes_in_memory=1))
    made: dict[str, Adapter] = {}
    try:
        for turn in range(4):  # ann and bob take turns, so each has left the memory when it comes again
            user, batch = (("ann", [hinted]), ("bob", [praised]))[turn % 2]
            before = made.get(user)
            await process.step(batch, resume=None if before is None else before.folder)
            made[user] = await process.export(tmp_path / f"{user}.{turn}", PolicyVersion(f"user-{user}", turn + 1))
    finally:
        await process.aclose()
    for user, batch in (("ann", [hinted]), ("bob", [praised])):
        alone = LoraTrainer.open(trainer_model, SETTINGS)
        alone.step(batch)
        alone.step(batch)
        assert alone.export(tmp_path / f"{user} alone", made[user].version).digest == made[user].digest


async def test_a_process_that_was_killed_rebases_as_the_trainer_itself_does(
    trainer: LoraTrainer, trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    one = shared(trainer, recorder, tmp_path / "shared.1", SHARED_ONE, steps=1)
    two = shared(trainer, recorder, tmp_path / "shared.2", SHARED_TWO, steps=3)
    trainer.restore(None, one.folder)
    trainer.step(own_batch(recorder))
    ann = trainer.export(tmp_path / "ann.1", ANN_ONE)
    trainer.restore(ann.folder, two.folder)
    want = trainer.export(tmp_path / "here", ANN_TWO)
    async with aclosing(await TrainerProcess.start(trainer_model, replace(SETTINGS, nice=0))) as process:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(TrainerError):
            await process.rebase(resume=ann.folder, under=two.folder)
        await process.rebase(resume=ann.folder, under=two.folder)
        assert (await process.export(tmp_path / "there", ANN_TWO)).digest == want.digest


def test_the_shelf_holds_so_many_and_lets_go_of_the_one_unused_longest(
    trainer: LoraTrainer, recorder: Recorder, tmp_path: Path
) -> None:
    shapes = {name: tuple(one.shape) for name, one in trainer.model.weights().items()}
    folders = [shared(trainer, recorder, tmp_path / str(at), SHARED_ONE, steps=1).folder for at in range(3)]
    shelf = CheckpointCache(2)
    first, second = shelf.read(folders[0], shapes), shelf.read(folders[1], shapes)
    assert shelf.read(folders[0], shapes) is first
    shelf.read(folders[2], shapes)
    assert len(shelf) == 2
    assert shelf.read(folders[0], shapes) is first
    assert shelf.read(folders[1], shapes) is not second
    renamed = folders[0].rename(tmp_path / "renamed")
    assert shelf.read(renamed, shapes) is first


def test_a_version_whose_state_is_gone_is_gone_on_from_with_fresh_moments(
    trainer: LoraTrainer, recorder: Recorder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    below = shared(trainer, recorder, tmp_path / "shared.1", SHARED_ONE, steps=2)
    trainer.restore(None, below.folder)
    assert trainer.step(own_batch(recorder)).took_step
    own = trainer.export(tmp_path / "user-ann.1", ANN_ONE)
    want = logp(trainer, recorder)
    for adapter, upon in ((below, None), (own, SHARED_ONE)):
        base = PolicyVersion(adapter.version.scope, 0)
        manifest = Manifest(adapter.version, base, "step", (), 0, adapter.digest, 1.0, upon=upon)
        write_manifest(adapter.folder, manifest)
        for name in (TRAINER_STATE, TRAINER_FACTS):
            (adapter.folder / name).unlink()
    trainer.restore(own.folder, below.folder)
    assert float((logp(trainer, recorder) - want).abs().max()) < 1e-6
    assert trainer.optimizer_state() == {}
    assert "version=user-ann.1 has no trainer state" in caplog.text
    assert trainer.step(own_batch(recorder)).took_step
    trainer.restore(below.folder)
    assert trainer.optimizer_state() == {} and trainer.step(recorder.batch()).took_step
    trainer.export(tmp_path / "shared.2", SHARED_TWO)
    assert (tmp_path / "shared.2" / TRAINER_FACTS).is_file()
