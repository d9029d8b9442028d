"""Samples become steps and versions, whatever fails on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from train_doubles import STEPPED
from train_flow import SETTINGS, Flow, flowing

from openclaw_rl.core.adapter import GENTLENESS, NO_NEARER, StepReport, digest_of_folder
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.manifest import read_manifest
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import StoreError, TrainerError
from openclaw_rl.remake.steps import past_step
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionStatus
from openclaw_rl.store.tables.lessons import Refusal
from openclaw_rl.testing.trainer import ScriptedTrainer
from openclaw_rl.train.stage import FROZEN

ONE, TWO = PolicyVersion(SHARED, 1), PolicyVersion(SHARED, 2)


async def rounds(flow: Flow, *, seconds: float = 1000.0, most: int = 30) -> None:
    """Rounds until nothing moves, with long pauses between."""
    for _ in range(most):
        if not await flow.once():
            return
        flow.now_s += seconds
    raise AssertionError("the stage never came to rest")


async def test_a_step_makes_a_version_in_its_folder_with_a_manifest(flow: Flow, tmp_path: Path) -> None:
    await flow.judged("a", -1, hints=1)
    await flow.judged("b", 1)
    assert await flow.once()
    [row] = [row for row in await flow.store.versions() if not row.version.is_base]
    assert (row.version, row.status, row.turns) == (ONE, VersionStatus.CANDIDATE, ("a", "b"))
    assert row.folder == tmp_path / "versions" / "shared.1"
    assert [path.name for path in row.folder.parent.iterdir()] == ["shared.1"]
    manifest = read_manifest(row.folder)
    assert (manifest.version, manifest.parent, manifest.turns) == (ONE, PolicyVersion(SHARED, 0), ("a", "b"))
    assert manifest.digest == row.digest == digest_of_folder(row.folder)
    assert (manifest.metrics, manifest.settings) == ({"loss": 0.5}, {"method": "opd"})
    assert (await flow.state("a"), await flow.state("b")) == (State.TRAINED, State.TRAINED)
    assert flow.stage.candidate_made.is_set()
    assert flow.stage.status.steps == 1


async def test_no_step_is_taken_while_a_version_is_at_the_gate_and_the_next_goes_on_from_it(
    flow: Flow, tmp_path: Path
) -> None:
    for name in ("a", "b", "c", "d"):
        await flow.judged(name, -1)
    await rounds(flow)
    assert flow.trainer.batches == [["a", "b"]]
    assert flow.stage.status.why_waiting == "version shared.1 is at the gate"
    await flow.pass_gate(ONE)
    await rounds(flow)
    assert flow.trainer.batches == [["a", "b"], ["c", "d"]]
    assert flow.trainer.resumed == [None, tmp_path / "versions" / "shared.1"]


async def test_after_a_refusal_the_next_step_starts_from_what_is_served_under_a_new_number(flow: Flow) -> None:
    for name in ("a", "b", "c", "d"):
        await flow.judged(name, -1)
    await rounds(flow)
    await flow.store.settle(ONE, VersionStatus.REFUSED, "too far from the base model", {})
    await rounds(flow)
    assert flow.trainer.resumed == [None, None]
    assert [str(row.version) for row in await flow.store.versions()][-2:] == ["shared.1", "shared.2"]


async def test_fewer_samples_wait_for_others_and_the_status_says_so(flow: Flow) -> None:
    await flow.judged("a", -1)
    await rounds(flow, seconds=0.0)
    assert flow.stage.status.why_waiting.startswith("1 of 2 samples are ready; without more")
    flow.now_s += 60.0
    await rounds(flow, seconds=0.0)
    assert flow.trainer.batches == [["a"]]


async def test_a_promoted_turn_without_reward_makes_no_step_but_rides_along(flow: Flow) -> None:
    await flow.judged("zero", 0, mean=0.0)
    await flow.store.end_session("s1", why="idle", at_s=2.0)
    await rounds(flow)
    assert (flow.stage.status.ready, flow.stage.status.rehearsals) == (0, 1)
    assert flow.trainer.batches == []
    await flow.judged("a", -1, session_id="s2")
    await rounds(flow)
    flow.now_s += 60.0
    await rounds(flow)
    assert flow.trainer.batches == [["zero", "a"]]


class CrashingStore(Store):
    """Loses its disk at the moment a step is to be committed."""

    async def commit_step(self, step: StepRecord) -> None:
        raise StoreError("the disk is gone")


async def test_a_crash_between_renaming_and_commit_trains_nothing_twice(tmp_path: Path) -> None:
    folder = tmp_path / "versions" / "shared.1"
    crashing = await CrashingStore.open(tmp_path)
    flow = Flow(tmp_path, crashing, ScriptedTrainer())
    await flow.judged("a", -1)
    await flow.judged("b", -1)
    with pytest.raises(StoreError):
        await flow.once()
    await crashing.aclose()
    assert folder.is_dir()  # renamed, never committed
    (tmp_path / "versions" / "shared.2.tmp").mkdir()
    (tmp_path / "versions" / "notes").mkdir()

    async with flowing(tmp_path) as again:
        assert await again.state("a") is State.READY
        await again.stage.start()
        assert sorted(path.name for path in folder.parent.iterdir()) == ["notes"]
        await rounds(again)
        assert again.trainer.batches == [["a", "b"]]
        assert again.trainer.resumed == [None]
        await again.pass_gate(ONE)
        await again.stage.start()
        await rounds(again)
        assert again.trainer.batches == [["a", "b"]]
        assert folder.is_dir()


def poisoned(samples: Sequence[Sample]) -> StepReport:
    if any(item.turn == "poison" for item in samples):
        raise TrainerError("out of memory")
    return STEPPED


async def test_a_sample_that_fails_the_trainer_is_found_by_halving_and_given_up(tmp_path: Path) -> None:
    names = ["a", "poison", "b", "c"]
    settings = replace(SETTINGS, batch_size=4, max_lag=9)
    async with flowing(tmp_path, trainer=ScriptedTrainer(poisoned), settings=settings) as flow:
        for name in names:
            await flow.judged(name, -1)
        for _ in range(12):
            await rounds(flow)
            row = (await flow.store.versions())[-1]
            if row.status is VersionStatus.CANDIDATE:
                await flow.pass_gate(row.version)
        assert flow.trainer.batches[:3] == [names, ["a", "poison"], ["a"]]
        assert await flow.state("poison") is DropReason.TRAINER_FAILED
        assert [await flow.state(name) for name in ("a", "b", "c")] == [State.TRAINED] * 3
        assert flow.trainer.batches.count(["poison"]) == 3  # twice, and once more after others went well


async def test_a_trainer_that_fails_on_everything_loses_no_sample_and_is_not_asked_hotly(tmp_path: Path) -> None:
    def broken(samples: Sequence[Sample]) -> StepReport:
        raise TrainerError("there is no trainer")

    async with flowing(tmp_path, trainer=ScriptedTrainer(broken)) as flow:
        await flow.judged("a", -1)
        await flow.judged("b", -1)
        for _ in range(1000):  # seconds
            await flow.once()
            flow.now_s += 1.0
        # pauses of 5, 10, 20, 40, 80, 160, then 300 s
        assert len(flow.trainer.batches) == 9
        assert (await flow.state("a"), await flow.state("b")) == (State.READY, State.READY)
        assert flow.stage.status.last_error == "there is no trainer"
        assert "it is tried again in" in flow.stage.status.why_waiting
        flow.trainer.answer = lambda samples: STEPPED
        flow.now_s += 1000.0
        await rounds(flow)
        await flow.pass_gate(ONE)
        await rounds(flow)
        assert (await flow.state("a"), await flow.state("b")) == (State.TRAINED, State.TRAINED)


async def test_a_sample_whose_loss_is_not_finite_is_given_up_after_one_retry_alone(tmp_path: Path) -> None:
    def report(samples: Sequence[Sample]) -> StepReport:
        if any(item.turn == "nan" for item in samples):
            return StepReport(False, {}, why="the loss or its gradient is not finite")
        return STEPPED

    async with flowing(tmp_path, trainer=ScriptedTrainer(report)) as flow:
        await flow.judged("nan", -1)
        await flow.judged("a", -1)
        await rounds(flow)
        assert flow.trainer.batches == [["nan", "a"], ["nan"], ["nan"], ["a"]]
        assert await flow.state("nan") is DropReason.NOT_FINITE


async def test_a_batch_that_teaches_nothing_is_dropped_and_makes_no_version(tmp_path: Path) -> None:
    nothing = StepReport(False, {}, (("a", "too_long"), ("b", "something new")), "no sample carries a signal")
    async with flowing(tmp_path, trainer=ScriptedTrainer(lambda samples: nothing)) as flow:
        await flow.judged("a", -1)
        await flow.judged("b", -1)
        await rounds(flow)
        assert [await flow.state(name) for name in "ab"] == [DropReason.TOO_LONG, DropReason.TRAINER_FAILED]
        await flow.judged("c", -1)
        await flow.judged("d", -1)
        await rounds(flow)
        assert [await flow.state(name) for name in "cd"] == [DropReason.NO_SIGNAL] * 2
        assert not (tmp_path / "versions").exists()


async def test_what_no_update_came_nearer_to_is_named_as_not_learnable(tmp_path: Path) -> None:
    in_vain = StepReport(False, {"updates_undone": 9.0}, (), NO_NEARER)
    async with flowing(tmp_path, trainer=ScriptedTrainer(lambda samples: in_vain)) as flow:
        await flow.judged("a", -1)
        await flow.judged("b", -1)
        await rounds(flow)
        assert [await flow.state(name) for name in "ab"] == [DropReason.NOT_LEARNABLE] * 2


async def test_what_a_refused_version_gave_back_is_learned_apart_and_more_gently(flow: Flow) -> None:
    for name in ("a", "b", "c"):
        await flow.judged(name, -1)
    await rounds(flow)
    await flow.store.refusals.refuse(ONE, Refusal("it forgot how to add", {}, most=2))
    await rounds(flow)
    assert flow.trainer.batches == [["a", "b"], ["a", "b"]]  # c, which was not refused, waits for its own step
    assert flow.trainer.gentleness == [0, 1]
    again = await flow.store.version(TWO)
    assert again is not None and again.metrics == {"loss": 0.5, GENTLENESS: 1.0}
    assert past_step(again).gentleness == 1  # it is made again as it was made
    await flow.store.refusals.refuse(TWO, Refusal("again", {}, most=2))
    await rounds(flow)
    assert (flow.trainer.batches[-1], flow.trainer.gentleness[-1]) == (["a", "b"], 2)
    await flow.pass_gate(PolicyVersion(SHARED, 3))
    await rounds(flow)
    assert (flow.trainer.batches[-1], flow.trainer.gentleness[-1]) == (["c"], 0)
    assert [await flow.state(name) for name in "abc"] == [State.TRAINED] * 3


async def test_samples_the_trainer_could_not_use_are_dropped_in_the_same_transaction(tmp_path: Path) -> None:
    report = StepReport(True, {}, (("a", "too_long"),))
    async with flowing(tmp_path, trainer=ScriptedTrainer(lambda samples: report)) as flow:
        await flow.judged("a", -1)
        await flow.judged("b", -1)
        await rounds(flow)
        assert (await flow.state("a"), await flow.state("b")) == (DropReason.TOO_LONG, State.TRAINED)
        assert (await flow.store.versions())[-1].turns == ("b",)


@pytest.mark.parametrize("problem", [OSError("no space left"), TrainerError("the process is gone")])
async def test_a_version_that_cannot_be_written_leaves_no_folder_and_keeps_the_samples(
    tmp_path: Path, problem: Exception
) -> None:
    async with flowing(tmp_path, trainer=ScriptedTrainer(export_error=problem)) as flow:
        await flow.judged("a", -1)
        await flow.judged("b", -1)
        assert await flow.once()
        assert await flow.state("a") is State.READY
        assert list((tmp_path / "versions").iterdir()) == []
        flow.trainer.export_error = None
        flow.now_s += 1000.0
        await rounds(flow)
        assert await flow.state("a") is State.TRAINED


async def test_stale_samples_are_dropped_by_the_versions_that_were_served_since(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=replace(SETTINGS, batch_size=1)) as flow:
        for number, is_good in ((1, True), (2, False), (3, True), (4, True)):
            await flow.judged(f"t{number}", -1, version=await flow.store.current(SHARED))
            await rounds(flow)
            if is_good:
                await flow.pass_gate(PolicyVersion(SHARED, number))
            else:
                await flow.store.settle(PolicyVersion(SHARED, number), VersionStatus.REFUSED, "empty replies", {})
        # Two are allowed: after 0 there were 1, 3 and 4; after 1 there were 3 and 4, for 2 was never served.
        await flow.judged("old", -1, version=PolicyVersion(SHARED, 0))
        await flow.judged("fits", -1, version=ONE)
        await rounds(flow)
        assert await flow.state("old") is DropReason.STALE
        assert await flow.state("fits") is State.TRAINED


async def test_a_step_whose_parent_is_rolled_back_meanwhile_is_discarded_and_taken_again(
    flow: Flow, tmp_path: Path
) -> None:
    for name in ("a", "b", "c", "d"):
        await flow.judged(name, -1)
    await rounds(flow)
    await flow.pass_gate(ONE)
    flow.trainer.before_export = lambda: flow.store.set_current(PolicyVersion(SHARED, 0), why="rolled back")
    await flow.once()
    assert await flow.state("c") is State.READY
    assert not (tmp_path / "versions" / "shared.2").exists()
    await rounds(flow)
    assert flow.trainer.batches == [["a", "b"], ["c", "d"], ["c", "d"]]
    assert flow.trainer.resumed == [None, tmp_path / "versions" / "shared.1", None]
    assert (await flow.store.versions())[-1].parent == PolicyVersion(SHARED, 0)


async def test_a_turn_forgotten_while_it_is_trained_on_leaves_no_trace_in_the_weights(
    flow: Flow, tmp_path: Path
) -> None:
    await flow.judged("a", -1)
    await flow.judged("b", -1)
    flow.trainer.before_export = lambda: flow.store.drop("a", DropReason.FORGOTTEN)
    await flow.once()
    assert (await flow.state("a"), await flow.state("b")) == (DropReason.FORGOTTEN, State.READY)
    assert list((tmp_path / "versions").iterdir()) == []


async def test_the_stage_runs_by_itself_from_verdict_to_version(tmp_path: Path) -> None:
    async with flowing(tmp_path) as flow, asyncio.timeout(20):
        running = asyncio.gather(flow.teach.run(), flow.stage.run())
        try:
            await flow.judged("a", -1)
            await flow.judged("b", 1)
            await flow.stage.candidate_made.wait()
            flow.stage.candidate_made.clear()
            await flow.pass_gate(ONE)
            flow.stage.version_settled.set()
            for name in ("c", "d"):
                await flow.judged(name, -1)
            await flow.stage.candidate_made.wait()
        finally:
            running.cancel()
        assert flow.trainer.batches == [["a", "b"], ["c", "d"]]


async def test_while_training_is_frozen_what_is_ready_waits(flow: Flow) -> None:
    await flow.store.orders.freeze(at_s=1.0)
    await flow.judged("a", -1)
    await flow.judged("b", -1)
    await rounds(flow)
    assert flow.trainer.batches == []
    assert (flow.stage.status.ready, flow.stage.status.why_waiting) == (2, FROZEN)
    await flow.store.orders.unfreeze()
    assert await flow.once()
    assert flow.trainer.batches == [["a", "b"]]


async def test_behind_a_pin_a_step_goes_on_from_what_was_trained_last(flow: Flow, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        await flow.judged(name, -1)
    assert await flow.once()
    await flow.pass_gate(ONE)
    await flow.store.orders.pin(PolicyVersion(SHARED, 0), at_s=1.0)
    await rounds(flow)
    row = await flow.store.version(TWO)
    assert row is not None and row.parent == ONE
    assert flow.trainer.resumed == [None, tmp_path / "versions" / "shared.1"]
