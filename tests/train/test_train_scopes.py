"""Each scope has its own steps over its own samples, on top of the shared version being served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from train_doubles import next_of, turn
from train_doubles import verdict as verdict_of
from train_flow import SETTINGS, Flow, flowing

from openclaw_rl.core.adapter import StepReport
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.manifest import read_manifest
from openclaw_rl.core.scope import Scopes
from openclaw_rl.core.turn import Session
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import TrainerError
from openclaw_rl.store.rows import VersionStatus

ANN, BOB = "user-ann", "user-bob"
PERSONAL = replace(SETTINGS, scopes=Scopes.USER)
BOTH = replace(SETTINGS, scopes=Scopes.SHARED_USER)


def version(scope: str, number: int) -> PolicyVersion:
    return PolicyVersion(scope, number)


async def said(flow: Flow, user: str, *names: str, of: PolicyVersion = BASE) -> None:
    """Turns of a user that were judged bad."""
    for name in names:
        await flow.store.see_session(Session(user, user, "main", 0.0, 1.0))
        asked = turn(name, session=user, user=user, version=of)
        await flow.store.add_turn(asked, chain=f"chain {name}")
        assert await flow.store.pair(next_of(name))
        assert await flow.store.judge(verdict_of(name, -1))


async def rounds(flow: Flow) -> None:
    for _ in range(20):
        if not await flow.once():
            return
    raise AssertionError("the stage never came to rest")


def folder(flow: Flow, made: PolicyVersion) -> Path:
    return flow.home / "versions" / str(made)


async def test_each_user_has_steps_over_their_own_turns_alone(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=PERSONAL) as flow:
        await said(flow, "ann", "a1", "a2")
        await said(flow, "bob", "b1", "b2")
        await rounds(flow)
        assert flow.trainer.batches == [["a1", "a2"], ["b1", "b2"]]
        assert flow.trainer.resumed == [None, None]
        made = [row.version for row in await flow.store.versions() if not row.version.is_base]
        assert made == [version(ANN, 1), version(BOB, 1)]
        assert {await flow.state(name) for name in ("a1", "a2", "b1", "b2")} == {State.TRAINED}
        await said(flow, "ann", "a3", "a4")
        await flow.pass_gate(version(BOB, 1))
        await rounds(flow)
        assert len(flow.trainer.batches) == 2  # ann's version is still at the gate
        assert flow.stage.status.why_waiting == "version user-ann.1 is at the gate"
        await flow.pass_gate(version(ANN, 1))
        await rounds(flow)
        assert flow.trainer.resumed[2] == folder(flow, version(ANN, 1))


async def test_with_a_shared_one_that_learns_too_each_turn_trains_both_once(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=BOTH) as flow:
        await said(flow, "ann", "a1")
        await said(flow, "bob", "b1")
        await rounds(flow)
        assert flow.trainer.batches == [["a1", "b1"]]  # each user's own needs another
        assert await flow.state("a1") is State.READY
        assert "user-ann: 1 of 2 samples are ready" in flow.stage.status.why_waiting
        await flow.pass_gate(version("shared", 1))
        await said(flow, "ann", "a2", of=version("shared", 1))
        await rounds(flow)
        assert flow.trainer.batches[1:] == [["a1", "a2"]]
        assert flow.trainer.under == [None, folder(flow, version("shared", 1))]
        assert await flow.state("a1") is State.TRAINED
        own = await flow.store.version(version(ANN, 1))
        assert own is not None and own.upon == version("shared", 1)
        assert read_manifest(folder(flow, version(ANN, 1))).upon == version("shared", 1)


async def test_a_failing_scope_does_not_hold_up_another(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=PERSONAL) as flow:

        def answer(samples: object) -> StepReport:
            if flow.trainer.batches[-1][0].startswith("a"):
                raise TrainerError("out of memory")
            return StepReport(True, {})

        flow.trainer.answer = answer
        await said(flow, "ann", "a1", "a2")
        await said(flow, "bob", "b1", "b2")
        await rounds(flow)
        assert flow.trainer.batches == [["a1", "a2"], ["b1", "b2"]]
        assert (flow.stage.status.failures, flow.stage.status.steps) == (1, 1)
        flow.now_s += 10.0
        await rounds(flow)
        assert flow.trainer.batches[2] == ["a1"]  # half of the batch


async def test_what_shared_steps_left_behind_is_stale_there_and_fresh_for_its_owner(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=replace(BOTH, max_lag=0)) as flow:
        await said(flow, "ann", "a1")
        await said(flow, "bob", "b1")
        await rounds(flow)
        await flow.pass_gate(version("shared", 1))
        await said(flow, "ann", "a2")  # sampled before shared.1 was served
        await rounds(flow)
        assert flow.trainer.batches == [["a1", "b1"], ["a1", "a2"]]
        assert await flow.state("a2") is State.TRAINED  # by ann's own step; the shared one gave it up
        assert await flow.store.ready(limit=9) == []


async def test_the_lag_of_a_turn_of_ones_own_version_is_that_of_the_shared_one_it_holds(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=replace(BOTH, max_lag=0)) as flow:
        await said(flow, "ann", "a1", "a2")
        await rounds(flow)
        await flow.pass_gate(version("shared", 1))
        await said(flow, "ann", "a3", of=version(ANN, 1))  # holds no shared version: made before there was one
        await rounds(flow)
        assert "a3" not in {sample.turn for sample in await flow.store.ready(limit=9)}
        await flow.pass_gate(version(ANN, 1))
        await said(flow, "bob", "b1", of=version("shared", 1))
        await rounds(flow)
        assert "b1" in {sample.turn for sample in await flow.store.ready(limit=9)}
        assert await flow.state("a3") is not DropReason.STALE


async def test_a_version_in_use_follows_the_shared_one_when_it_moves_and_one_not_in_use_does_not(
    tmp_path: Path,
) -> None:
    async with flowing(tmp_path, settings=PERSONAL) as flow:
        await said(flow, "ann", "a1", "a2")
        await said(flow, "bob", "b1", "b2")
        await rounds(flow)
        for scope in (ANN, BOB):
            await flow.pass_gate(version(scope, 1))
        await make_shared(flow, 1)
        flow.stage.active = lambda: [ANN]
        await rounds(flow)
        shared = folder(flow, version("shared", 1))
        assert flow.trainer.rebased == [(folder(flow, version(ANN, 1)), shared)]
        made = await flow.store.version(version(ANN, 2))
        assert made is not None
        assert (made.parent, made.upon, made.turns) == (version(ANN, 1), version("shared", 1), ())
        await flow.pass_gate(version(ANN, 2))
        await rounds(flow)
        assert len(flow.trainer.rebased) == 1
        await flow.store.set_current(version("shared", 0), why="rolled back by hand")
        await rounds(flow)
        assert flow.trainer.rebased[1:] == [(folder(flow, version(ANN, 2)), None)]  # off what was rolled back


async def test_a_rebase_that_was_refused_is_not_tried_again(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=PERSONAL) as flow:
        await said(flow, "ann", "a1", "a2")
        await rounds(flow)
        await flow.pass_gate(version(ANN, 1))
        await make_shared(flow, 1)
        flow.stage.active = lambda: [ANN]
        await rounds(flow)
        await flow.store.settle(version(ANN, 2), VersionStatus.REFUSED, "a loop", {})
        await rounds(flow)
        assert len(flow.trainer.rebased) == 1
        await make_shared(flow, 2)
        await rounds(flow)
        assert len(flow.trainer.rebased) == 2


async def test_a_user_without_a_name_to_be_called_by_teaches_the_shared_one(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=PERSONAL) as flow:
        await said(flow, "x" * 200, "a1", "a2")
        await rounds(flow)
        [made] = [row.version for row in await flow.store.versions() if not row.version.is_base]
        assert made == version("shared", 1)


async def make_shared(flow: Flow, number: int) -> None:
    """A shared version, made by somebody who has none of their own, and served."""
    flow.rules(scopes=Scopes.SHARED)
    await said(flow, "guest", f"g{number}a", f"g{number}b", of=version("shared", number - 1))
    active, flow.stage.active = flow.stage.active, tuple
    await rounds(flow)
    flow.stage.active = active
    await flow.pass_gate(version("shared", number))
    flow.rules(scopes=PERSONAL.scopes)
