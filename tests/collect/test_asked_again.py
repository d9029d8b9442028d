"""A turn tells which turn of its session answered the same before, looked up once its own answer is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from conversation import Served, serving, user

from openclaw_rl.core.turn import Turn
from openclaw_rl.testing.turns import a_turn, an_arrival

NAMED = {"X-Session-Id": "s"}


async def _why(served: Served, turn: Turn) -> str:
    row = await served.store.row(turn.id)
    assert row is not None
    return row.turn.why


async def test_a_named_session_that_is_asked_the_same_again_tells_so_after_a_restart_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        one, told = await served.ask("hi", headers=NAMED)
        assert await _why(served, one) == told.why
        other, _ = await served.ask("hi", headers={"X-Session-Id": "another"})
        two, _ = await served.ask("hi", headers=NAMED)
        assert (await _why(served, two)).endswith(f"; asks again what turn {one.id} answered")
        assert "asks again" not in await _why(served, other)
    async with serving(tmp_path) as served:
        three, told = await served.ask("hi", headers=NAMED)
        assert await _why(served, three) == f"{told.why}; asks again what turn {two.id} answered"
        held = served.collect.held["collect_histories_held"]
        assert held == 0


async def test_answers_to_one_request_are_none_of_them_asked_again(served: Served) -> None:
    for before in (None, "one-b"):
        arrival = an_arrival((user("hi"),), headers=NAMED)
        placement = await served.collect.place(arrival)
        await placement.admit()
        for letter in "ab":
            name = f"{'one' if before is None else 'two'}-{letter}"
            turn = a_turn(name, arrival.messages, "4", session=placement.session, kind=placement.kind)
            turn = replace(turn, messages=arrival.messages, why=placement.why, group=f"{name[:-1]}a")
            await served.collect.commit(turn)
            words = "" if before is None else f"; asks again what turn {before} answered"
            assert await _why(served, turn) == placement.why + words
