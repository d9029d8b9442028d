"""A clock that is set back by a day: conversations go on, and nothing ends that should not."""

from __future__ import annotations

from pathlib import Path

from conversation import reply, serving, user

from openclaw_rl.collect.stage import CollectSettings
from openclaw_rl.core.ledger import State
from openclaw_rl.testing.clock import Clock

S = {"X-Session-Id": "s"}
DAY_S = 86_400.0


async def test_a_conversation_goes_on_over_a_clock_that_was_set_back(tmp_path: Path) -> None:
    async with serving(tmp_path, CollectSettings(session_idle_s=1800.0)) as served:
        first, _ = await served.ask("hi", "hello", headers=S)
        served.clock = set_back(served.clock)
        second, placement = await served.ask([user("hi"), reply("hello"), user("no, longer")], "hello!", headers=S)
        assert placement.parent is not None and placement.parent.id == first.id
        assert await served.next_state(first) == (user("no, longer"),)
        assert second.at_s < first.at_s
        assert [row.turn.id for row in await served.store.history(limit=9)] == [first.id, second.id]  # by arrival
        assert await served.collect.sweep() == 0
        assert await served.state(second) is State.SERVED


async def test_a_session_last_seen_in_what_is_now_the_future_is_not_ended_early(tmp_path: Path) -> None:
    async with serving(tmp_path, CollectSettings(session_idle_s=1800.0)) as served:
        turn, _ = await served.ask("hi", headers=S)
    async with serving(tmp_path, CollectSettings(session_idle_s=1800.0)) as served:
        served.clock = set_back(served.clock)
        assert await served.collect.sweep() == 0
        assert await served.state(turn) is State.SERVED


def set_back(clock: Clock) -> Clock:
    """A clock a day behind."""
    return Clock(clock() - DAY_S)
