"""What is served is held against what was served before, and taken back where it does worse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio
from publish_doubles import Flow, Minds, cut_weights, flowing, turn, version

from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import SHARED
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.swap import pin, rollback
from openclaw_rl.publish.watch import Watch
from openclaw_rl.store.rows import VersionStatus

LIKED, CORRECTED = 1, -1


@dataclass
class Watched:
    """A stage that watches, and turns with verdicts."""

    flow: Flow
    turns: int = 0

    async def judged(self, number: int, *scores: int) -> None:
        """Turns that a version answered, and how they were judged."""
        for score in scores:
            self.turns += 1
            name = f"t{self.turns}"
            said = turn(name)
            spoken = replace(said, session=name, completion=replace(said.completion, version=version(number)))
            await self.flow.talk(spoken)
            await self.flow.store.pair(NextState(name, (message(Role.USER, "and?"),), NextStateSource.USER))
            await self.flow.store.judge(Verdict(name, score, VerdictSource.VOTES))

    async def second(self) -> Flow:
        """The flow, in which version 2 is served after one that everybody liked."""
        await self.judged(1, *[LIKED] * 20)
        await self.flow.publish(2)
        return self.flow


@pytest_asyncio.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    # What was said has 12 tokens at 0.1 nats each; the version before gives each of them 2.3 nats
    minds = Minds(chance={version(1): 0.1, version(0): 0.1})
    async with flowing(tmp_path, minds, PublishSettings(gate=False, watch_turns=20)) as flow:
        flow.stage.watch = Watch(flow.store, flow.engine, flow.served, flow.settings)
        await flow.stage.start()
        await flow.publish(1)
        yield Watched(flow)


async def test_a_version_that_is_corrected_more_often_is_taken_back_and_says_so(watched: Watched) -> None:
    flow = await watched.second()
    await watched.judged(2, *[CORRECTED] * 3)
    await flow.stage.once()
    assert flow.served.current() == version(2)
    await watched.judged(2, CORRECTED, CORRECTED)
    assert await flow.stage.once()
    assert flow.served.current() == await flow.store.current(SHARED) == version(1)
    row = await flow.row(2)
    why = "rolled back: it did worse than shared.1: 5 of 5 judged turns corrected since, 0 of 20 before"
    assert (row.status, row.why) == (VersionStatus.LIVE, why)
    assert (row.metrics["watch_turns"], row.metrics["watch_corrected"]) == (5.0, 1.0)
    assert flow.stage.status.taken_back == 1
    assert flow.stage.status.notice == f"version shared.2 was {why}; shared.1 is served again"
    assert not await flow.stage.once()
    await flow.candidate(3, parent=1)
    assert await flow.stage.once()
    assert flow.served.current() == version(3)


async def test_with_a_bad_version_go_those_that_were_made_from_it(watched: Watched) -> None:
    flow = await watched.second()
    await watched.judged(2, CORRECTED, CORRECTED, CORRECTED)
    await flow.publish(3)
    flow.minds.chance[version(2)] = 0.9  # which would have said the same as version 3
    await watched.judged(3, CORRECTED, CORRECTED)
    assert await flow.stage.once()
    assert flow.served.current() == version(1)
    assert (await flow.row(3)).why == "rolled back with shared.2, which it was made from"


async def test_a_user_with_a_new_wish_is_no_fault_of_the_version(watched: Watched) -> None:
    flow = watched.flow
    flow.minds.chance = {version(1): 0.95}  # the version before would have said the same at least as readily
    await watched.judged(1, *[LIKED] * 20)
    await flow.publish(2)
    await watched.judged(2, *[CORRECTED] * 12)
    assert not await flow.stage.once()
    assert flow.served.current() == version(2)
    asked = flow.engine.calls.count(f"score {version(1)}")
    assert asked == 12
    await watched.judged(2, CORRECTED)
    assert not await flow.stage.once()
    assert flow.engine.calls.count(f"score {version(1)}") == asked + 1  # each reply is shown to it once


async def test_a_version_that_does_as_before_stays_and_costs_nothing(watched: Watched) -> None:
    flow = watched.flow
    await watched.judged(1, *[LIKED, CORRECTED] * 10)
    await flow.publish(2)
    await watched.judged(2, *[CORRECTED, LIKED] * 10)
    assert not await flow.stage.once()
    assert flow.served.current() == version(2)
    assert f"score {version(1)}" not in flow.engine.calls


async def test_after_its_window_a_version_is_no_longer_watched(watched: Watched) -> None:
    flow = await watched.second()
    await watched.judged(2, *[LIKED] * 15, *[CORRECTED] * 20)
    assert not await flow.stage.once()
    assert flow.served.current() == version(2)


async def test_what_is_pinned_is_not_taken_back(watched: Watched) -> None:
    flow = await watched.second()
    await pin(flow.store, version(2), served=flow.served, at_s=1.0)
    await watched.judged(2, *[CORRECTED] * 9)
    assert not await flow.stage.once()
    assert flow.served.current() == version(2)


@pytest.mark.parametrize("trouble", ["away", "damaged"])
async def test_where_the_version_before_cannot_be_asked_nothing_happens_now(watched: Watched, trouble: str) -> None:
    flow = await watched.second()
    await watched.judged(2, *[CORRECTED] * 9)
    if trouble == "away":
        flow.engine.is_away = True
    else:
        await flow.served.forget(version(1))
        cut_weights(flow.home, version(1))
    assert not await flow.stage.once()
    assert flow.served.current() == version(2)
    flow.engine.is_away = False
    await watched.judged(2, CORRECTED)
    assert await flow.stage.once() is (trouble == "away")


async def test_the_turns_of_a_version_that_was_rolled_back_by_hand_are_held_against_nobody(watched: Watched) -> None:
    flow = await watched.second()
    await watched.judged(2, *[CORRECTED] * 4)
    await rollback(flow.store, version(1), served=flow.served)
    await flow.candidate(3, parent=1)
    assert await flow.stage.once()
    await watched.judged(3, CORRECTED)
    assert not await flow.stage.once()
    assert flow.served.current() == version(3)
