"""What was learned from one user in vain is taken back, and nothing that others taught."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from publish_doubles import Flow, Minds, cut_weights, flowing, turn, version

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import SHARED
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.swap import pin


@pytest_asyncio.fixture
async def flow(tmp_path: Path) -> AsyncIterator[Flow]:
    """One version, which has learned from nobody here."""
    async with flowing(tmp_path, Minds(), PublishSettings(gate=False)) as flow:
        await flow.stage.start()
        await flow.publish(1)
        yield flow


async def taught(flow: Flow, number: int, user: str, *hints: str) -> None:
    """A version that learned from a turn of this user is served."""
    await flow.talk(replace(turn(f"t{number}"), user=user))
    if hints:
        await flow.store.pair(NextState(f"t{number}", (message(Role.USER, "No."),), NextStateSource.USER))
        held = tuple(map(Hint, hints))
        await flow.store.judge(Verdict(f"t{number}", -1, VerdictSource.VOTES, hints=held))
    await flow.candidate(number, turns=(f"t{number}",))
    assert await flow.stage.once()
    assert flow.served.current() == version(number)


async def test_what_one_user_taught_since_is_taken_back(flow: Flow) -> None:
    for number in (2, 3):
        await taught(flow, number, "ann")
    assert await flow.stage.take_back("ann", version(1))
    assert flow.served.current() == await flow.store.current(SHARED) == version(1)
    assert "ann corrected as often as before" in (await flow.row(2)).why
    assert (await flow.row(3)).why == "rolled back with shared.2, which it was made from"
    assert flow.stage.status.taken_back == 1
    assert "shared.1 is served again" in flow.stage.status.notice
    assert not await flow.stage.take_back("ann", version(1))  # served already


async def test_what_others_taught_stays(flow: Flow) -> None:
    await taught(flow, 2, "bob")
    await taught(flow, 3, "ann")
    assert not await flow.stage.take_back("ann", version(1))
    assert flow.served.current() == version(3)
    assert await flow.stage.take_back("ann", version(2))


LISTS, BRIEF = "In rooms: Write the reply as a list.", "In tours: Be brief."


@pytest.mark.parametrize(
    ("learned", "served"),
    [
        ((LISTS, LISTS), 1),
        ((BRIEF, LISTS, LISTS), 2),
        ((LISTS, BRIEF), 3),
        ((BRIEF, LISTS, "", LISTS), 2),
        ((BRIEF, "", LISTS), 3),
    ],
)
async def test_another_wish_that_was_learned_meanwhile_stays(flow: Flow, learned: tuple[str, ...], served: int) -> None:
    for number, hint in enumerate(learned, 2):
        await taught(flow, number, "ann", *filter(None, [hint]))
    is_taken = await flow.stage.take_back("ann", version(1), [LISTS])
    assert (flow.served.current(), is_taken) == (version(served), served <= len(learned))
    assert not is_taken or f"since {version(served)} had no effect" in (await flow.row(served + 1)).why


async def test_a_pinned_version_and_a_damaged_one_are_left_alone(flow: Flow) -> None:
    for number in (2, 3):
        await taught(flow, number, "ann")
    cut_weights(flow.home, version(1))
    await flow.served.forget(version(1))
    assert not await flow.stage.take_back("ann", version(1))
    await pin(flow.store, version(3), served=flow.served, at_s=1.0)
    assert not await flow.stage.take_back("ann", version(2))
    assert flow.served.current() == version(3)


async def test_an_engine_that_is_away_changes_nothing(flow: Flow) -> None:
    await taught(flow, 2, "ann")
    await flow.served.forget(version(1))
    flow.engine.is_away = True
    assert not await flow.stage.take_back("ann", version(1))
    assert flow.served.current() == await flow.store.current(SHARED) == version(2)
