"""What goes when something is to be forgotten, and that no byte of it stays."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from forget_doubles import holds, stepped, taught
from store_doubles import said

from openclaw_rl.core.hint import Hint, HintSource, PlacedHint
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, SampledReply
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import ConfigError
from openclaw_rl.store.connection import NAME
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.erase import compact
from openclaw_rl.store.forget.selection import ForgetSelection, ForgetTarget
from openclaw_rl.store.rows import VersionStatus
from openclaw_rl.testing.turns import a_sample, a_turn, ids_of

CANARY = "plum-violin-harbour-ninety"


def no_plan(sql: sqlite3.Connection, what: ForgetSelection) -> str:
    return "{}"


async def forgotten(store: Store, what: ForgetTarget) -> ForgetSelection:
    return await store.forgettings.begin(what, name="f", at_s=1.0, planned=no_plan)


async def conversation(store: Store) -> None:
    """Ann's session of three turns, the second of which holds the canary, and Bob's."""
    await taught(store, "a1", ("first",), session="k:ann", then=f"no, say {CANARY}", hint=f"Say {CANARY}.")
    await taught(store, "a2", ("first", f"no, say {CANARY}"), session="k:ann", parent="a1")
    await taught(store, "a3", ("first", f"no, say {CANARY}", "on"), session="k:ann", parent="a2")
    await taught(store, "b1", ("hello",), session="k:bob", user="bob", hint="Be brief.")


async def test_a_turn_goes_with_all_that_repeats_it_and_with_what_it_said_of_the_turn_before(store: Store) -> None:
    await conversation(store)
    what = await store.forgettings.preview(ForgetTarget(turn="a2"))
    assert (what.turns, what.unsaid) == (("a2", "a3"), ("a1",))
    assert await forgotten(store, ForgetTarget(turn="a2")) == what
    assert await store.turn("a2") is None
    assert await store.turn("a3") is None
    row = await store.row("a1")
    assert row is not None
    assert (row.state, row.reason, row.next_state, row.verdict) == (State.DROPPED, DropReason.FORGOTTEN, None, None)
    assert not row.has_sample
    assert [hint.user for hint in await store.hints.everyone()] == ["bob"]
    other = await store.row("b1")
    assert other is not None
    assert (other.state, other.has_sample) == (State.READY, True)
    counts = await store.counts()
    assert counts["main"] == counts["ready"] + counts["dropped"] == 2


@pytest.mark.parametrize(
    "what",
    [ForgetTarget(turn="a2"), ForgetTarget(session="k:ann"), ForgetTarget(session="ann"), ForgetTarget(user="ann")],
)
async def test_no_byte_of_it_stays_in_the_folder(tmp_path: Path, what: ForgetTarget) -> None:
    store = await Store.open(tmp_path)
    await conversation(store)
    long = f"{CANARY} " + "and so on, " * 400
    await taught(store, "a4", (long,), session="k:ann")
    assert holds(tmp_path, CANARY)
    await forgotten(store, what)
    await store.aclose()
    compact(tmp_path / NAME)
    assert holds(tmp_path, CANARY) == []
    assert holds(tmp_path, "hello") == [NAME]
    store = await Store.open(tmp_path)
    assert await store.turn("b1") is not None
    await store.aclose()


async def test_erased_rows_alone_leave_bytes_behind(store: Store, tmp_path: Path) -> None:
    await conversation(store)
    await forgotten(store, ForgetTarget(user="ann"))
    assert holds(tmp_path, CANARY) == [f"{NAME}-wal"]  # so the test above tells something


async def test_a_long_text_that_others_name_too_is_kept_for_them(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    long = "the same long words " * 200
    for name in ("a", "b"):
        await store.add_turn(a_turn(name, long, session=f"k:{name}", user=name), chain=name)
    await forgotten(store, ForgetTarget(user="a"))
    kept = await store.turn("b")
    assert kept == a_turn("b", long, session="k:b", user="b")
    await forgotten_again(store, ForgetTarget(user="b"))
    await store.aclose()
    with sqlite3.connect(tmp_path / NAME) as sql:
        assert sql.execute("SELECT count(*) FROM texts").fetchone() == (0,)
    sql.close()


async def forgotten_again(store: Store, what: ForgetTarget) -> None:
    await store.forgettings.begin(what, name="g", at_s=2.0, planned=no_plan)


async def test_versions_that_saw_it_go_with_all_that_stands_on_them(store: Store) -> None:
    await conversation(store)
    await stepped(store, 1, "b1")
    await stepped(store, 2, "a1", "a2")
    await taught(store, "b2", ("bye",), session="k:bob2", user="bob")
    await stepped(store, 3, "b2")
    await stepped(store, 4, "a3", parent=1)  # after a way back
    what = await forgotten(store, ForgetTarget(session="k:ann"))
    assert [row.version.number for row in what.versions] == [2, 3, 4]
    rows = {row.version.number: row for row in await store.versions()}
    assert [rows[number].status for number in (1, 2, 3, 4)] == [VersionStatus.LIVE] + [VersionStatus.REFUSED] * 3
    assert rows[3].turns == () and rows[3].metrics == {}
    assert await store.current("shared") == PolicyVersion("shared", 1)
    row = await store.row("b2")
    assert row is not None
    assert (row.state, row.step) == (State.TRAINED, "step 3")  # the step stays as a row


async def test_the_base_model_is_served_where_every_version_saw_it(store: Store) -> None:
    await conversation(store)
    await stepped(store, 1, "a1", "b1")
    await stepped(store, 2, "a2")
    await forgotten(store, ForgetTarget(user="ann"))
    assert (await store.current("shared")).is_base


async def test_a_conversation_that_goes_on_under_another_name_goes_along(store: Store) -> None:
    await taught(store, "a1", ("first",), session="k:one")
    await taught(store, "a2", ("first", "second"), session="k:two", parent="a1")
    await taught(store, "a3", ("third",), session="k:three")
    what = await forgotten(store, ForgetTarget(session="k:one"))
    assert (what.turns, what.unsaid, what.sessions) == (("a1", "a2"), (), ("k:one", "k:two"))


async def test_a_pin_moves_to_the_nearest_version_that_never_saw_it(store: Store) -> None:
    await conversation(store)
    await stepped(store, 1, "b1")
    await stepped(store, 2, "a1")
    await stepped(store, 3, "a2")
    await store.orders.pin(PolicyVersion("shared", 2), at_s=1.0)  # training goes on from 3
    await forgotten(store, ForgetTarget(user="ann"))
    one = PolicyVersion("shared", 1)
    assert await store.orders.pinned("shared") == await store.current("shared") == one
    assert await store.orders.head("shared") == one


async def test_a_hint_that_came_from_it_takes_the_turns_answered_behind_it_along(store: Store) -> None:
    await taught(store, "a1", ("first",), session="k:one", hint=f"Say {CANARY}.")
    (kept,) = await store.hints.of_user("ann")
    placed = (PlacedHint(0, kept.id, kept.text),)
    await store.add_turn(replace(a_turn("a2", session="k:two", user="ann"), carried=placed), chain="a2")
    await taught(store, "a3", ("third",), session="k:three", hint="Be brief.")
    await store.hints.retire(kept.id, why="by hand", at_s=1.0)
    what = await forgotten(store, ForgetTarget(session="k:one"))
    assert (what.turns, what.hints) == (("a1", "a2"), (kept.id,))
    assert [hint.text for hint in await store.hints.of_user("ann")] == ["Be brief."]


async def test_a_sample_whose_teacher_heeded_such_a_hint_goes_and_its_turn_stays(store: Store) -> None:
    await taught(store, "a1", ("first",), session="k:one", hint=f"Say {CANARY}.")
    turn = a_turn("a2", session="k:two", user="ann")
    await store.add_turn(turn, chain="a2")
    await store.pair(said("a2"))
    await store.judge(Verdict("a2", -1, VerdictSource.VOTES, hints=(Hint("Be brief."),)))
    read = HintPrompt(f"Say {CANARY}. Be brief.", ids_of("both"))
    await store.admit(replace(a_sample(turn, score=-1.0), hints=(read,)))
    what = await forgotten(store, ForgetTarget(session="k:one"))
    assert (what.turns, what.unsaid, what.unread) == (("a1",), (), ("a2",))
    row = await store.row("a2")
    assert row is not None
    assert (row.state, row.has_sample) == (State.DROPPED, False)
    assert row.verdict is not None and row.next_state is not None


async def test_a_sample_that_holds_another_request_stays_without_it_and_what_learned_from_it_goes(
    tmp_path: Path,
) -> None:
    store = await Store.open(tmp_path)
    await taught(store, "a1", (f"first {CANARY}",), session="k:one", hint="Be kind.")
    turn = a_turn("a2", session="k:two", user="ann")
    await store.add_turn(turn, chain="a2")
    await store.pair(said("a2"))
    await store.judge(Verdict("a2", -1, VerdictSource.VOTES, hints=(Hint("Be brief."),)))
    said_there = SampledReply((9,), (-0.1,), BASE)
    from_first = OtherRequestReply(
        ids_of(CANARY), HintPrompt("Be brief.", ids_of(f"{CANARY} Be brief.")), said_there, "a1"
    )
    beside = OtherRequestReply(ids_of("mine"), HintPrompt("Be kind. Be brief.", ids_of("mine kind")), said_there)
    kept = OtherRequestReply(ids_of("made up"), HintPrompt("Be brief.", ids_of("made up Be brief.")), said_there)
    read = HintPrompt("Be brief.", ids_of("both"))
    made = replace(a_sample(turn, score=-1.0), hints=(read,), elsewhere=(from_first, beside, kept))
    await store.admit(made)
    await stepped(store, 1, "a2")
    what = await forgotten(store, ForgetTarget(session="k:one"))
    assert (what.turns, what.unread, what.thinned) == (("a1",), (), ("a2",))
    assert [row.version for row in what.versions] == [PolicyVersion("shared", 1)]
    (left,) = await store.effects.samples(["a2"])
    assert left == replace(made, elsewhere=(kept,))
    await store.aclose()
    compact(tmp_path / NAME)
    assert not holds(tmp_path, CANARY)


async def test_a_hint_that_others_gave_in_the_same_words_stays_theirs(store: Store) -> None:
    await taught(store, "a1", ("first",), session="k:one", hint="Say it in plain sentences.")
    await taught(store, "a2", ("second",), session="k:two", hint="Say it in plain sentences.")
    await forgotten(store, ForgetTarget(session="k:one"))
    assert [(hint.text, hint.turn) for hint in await store.hints.of_user("ann")] == [
        ("Say it in plain sentences.", "a2")
    ]


async def test_a_user_goes_with_the_hints_they_wrote_and_the_adapter_they_had(store: Store) -> None:
    await conversation(store)
    await store.hints.adopt("ann", Hint("Written by hand.", HintSource.OWNER), at_s=1.0)
    await stepped(store, 1, "b1")
    await forgotten(store, ForgetTarget(user="ann"))
    assert await store.hints.of_user("ann") == []
    assert await store.current("shared") == PolicyVersion("shared", 1)  # it never saw ann
    with pytest.raises(ConfigError, match="there is no user ann"):
        await store.forgettings.preview(ForgetTarget(user="ann"))


async def test_what_is_older_than_a_day_goes_and_what_is_newer_stays(store: Store) -> None:
    await taught(store, "old", ("first",), session="k:old", at_s=10.0)
    await taught(store, "new", ("second",), session="k:new", at_s=20.0)
    assert (await forgotten(store, ForgetTarget(before_s=20.0))).turns == ("old",)
    assert (await store.forgettings.preview(ForgetTarget(before_s=20.0))).is_nothing


async def test_what_is_not_there_is_said(store: Store) -> None:
    for name in ("key1:s", "key2:s"):
        await store.add_turn(a_turn(name, (message(Role.USER, name),), session=name), chain=name)
    for what, words in (
        (ForgetTarget(turn="t"), "there is no turn t"),
        (ForgetTarget(session="x"), "session x has no turn"),
        (ForgetTarget(session="s"), "several sessions are called s"),
    ):
        with pytest.raises(ConfigError, match=words):
            await store.forgettings.preview(what)
    with pytest.raises(ConfigError, match="not clear what to forget"):
        ForgetTarget()
