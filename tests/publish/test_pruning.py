"""Weights that nobody needs are removed and nothing else is, whatever is in use and wherever it is cut off."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from publish_doubles import Flow, Minds, cut_weights, flowing, letters, turn, version, write_adapter

from openclaw_rl.core.adapter import CONFIG, TRAINER_FACTS, TRAINER_STATE, WEIGHTS
from openclaw_rl.core.manifest import FILE_NAME, version_folder
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.doctor.check import check_home
from openclaw_rl.errors import AdapterError
from openclaw_rl.publish.compare import Comparison
from openclaw_rl.publish.pruning import KEPT_BY_HAND_S, OnDisk, Pruning, on_disk
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.swap import LEFT_S, pin, rollback
from openclaw_rl.publish.watch import Watch
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.book import Phase
from openclaw_rl.store.forget.selection import ForgetTarget
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.store.tables.keeping import Keep

CHILD = """
import asyncio, sys
from pathlib import Path
from openclaw_rl.publish.pruning import Pruning
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.store.db import Store
from openclaw_rl.testing.engine import ScriptedEngine

async def main():
    home = Path(sys.argv[1])
    store = await Store.open(home)
    pruning = Pruning(store, ServedVersions(store, ScriptedEngine([])), PublishSettings(keep_versions=1), home)
    print("here", flush=True)
    await pruning.once()
    print("done", flush=True)
    await store.aclose()

asyncio.run(main())
"""


@dataclass
class Kept:
    """A stage whose engine holds one version beside the served one, and what prunes."""

    flow: Flow
    pruning: Pruning
    now_s: float = 100.0

    def __post_init__(self) -> None:
        self.flow.served.clock = lambda: self.now_s

    async def made(self, upto: int) -> None:
        """Versions up to this one, each served in its turn; long ago for all that requests may run on."""
        for number in range(1, upto + 1):
            await self.flow.candidate(number)
            folder = version_folder(self.flow.home, version(number))
            (folder / TRAINER_STATE).write_bytes(b"moments")
            (folder / TRAINER_FACTS).write_text("{}", "utf-8")
            (folder / "note.txt").write_text("the owner's")
            assert await self.flow.stage.once()
        self.now_s += LEFT_S

    async def once(self) -> list[int]:
        return [found.number for found in await self.pruning.once()]

    async def with_weights(self) -> list[int]:
        """The versions that have weights by their rows, having looked that they have them."""
        found = []
        for row in await self.flow.store.versions():
            if row.folder is None:
                continue
            assert (row.folder / FILE_NAME).is_file() and (row.folder / CONFIG).is_file()
            held = {path.name for path in row.folder.glob("*.safetensors")}
            assert bool(held) == (row.pruned_s is None), row.version
            found += [row.version.number] if held else []
        return found


@pytest_asyncio.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    settings = PublishSettings(gate=False, keep_versions=2, keep_loaded=1, watch_turns=3)
    async with flowing(tmp_path, Minds(), settings) as flow:
        await flow.stage.start()
        yield Kept(flow, Pruning(flow.store, flow.served, settings, tmp_path, flow.stage.prune_due))


async def test_the_newest_keep_their_weights_and_of_the_others_stays_what_made_them(kept: Kept) -> None:
    await kept.made(5)
    assert kept.pruning.due.is_set()  # by what was published
    before = (await kept.flow.row(1)).digest
    assert await kept.once() == [1, 2, 3]
    assert await kept.with_weights() == [4, 5]
    folder = version_folder(kept.flow.home, version(1))
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, FILE_NAME, "note.txt", TRAINER_FACTS]
    row = await kept.flow.row(1)
    assert (row.digest, row.status, row.pruned_s is not None) == (before, VersionStatus.LIVE, True)
    assert kept.pruning.on_disk.versions == 2 and kept.pruning.on_disk.bytes > 0
    assert await kept.once() == []
    assert kept.flow.served.current() == version(5)


async def test_no_weights_are_removed_where_all_are_to_be_kept(kept: Kept) -> None:
    kept.pruning.settings = PublishSettings(keep_versions=0)
    await kept.made(4)
    assert await kept.once() == []
    assert await kept.with_weights() == [1, 2, 3, 4]


async def test_what_is_served_pinned_gone_on_from_or_at_the_gate_is_kept(kept: Kept) -> None:
    await kept.made(4)
    await rollback(kept.flow.store, version(1), served=kept.flow.served)
    kept.now_s += LEFT_S
    await kept.flow.candidate(5, parent=1)
    assert await kept.once() == [2]  # 1 is served, 3 and 4 are the newest that passed, 5 is at the gate
    await pin(kept.flow.store, version(3), served=kept.flow.served, at_s=1.0)
    await kept.flow.stage.once()
    for number in (6, 7):
        await kept.flow.candidate(number)
        await kept.flow.stage.once()
    kept.now_s += LEFT_S
    await kept.flow.served.forget(version(1))
    kept.now_s += LEFT_S
    assert await kept.once() == [1, 4, 5]
    assert await kept.with_weights() == [3, 6, 7]  # 3 is pinned, and 7 is what training goes on from


async def test_what_the_engine_holds_or_requests_may_run_on_is_kept(kept: Kept) -> None:
    await kept.made(3)
    async with kept.flow.served.at_hand(await kept.flow.row(1)):
        assert await kept.once() == []
    assert await kept.once() == []  # requests may run on it still
    kept.now_s += LEFT_S
    assert await kept.once() == [1]


async def test_what_is_loaded_between_the_choice_and_the_noting_is_kept(kept: Kept) -> None:
    await kept.made(4)
    book = kept.flow.store.keeping
    chosen = await book.superfluous(Keep(2, 3))
    assert chosen == [version(1), version(2)]
    await kept.flow.store.set_current(version(1), why="rolled back by hand")
    assert await book.prune(chosen, Keep(2, 3), at_s=1.0) == [version(2)]


async def test_the_newest_refused_ones_stay_to_be_looked_at(kept: Kept) -> None:
    await kept.made(1)
    for number in range(2, 7):
        await kept.flow.candidate(number, parent=1, data=b"nan")
        assert await kept.flow.stage.once()
    assert await kept.once() == [2, 3]
    assert await kept.with_weights() == [1, 4, 5, 6]


async def test_what_an_own_version_stands_on_is_kept_as_long_as_it_is(kept: Kept) -> None:
    await kept.made(4)
    own = PolicyVersion("user-ann", 1)
    adapter = write_adapter(kept.flow.home, own, PolicyVersion("user-ann", 0))
    row = VersionRow(
        own, PolicyVersion("user-ann", 0), adapter.folder, adapter.digest, VersionStatus.CANDIDATE, "", 1.0,
        upon=version(1),
    )  # fmt: skip
    await kept.flow.store.commit_step(StepRecord("own", 1.0, 2.0, (), (), {}, row, own.scope))
    await kept.flow.store.settle(own, VersionStatus.LIVE, "", {})
    assert await kept.once() == [2]


async def test_what_the_watch_may_go_back_to_is_kept_until_it_is_watched_to_the_end(kept: Kept) -> None:
    flow = kept.flow
    await kept.made(4)
    names = iter(range(100))

    async def judged(number: int, score: int = 1) -> None:
        name = f"t{next(names)}"
        said = turn(name)
        spoken = replace(said, session=name, completion=replace(said.completion, version=version(number)))
        await flow.talk(spoken)
        await flow.store.pair(NextState(name, (message(Role.USER, "and?"),), NextStateSource.USER))
        await flow.store.judge(Verdict(name, score, VerdictSource.VOTES))

    for number in (1, 2, 3, 3):
        await judged(number)
    assert await kept.once() == []  # 3 of its 3 judged turns were since 2: it may yet be taken back to 1
    await judged(4)
    assert await kept.once() == [1]  # 2 was watched to the end; 3 may be taken back to 2


async def test_the_watch_does_not_ask_about_a_version_without_weights(kept: Kept) -> None:
    flow = kept.flow
    flow.settings = PublishSettings(gate=False, watch_turns=20)
    watch = Watch(flow.store, flow.engine, flow.served, flow.settings)
    await kept.made(4)
    await kept.once()
    await flow.publish(5)
    rows = await flow.store.line(version(5), most=9)
    names = iter(range(100))
    for number, score in [(2, 1)] * 20 + [(3, -1)] * 8:
        name = f"t{next(names)}"
        said = turn(name)
        spoken = replace(said, session=name, completion=replace(said.completion, version=version(number)))
        await flow.talk(spoken)
        await flow.store.pair(NextState(name, (message(Role.USER, "and?"),), NextStateSource.USER))
        await flow.store.judge(Verdict(name, score, VerdictSource.VOTES))
    flow.minds.chance[version(4)] = 0.1
    flow.engine.versions[version(2)] = None  # as if it could be asked
    assert await watch.guilty(rows, version(5), await flow.store.effects.outcomes()) is None


async def test_who_asks_for_a_version_without_weights_is_told_how_they_are_made_again(kept: Kept) -> None:
    flow = kept.flow
    row = None
    await kept.made(1)
    row = await flow.row(1)  # as read before it was pruned
    for number in (2, 3, 4):
        await flow.publish(number)
    kept.now_s += LEFT_S
    assert await kept.once() == [1, 2]
    said = r"weights of version shared\.1 were pruned.*replay --version shared\.1 --restore"
    comparison = Comparison(flow.store, flow.engine, letters(), flow.served, ())
    with pytest.raises(AdapterError, match=said):
        await rollback(flow.store, version(1), served=flow.served)
    with pytest.raises(AdapterError, match=said):
        await pin(flow.store, version(1), served=flow.served, at_s=1.0)
    with pytest.raises(AdapterError, match=said):
        await comparison.of([version(1), version(4)], [(message(Role.USER, "Hi"),)], max_tokens=4)
    with pytest.raises(AdapterError, match=said):
        await flow.served.load(row)
    with pytest.raises(ValueError, match="has no weights any more"):
        await flow.store.set_current(version(1), why="")
    assert flow.served.current() == await flow.store.current(SHARED) == version(4)


async def test_where_what_is_served_is_damaged_a_whole_ancestor_is_served_and_none_without_weights(kept: Kept) -> None:
    await kept.made(4)
    await kept.once()
    await rollback(kept.flow.store, version(3), served=kept.flow.served)
    cut_weights(kept.flow.home, version(3))
    await kept.flow.store.aclose()
    async with flowing(kept.flow.home) as again:
        await again.stage.start()
        assert again.served.current() == version(0)  # 1 and 2 were pruned
        assert "shared.3 is damaged, so shared.0 is served" in again.stage.status.notice


async def test_a_folder_with_pruned_versions_is_sound_and_repair_serves_none_of_them(kept: Kept) -> None:
    await kept.made(4)
    await kept.flow.store.keeping.prune([version(1)], Keep(1, 3), at_s=1.0)  # and then it was cut off
    home = kept.flow.home
    assert await kept.flow.store.keeping.prune([version(2)], Keep(1, 3), at_s=1.0) == [version(2)]
    (version_folder(home, version(2)) / WEIGHTS).unlink()
    await kept.flow.store.aclose()
    assert (await asyncio.to_thread(check_home, home)).findings == ()
    for number in (3, 4):
        cut_weights(home, version(number))
    report = await asyncio.to_thread(partial(check_home, home, repair=True))
    assert report.is_sound and "version shared.4 is to be served but cannot be" in str(report.findings)
    assert (await asyncio.to_thread(check_home, home)).is_sound
    store = await Store.open(home)
    assert await store.current(SHARED) == version(0)
    await store.aclose()


async def test_what_was_noted_and_not_removed_is_removed_at_the_next_start(kept: Kept) -> None:
    await kept.made(4)
    assert await kept.flow.store.keeping.prune([version(1)], Keep(1, 3), at_s=1.0) == [version(1)]
    assert (version_folder(kept.flow.home, version(1)) / WEIGHTS).exists()
    assert await kept.once() == [2]
    assert await kept.with_weights() == [3, 4]


async def test_weights_put_back_by_hand_stay_for_a_week(kept: Kept) -> None:
    await kept.made(4)
    weights = version_folder(kept.flow.home, version(1)) / WEIGHTS
    put_s = time.time() + 7200
    os.utime(weights, (put_s, put_s))
    kept.pruning.now = lambda: put_s + KEPT_BY_HAND_S - 1
    assert await kept.once() == [2]
    kept.pruning.now = lambda: put_s + KEPT_BY_HAND_S + 1
    assert await kept.once() == [1]


async def test_a_version_that_does_not_tell_how_it_was_made_keeps_its_weights(kept: Kept) -> None:
    await kept.made(4)
    (version_folder(kept.flow.home, version(1)) / FILE_NAME).unlink()
    assert await kept.once() == [2]
    assert (version_folder(kept.flow.home, version(1)) / WEIGHTS).is_file()


async def test_nothing_is_removed_through_a_link_that_leads_elsewhere(kept: Kept, tmp_path: Path) -> None:
    await kept.made(4)
    folder, other = version_folder(kept.flow.home, version(1)), tmp_path.with_name("another")
    folder.rename(other)
    folder.symlink_to(other)
    assert await kept.once() == [2]
    assert (other / WEIGHTS).is_file() and (other / TRAINER_STATE).is_file()


async def test_nothing_is_removed_while_what_was_forgotten_is_not_rebuilt(kept: Kept) -> None:
    await kept.made(4)
    store = kept.flow.store
    await kept.flow.talk(turn("t"))
    await store.forgettings.begin(ForgetTarget(turn="t"), name="f", at_s=1.0, planned=lambda sql, found: "{}")
    assert await kept.once() == []
    (held,) = await store.forgettings.all()
    await store.forgettings.note(replace(held, phase=Phase.DONE))
    assert await kept.once() == [1, 2]


def killed_when_gone(home: Path, path: Path | None, wait_s: float) -> None:
    """Prunes in another process, which is killed so long after it has begun, or once this file is gone."""
    with subprocess.Popen([sys.executable, "-c", CHILD, str(home)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "here\n"
        time.sleep(wait_s)
        while path is not None and path.exists() and child.poll() is None:
            pass
        child.send_signal(signal.SIGKILL)
        assert child.wait() in (-signal.SIGKILL, 0)


def pruned_to_the_end(home: Path) -> list[str]:
    """Prunes in another process; the names of what still has weights."""
    done = subprocess.run([sys.executable, "-c", CHILD, str(home)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["here", "done"]
    return sorted(path.parent.name for path in home.glob("versions/*/*.safetensors"))


async def test_killed_at_any_moment_of_it_versions_are_whole_or_noted_and_the_next_start_finishes(
    tmp_path: Path,
) -> None:
    many = 60
    async with flowing(tmp_path, settings=PublishSettings(gate=False, watch_turns=0)) as flow:
        for number in range(1, many + 1):
            await flow.publish(number)
            (version_folder(tmp_path, version(number)) / TRAINER_STATE).write_bytes(b"moments")
    first, middle = (version_folder(tmp_path, version(number)) for number in (1, many // 2))
    moments = [(None, 0.0), (None, 0.005), (None, 0.01), (first / WEIGHTS, 0.0), (middle / WEIGHTS, 0.0)]
    for path, wait_s in moments:
        await asyncio.to_thread(killed_when_gone, tmp_path, path, wait_s)
        store = await Store.open(tmp_path)
        for row in await store.versions():
            if row.folder is not None:
                assert (row.folder / FILE_NAME).is_file() and (row.folder / CONFIG).is_file()
                assert row.pruned_s is not None or (
                    (row.folder / WEIGHTS).is_file() and (row.folder / TRAINER_STATE).is_file()
                )
        assert await store.current(SHARED) == version(many)
        await store.aclose()
    assert await asyncio.to_thread(pruned_to_the_end, tmp_path) == [f"shared.{many}"] * 2


def test_a_folder_without_versions_takes_nothing(tmp_path: Path) -> None:
    assert on_disk(tmp_path) == OnDisk(0, 0)
