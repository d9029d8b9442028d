"""Candidates into service, and back."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from publish_doubles import Flow, Minds, flowing, turn, version

from openclaw_rl.core.adapter import WEIGHTS
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.manifest import FILE_NAME, version_folder
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import SHARED
from openclaw_rl.errors import AdapterError, ConfigError, DamageError
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.stage import ON_ITS_WAY
from openclaw_rl.publish.swap import ServedVersions, rollback
from openclaw_rl.publish.versions import ancestors, missing_bytes, verified
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.testing.turns import a_sample


async def test_a_good_candidate_is_served_and_both_store_and_status_say_so(flow: Flow) -> None:
    await flow.stage.start()
    assert flow.served.current() == version(0)
    await flow.talk(turn("a"))
    await flow.candidate(1)
    assert await flow.stage.once()
    assert flow.served.current() == await flow.store.current(SHARED) == version(1)
    row = await flow.row(1)
    assert (row.status, row.why) == (VersionStatus.LIVE, "passed the gate")
    assert row.metrics["loss"] == 0.5
    assert (row.metrics["gate_turns"], row.metrics["gate_kl"], row.metrics["gate_faults"]) == (1.0, 0.0, 0.0)
    assert flow.stage.version_settled.is_set()
    assert (flow.stage.status.current, flow.stage.status.published) == ("shared.1", 1)
    assert not await flow.stage.once()


async def test_a_refused_version_is_kept_explained_and_not_served(tmp_path: Path) -> None:
    async with flowing(tmp_path, Minds(chance={version(1): 0.01})) as flow:
        await flow.talk(turn("a"))
        row = await flow.candidate(1)
        assert await flow.stage.once()
        assert flow.served.current() == await flow.store.current(SHARED) == version(0)
        settled = await flow.row(1)
        assert (settled.status, settled.why) == (
            VersionStatus.REFUSED,
            "it is 2.22 nats a token from the base model; 1.5 are allowed",
        )
        assert row.folder is not None and row.folder.is_dir()
        assert flow.engine.loaded == []
        assert flow.stage.status.refused == 1
        assert flow.stage.version_settled.is_set()


async def learned(flow: Flow, name: str) -> None:
    """A turn with a sample that waits for a step."""
    await flow.talk(turn(name))
    await flow.store.pair(NextState(name, (message(Role.USER, "No."),), NextStateSource.USER))
    await flow.store.judge(Verdict(name, -1, VerdictSource.VOTES))
    await flow.store.admit(a_sample(turn(name)))


async def test_what_a_refused_version_learned_from_is_learned_again_once_and_the_status_says_so(tmp_path: Path) -> None:
    async with flowing(tmp_path, Minds(chance={version(1): 0.01, version(2): 0.01})) as flow:
        await learned(flow, "a")
        for number, told in (
            (1, "will be learned again, with a smaller learning rate"),
            (2, "are given up as not learnable"),
        ):
            await flow.candidate(number, parent=0, turns=("a",), consumed=("a",))
            assert await flow.stage.once()
            assert flow.stage.status.notice == (
                f"version shared.{number} was refused: it is 2.22 nats a token from the base model; 1.5 are allowed; "
                f"1 of its samples {told}"
            )
            row = await flow.store.row("a")
            assert row is not None and (row.state, row.reason) == (
                (State.READY, None) if number == 1 else (State.DROPPED, DropReason.NOT_LEARNABLE)
            )


async def test_a_version_overtaken_by_a_rollback_gives_its_samples_back_as_they_were(flow: Flow) -> None:
    await learned(flow, "a")
    row = VersionRow(version(3), version(2), None, "", VersionStatus.CANDIDATE, "", 1.0, ("a",))
    await flow.store.commit_step(StepRecord("s", 1.0, 2.0, ("a",), (), {}, row))
    assert await flow.stage.once()
    assert (await flow.row(3)).status is VersionStatus.REFUSED
    assert [sample.turn for sample in await flow.store.ready(limit=9)] == ["a"]
    assert (await flow.store.refusals.returned(SHARED), flow.stage.status.notice) == ({}, "")


async def test_an_adapter_of_noise_that_the_engine_refuses_changes_nothing(flow: Flow) -> None:
    await flow.publish(1)
    await flow.candidate(2, data=b"nan")
    assert await flow.stage.once()
    assert flow.served.current() == version(1)
    assert "not finite" in (await flow.row(2)).why


def cut(folder: Path) -> None:
    weights = folder / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-4])


def flip(folder: Path) -> None:
    weights = folder / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1] + b"#")


def lose_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


def lose_manifest(folder: Path) -> None:
    (folder / FILE_NAME).unlink()


def spoil_manifest(folder: Path) -> None:
    (folder / FILE_NAME).write_text('{"format": 1}')


def lose(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


DAMAGE = [
    (cut, "truncated: 4 bytes are missing"),
    (flip, "was changed after training"),
    (lose_weights, "cannot be read"),
    (lose_manifest, "cannot be read"),
    (spoil_manifest, "is incomplete"),
    (lose, "is missing"),
]


@pytest.mark.parametrize(("damage", "why"), DAMAGE, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_damaged_candidate_is_refused_with_what_is_wrong(
    flow: Flow, tmp_path: Path, damage: object, why: str
) -> None:
    assert callable(damage)
    row = await flow.candidate(1)
    damage(version_folder(tmp_path, version(1)))
    assert await flow.stage.once()
    assert why in (await flow.row(1)).why
    assert flow.served.current() == version(0)
    adapter = row.adapter()
    assert adapter is not None
    with pytest.raises(AdapterError) as caught:
        verified(adapter)
    assert "roll back" in caught.value.fix


async def test_a_folder_of_another_version_is_not_taken_for_this_one(flow: Flow) -> None:
    adapter = (await flow.candidate(1)).adapter()
    assert adapter is not None and verified(adapter).version == version(1)
    with pytest.raises(AdapterError, match=r"holds version shared\.1, not shared\.2"):
        verified(replace(adapter, version=version(2)))


def test_a_weights_file_tells_how_much_of_it_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"\x10\0\0")
    assert missing_bytes(path) == 5
    path.write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    assert missing_bytes(path) == 14
    path.write_bytes(b"\x02\0\0\0\0\0\0\0[]")
    with pytest.raises(ValueError, match="no header"):
        missing_bytes(path)


async def test_an_engine_that_is_away_leaves_the_candidate_waiting(flow: Flow) -> None:
    flow.engine.is_away = True
    await flow.candidate(1)
    for _ in range(30):
        assert not await flow.stage.once()
        flow.now_s += 1.0
    assert flow.engine.calls == ["load shared.1"] * 3  # at 0, 5 and 15 s; the next is at 35 s
    assert (await flow.row(1)).status is VersionStatus.CANDIDATE
    assert "the engine is gone" in flow.stage.status.notice
    assert not flow.stage.version_settled.is_set()
    flow.engine.is_away = False
    flow.now_s += 300.0
    assert await flow.stage.once()
    assert flow.served.current() == version(1)
    assert flow.stage.status.notice == ""


async def test_a_candidate_made_from_a_version_that_is_no_longer_served_is_refused(flow: Flow) -> None:
    await flow.publish(1)
    await flow.candidate(2)
    await rollback(flow.store, version(0), served=flow.served)
    assert await flow.stage.once()
    assert (await flow.row(2)).why == "it was made from shared.1, and shared.0 is served now"


async def test_old_versions_are_unloaded_and_the_parent_stays_at_hand(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=PublishSettings(keep_loaded=2)) as flow:
        await flow.publish(1, 2, 3)
        assert flow.engine.loaded == [version(2), version(3)]
        assert flow.engine.calls[-1] == "unload shared.1"


async def test_rolling_back_serves_the_older_version_and_training_goes_on_from_there(flow: Flow) -> None:
    await flow.publish(1, 2, 3)
    await rollback(flow.store, version(1), served=flow.served)  # which was unloaded
    assert flow.served.current() == await flow.store.current(SHARED) == version(1)
    assert version(1) in flow.engine.loaded
    await flow.candidate(4, parent=1)
    assert await flow.stage.once()
    assert flow.served.current() == version(4)
    assert [row.version for row in ancestors(await flow.store.versions(), version(4))][:1] == [version(1)]
    line = await flow.store.line(version(4), most=9)
    assert [row.version.number for row in line if not row.version.is_base] == [4, 1]
    assert [row.version for row in await flow.store.line(version(4), most=1)] == [version(4)]
    await rollback(flow.store, version(0), served=flow.served)
    assert flow.served.current() == version(0)


def test_a_line_of_many_versions_is_walked_in_one_go() -> None:
    """Years of corrections: whoever compared each with all before it would be at it for hours."""
    rows = [
        VersionRow(version(at), version(at - 1), None, "", VersionStatus.LIVE, "", 1.0, ()) for at in range(1, 50_001)
    ]
    assert [row.version.number for row in ancestors(rows, version(50_000))] == list(range(49_999, 0, -1))
    turned = [replace(rows[0], parent=version(2)), rows[1]]  # each made from the other: damaged, but no trap
    assert {row.version.number for row in ancestors(turned, version(2))} == {1, 2}


async def test_no_rolling_back_to_what_is_refused_unknown_or_damaged(tmp_path: Path) -> None:
    async with flowing(tmp_path, Minds({version(3): "$"}), PublishSettings(keep_loaded=1)) as flow:
        await flow.talk(turn("a"))
        await flow.publish(1, 2)
        await flow.candidate(3)
        assert await flow.stage.once()
        with pytest.raises(ConfigError, match=r"shared\.3 was refused: 1 of 1 trial replies"):
            await rollback(flow.store, version(3), served=flow.served)
        with pytest.raises(ConfigError, match=r"there is no version shared\.9"):
            await rollback(flow.store, version(9), served=flow.served)
        cut(version_folder(tmp_path, version(1)))
        with pytest.raises(AdapterError, match="truncated"):
            await rollback(flow.store, version(1), served=flow.served)
        assert flow.served.current() == await flow.store.current(SHARED) == version(2)


async def test_looking_for_a_candidate_reads_no_version_that_is_settled(flow: Flow, tmp_path: Path) -> None:
    await flow.stage.start()
    await flow.publish(1, 2)
    row = await flow.candidate(3, parent=0)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as sql:
        sql.execute("UPDATE versions SET turns = x'00' WHERE status != 'candidate'")  # cannot be read any more
    with pytest.raises(DamageError):
        await flow.store.versions()
    assert await flow.store.candidates() == [row]
    assert await flow.stage.once()  # refused: it was made from another version than is served
    assert flow.stage.status.at_gate == 1
    assert not await flow.stage.once()
    assert (flow.stage.status.at_gate, flow.stage.status.refused) == (0, 1)


async def test_the_status_names_what_is_served_from_the_moment_it_is(flow: Flow) -> None:
    await flow.publish(1, 2)
    assert flow.stage.status.current == "shared.2"
    await rollback(flow.store, version(1), served=flow.served)
    assert flow.stage.status.current == "shared.1"


async def test_a_notice_is_over_when_the_owner_has_something_else_served(tmp_path: Path) -> None:
    async with flowing(tmp_path) as flow:
        await flow.publish(1, 2, 3)
    cut(version_folder(tmp_path, version(3)))
    async with flowing(tmp_path) as again:
        await again.stage.start()
        assert again.stage.status.notice.startswith("version shared.3 is damaged, so shared.2 is served")
        await rollback(again.store, version(1), served=again.served)
        assert (again.stage.status.notice, again.stage.status.current) == ("", "shared.1")


async def test_what_was_served_is_served_again_after_a_restart(tmp_path: Path) -> None:
    async with flowing(tmp_path) as flow:
        await flow.publish(1, 2)
    async with flowing(tmp_path) as again:
        await again.stage.start()
        assert again.served.current() == version(2)
        assert again.engine.calls == ["load shared.2"]
        assert again.stage.status.notice == ""


async def test_a_version_damaged_while_the_program_was_off_gives_way_to_its_nearest_intact_ancestor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with flowing(tmp_path) as flow:
        await flow.publish(1, 2, 3)
    cut(version_folder(tmp_path, version(3)))
    flip(version_folder(tmp_path, version(2)))
    async with flowing(tmp_path) as again:
        with caplog.at_level(logging.ERROR):
            await again.stage.start()
        assert again.served.current() == await again.store.current(SHARED) == version(1)
        assert again.stage.status.notice.startswith("version shared.3 is damaged, so shared.1 is served: ")
        assert "truncated" in caplog.text
    for number in (1, 2, 3):
        lose(version_folder(tmp_path, version(number)))
    async with flowing(tmp_path) as bare:
        await bare.stage.start()
        assert bare.served.current() == version(0)


async def test_a_crash_between_the_gate_and_the_swap_is_mended_at_start(tmp_path: Path) -> None:
    async with flowing(tmp_path) as flow:
        await flow.publish(1)
        await flow.candidate(2)
        await flow.store.settle(version(2), VersionStatus.LIVE, ON_ITS_WAY, {})
    async with flowing(tmp_path) as again:
        await again.stage.start()
        assert again.served.current() == await again.store.current(SHARED) == version(2)
        assert (await again.row(2)).why == "passed the gate"
    async with flowing(tmp_path) as later:
        await rollback(later.store, version(1), served=later.served)
        await later.stage.start()
        assert later.served.current() == version(1)  # a wish is not mended away


async def test_a_scope_without_a_version_of_its_own_is_served_the_shared_one(flow: Flow) -> None:
    await flow.publish(1)
    assert flow.served.current("ann") == version(1)


async def test_only_a_loaded_version_can_be_swapped_in(flow: Flow) -> None:
    served = ServedVersions(flow.store, flow.engine)
    with pytest.raises(ValueError, match="not loaded"):
        await served.swap(version(1), why="test")
    assert served.current() == version(0)


async def test_the_stage_runs_by_itself_when_the_bell_rings(tmp_path: Path) -> None:
    async with flowing(tmp_path) as flow, asyncio.timeout(20):
        running = asyncio.create_task(flow.stage.run())
        try:
            for number in (1, 2):
                await flow.candidate(number)
                flow.stage.candidate_made.set()
                await flow.stage.version_settled.wait()
                flow.stage.version_settled.clear()
        finally:
            running.cancel()
        assert flow.served.current() == version(2)
