"""What the newest turns, verdicts and versions look like."""

from __future__ import annotations

from dataclasses import replace

from store_doubles import paired_and_judged

from openclaw_rl.core.facts import Overview
from openclaw_rl.core.turn import TurnKind
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.testing.turns import a_turn


async def test_an_empty_store_has_nothing_to_show(store: Store) -> None:
    assert await store.overview() == Overview()


async def test_sessions_next_states_and_votes_are_counted(store: Store) -> None:
    await paired_and_judged(store, "a")
    for name, session in (("b", "key:s"), ("c", "key:auto-00ff"), ("d", "key:x")):
        await store.add_turn(a_turn(name, session=session), chain=name)
    await store.add_turn(a_turn("e", kind=TurnKind.SIDE), chain="e")
    seen = await store.overview()
    assert (seen.main, seen.side, seen.sessions, seen.unnamed, seen.waiting) == (4, 1, 3, 1, 3)
    assert (seen.paired, sum(seen.scores.values()), seen.versions) == (1, 1, 0)
    assert (seen.side_why, seen.newest_s) == ("", 1000.0)


async def test_the_commonest_reason_for_side_is_told_where_all_is_side(store: Store) -> None:
    for number, why in enumerate(("side: x; session from y", "side: z; a", "side: x; session from z")):
        await store.add_turn(replace(a_turn(f"t{number}", kind=TurnKind.SIDE), why=why), chain=str(number))
    assert (await store.overview()).side_why == "side: x"


async def test_what_was_made_of_requests_that_were_not_simply_their_owners_is_counted(store: Store) -> None:
    whys = ["main: so; session from y", "side: title (x); a", "main: so; spoke: nobody (z)", "side: title (x); b"]
    for number, why in enumerate(whys):
        await store.add_turn(replace(a_turn(f"t{number}"), why=why), chain=str(number))
    assert (await store.overview()).told == {"side: title (x)": 2, "spoke: nobody (z)": 1}


async def test_what_was_forgotten_or_lost_is_no_refusal_of_the_gate(store: Store) -> None:
    whys = ["too far", "removed: it had learned from what was forgotten", "it was made from shared.1, and shared.0 is"]
    whys += ["its folder is missing or damaged: gone", "too far again"]
    for number, why in enumerate(whys, 1):
        metrics = {} if "made from" in why else {"gate_turns": 3.0}
        version, base = PolicyVersion("shared", number), PolicyVersion("shared", 0)
        row = VersionRow(version, base, None, "d", VersionStatus.CANDIDATE, "", 1.0, (), metrics)
        await store.commit_step(StepRecord(f"{number}", 1.0, 2.0, (), (), {}, row))
        await store.settle(version, VersionStatus.REFUSED, why, {})
    seen = await store.overview()
    assert (seen.refused_in_a_row, seen.refused_why, seen.versions) == (2, "too far again", 5)


async def test_the_owners_orders_are_seen(store: Store) -> None:
    await store.orders.freeze(at_s=5.0)
    await store.orders.pin(PolicyVersion("shared", 0), at_s=6.0)
    seen = await store.overview()
    assert (seen.frozen_since_s, seen.pinned) == (5.0, ("shared.0",))
