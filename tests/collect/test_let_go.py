"""What is forgotten is no longer known in memory, and what is under way of it is not entered."""

from __future__ import annotations

import sqlite3

from conversation import Served, reply, user

from openclaw_rl.store.forget.selection import ForgetSelection, ForgetTarget
from openclaw_rl.testing.turns import a_turn, an_arrival

ANN, BOB = {"X-Session-Id": "ann"}, {"X-Session-Id": "bob"}


def no_plan(sql: sqlite3.Connection, what: ForgetSelection) -> str:
    return "{}"


async def test_nothing_goes_on_from_what_is_forgotten_and_others_do_as_before(served: Served) -> None:
    gone, _ = await served.ask("one", "first", headers=ANN)
    kept, _ = await served.ask("two", "second", headers=BOB)
    held = dict(served.collect.held)
    await served.store.forgettings.begin(ForgetTarget(session="ann"), name="f", at_s=1.0, planned=no_plan)
    served.store.forgettings.answered("f")
    served.collect.let_go({gone.id})
    assert served.collect.held["collect_turns_held"] == held["collect_turns_held"] - 1
    assert served.collect.held["collect_conversations_held"] == held["collect_conversations_held"] - 1
    again, placed = await served.ask((user("one"), reply("first"), user("more")), headers=ANN)
    assert (placed.parent, again.parent) == (None, None)
    _, placed = await served.ask((user("two"), reply("second"), user("more")), headers=BOB)
    assert placed.parent is not None
    assert placed.parent.id == kept.id


async def test_a_turn_whose_conversation_was_forgotten_while_it_was_answered_is_not_entered(served: Served) -> None:
    gone, _ = await served.ask("one", "first", headers=ANN)
    arrival = an_arrival(
        (user("one"), reply("first"), user("more")),
        key_name="key",
        headers={**ANN, "X-Session-Done": "true"},
        at_s=served.clock(),
    )
    placed = await served.collect.place(arrival)
    await placed.admit()
    assert placed.parent is not None
    assert served.collect.held["collect_closing"] == 1
    await served.store.forgettings.begin(ForgetTarget(session="ann"), name="f", at_s=1.0, planned=no_plan)
    served.collect.let_go({gone.id})
    turn = a_turn("late", arrival.messages, session=placed.session, parent=gone.id, at_s=arrival.at_s)
    await served.collect.commit(turn)
    assert await served.store.turn("late") is None
    assert await served.store.open_sessions(seen_before_s=1e12) == []
    assert served.collect.held["collect_turns_held"] == served.collect.held["collect_closing"] == 0
