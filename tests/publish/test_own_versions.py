"""Users with versions of their own: at hand when asked for, within the room there is, and back to the shared one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest_asyncio
from publish_doubles import Flow, Minds, flowing, prompts_of, turn, version, write_adapter

from openclaw_rl.core.adapter import WEIGHTS, Adapter
from openclaw_rl.core.turn import Session
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.publish.stage import ON_ITS_WAY
from openclaw_rl.publish.swap import HANDED_S, ServedVersions, rollback
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.testing.clock import Clock

USERS = ("ann", "bob", "cid")


def own(user: str, number: int = 1) -> PolicyVersion:
    return PolicyVersion(f"user-{user}", number)


@dataclass
class Owners:
    """The stage's parts with users who have versions of their own; the engine has room for three."""

    flow: Flow
    time: Clock = field(default_factory=lambda: Clock(0.0))

    def __post_init__(self) -> None:
        self.flow.served.room = 3
        self.flow.served.clock = self.time

    @property
    def served(self) -> ServedVersions:
        return self.flow.served

    async def candidate(self, user: str, number: int = 1, *, turns: tuple[str, ...] = ()) -> VersionRow:
        made, parent = own(user, number), own(user, number - 1)
        adapter = write_adapter(self.flow.home, made, parent)
        row = VersionRow(
            made, parent, adapter.folder, adapter.digest, VersionStatus.CANDIDATE, "", 1.0, turns, upon=version(1)
        )
        await self.flow.store.commit_step(StepRecord(f"step {made}", 1.0, 2.0, (), (), {}, row, made.scope))
        return row

    async def publish(self, user: str, number: int = 1) -> None:
        await self.candidate(user, number)
        assert await self.flow.stage.once()
        self.time.advance(HANDED_S)

    async def ask(self, user: str, *, after_s: float = HANDED_S) -> PolicyVersion | None:
        found = await self.served.own(f"user-{user}")
        self.time.advance(after_s)
        return found


@pytest_asyncio.fixture
async def owners(tmp_path: Path) -> AsyncIterator[Owners]:
    async with flowing(tmp_path) as flow:
        await flow.stage.start()
        await flow.publish(1)
        yield Owners(flow)


async def test_each_user_has_their_own_and_others_the_shared_one(owners: Owners) -> None:
    for user in ("ann", "bob"):
        await owners.publish(user)
    assert await owners.ask("ann") == own("ann")
    assert await owners.ask("bob") == own("bob")
    assert await owners.ask("guest") is None
    assert owners.served.current() == version(1)
    assert owners.flow.stage.status.owners == 2


async def test_the_one_unused_longest_makes_room_and_comes_back_when_asked_for(owners: Owners) -> None:
    for user in USERS:
        await owners.publish(user)
    assert owners.flow.engine.loaded == [version(1), own("bob"), own("cid")]
    assert await owners.ask("bob") == own("bob")
    assert await owners.ask("ann") == own("ann")  # in the place of cid's, which was used before bob's
    assert set(owners.flow.engine.loaded) == {version(1), own("bob"), own("ann")}
    assert owners.served.active == ("user-bob", "user-ann")


async def test_a_version_just_named_to_a_request_stays_and_the_shared_one_answers_who_finds_no_place(
    owners: Owners,
) -> None:
    for user in USERS:
        await owners.publish(user)
    await owners.ask("bob", after_s=0.0)
    await owners.ask("cid", after_s=0.0)
    assert await owners.ask("ann") is None
    assert owners.served.damaged == {}
    assert await owners.ask("ann") == own("ann")  # some seconds later


async def test_a_candidate_that_finds_no_place_waits_and_is_not_refused(owners: Owners) -> None:
    for user in USERS:
        await owners.publish(user)
    await owners.ask("bob", after_s=0.0)
    await owners.ask("cid", after_s=0.0)
    await owners.candidate("ann", 2)
    assert not await owners.flow.stage.once()
    assert "versions that the engine may load are in use" in owners.flow.stage.status.notice
    row = await owners.flow.store.version(own("ann", 2))
    assert row is not None and row.status is VersionStatus.CANDIDATE
    owners.time.advance(HANDED_S)
    owners.flow.now_s += 1000.0
    assert await owners.flow.stage.once()
    assert await owners.ask("ann") == own("ann", 2)


async def test_an_own_version_is_tried_on_its_owners_turns_beside_what_they_are_served_now(owners: Owners) -> None:
    await owners.flow.store.see_session(Session("s1", "ann", "main", 0.0, 1.0))
    for name, user in (("a", "ann"), ("b", "bob"), ("c", "bob")):
        asked = replace(turn(name, f"{user} asks {name}?"), user=user)
        await owners.flow.store.add_turn(asked, chain=name)
    await owners.candidate("bob", turns=("c",))
    assert await owners.flow.stage.once()
    assert prompts_of(owners.flow.engine)[:2] == ["bob asks b?", "bob asks c?"]  # what it was not trained on first
    owners.flow.engine.asked.clear()
    await owners.candidate("cid")  # of whom nothing is known: everybody's
    assert await owners.flow.stage.once()
    assert set(prompts_of(owners.flow.engine)[:3]) == {"ann asks a?", "bob asks b?", "bob asks c?"}


async def test_a_worse_own_version_is_compared_with_the_shared_one_it_would_replace(tmp_path: Path) -> None:
    minds = Minds(says={version(1): "$", own("ann"): "$"})
    async with flowing(tmp_path, minds) as flow:
        await flow.stage.start()
        await flow.publish(1)
        owners = Owners(flow)
        await flow.talk(turn("a"))
        await owners.publish("ann")  # as bad as what ann is served now, so let in
        assert f"generate {version(1)}" in flow.engine.calls
        assert await owners.ask("ann") == own("ann")


async def test_rolling_back_is_each_owners_own_affair(owners: Owners) -> None:
    await owners.publish("ann")
    await owners.publish("ann", 2)
    await owners.publish("bob")
    await rollback(owners.flow.store, own("ann"), served=owners.served)
    assert (await owners.ask("ann"), await owners.ask("bob")) == (own("ann"), own("bob"))
    await rollback(owners.flow.store, own("ann", 0), served=owners.served)
    assert (await owners.ask("ann"), await owners.ask("bob")) == (None, own("bob"))
    assert owners.served.current() == version(1)


async def test_after_a_restart_own_versions_are_served_again_and_read_only_when_asked_for(owners: Owners) -> None:
    await owners.publish("ann")
    await owners.publish("bob")
    late = await owners.candidate("ann", 2)
    await owners.flow.store.settle(late.version, VersionStatus.LIVE, ON_ITS_WAY, {})  # killed while it was swapped in
    again = Flow(owners.flow.home, owners.flow.store, Minds(), owners.flow.settings)
    await again.stage.start()
    assert again.engine.loaded == [version(1), own("ann", 2)]
    assert await again.served.own("user-bob") == own("bob")
    assert await again.served.own("user-ann") == own("ann", 2)


async def test_a_damaged_own_version_gives_way_to_the_one_before_it(owners: Owners) -> None:
    await owners.publish("ann")
    await owners.publish("ann", 2)
    again = Flow(owners.flow.home, owners.flow.store, Minds(), owners.flow.settings)
    await again.stage.start()
    weights = owners.flow.home / "versions" / "user-ann.2" / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-3])
    assert await again.served.own("user-ann") is None  # the request at hand is answered by the shared one
    await again.stage.once()
    assert await again.served.own("user-ann") == own("ann") == await again.store.current("user-ann")
    assert "user-ann.2 is damaged" in again.stage.status.notice


async def test_versions_that_are_gone_are_served_to_nobody_and_unloaded_once_unused(owners: Owners) -> None:
    await owners.publish("ann")
    await owners.publish("bob")
    gone = own("ann")
    await owners.served.leave(lambda version: version == gone, is_unused=False)
    assert await owners.ask("ann") is None  # the shared one answers
    assert gone in owners.served.loaded
    await owners.served.leave(lambda version: version == gone, is_unused=True)
    assert gone not in owners.served.loaded
    assert gone not in owners.flow.engine.loaded
    assert await owners.ask("bob") == own("bob")


async def test_a_version_whose_loading_nobody_waits_for_any_more_is_known_to_be_loaded(owners: Owners) -> None:
    row = await owners.candidate("cid")
    engine, begun, go = owners.flow.engine, asyncio.Event(), asyncio.Event()

    @dataclass
    class Slow:
        async def load(self, adapter: Adapter) -> None:
            begun.set()
            await go.wait()
            await engine.load(adapter)

    owners.served.engine = Slow()  # type: ignore[assignment]
    loading = asyncio.ensure_future(owners.served.load(row))
    await begun.wait()
    loading.cancel()
    go.set()
    await asyncio.gather(loading, return_exceptions=True)
    owners.served.engine = engine
    assert loading.cancelled()
    assert row.version in owners.served.loaded
    await owners.served.leave(lambda version: version == row.version, is_unused=True)
    assert row.version not in engine.loaded
