"""Hints kept for users: adopted with the verdict, replaced by what says the same, retired and taken back."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from older_stores import take_back

from openclaw_rl.core.hint import Hint, HintSource, HintState, PlacedHint
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.store import connection
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.selection import ForgetTarget
from openclaw_rl.store.migrations import STEPS
from openclaw_rl.store.tables import hints
from openclaw_rl.testing.turns import a_turn
from openclaw_rl.wording.likeness import is_same_wish, likeness

PLAIN = Hint("Write plain sentences without any markdown.")
STEPS_WANTED = Hint("Explain every step and the reason for it.")


async def _judged(store: Store, name: str, keep: Hint | None, *, user: str = "alice") -> bool:
    await store.add_turn(a_turn(name, f"question {name}", user=user), chain=name)
    await store.pair(NextState(name, (message(Role.USER, "No markdown please."),), NextStateSource.USER))
    kept = () if keep is None else (keep,)
    return await store.judge(Verdict(name, -1, VerdictSource.VOTES, hints=kept), keep=keep)


async def test_a_hint_is_kept_with_the_verdict_it_came_with(store: Store) -> None:
    before = store.hints.changes
    assert await _judged(store, "t1", PLAIN)
    (kept,) = await store.hints.of_user("alice")
    assert (kept.text, kept.turn, kept.state, kept.times) == (PLAIN.text, "t1", HintState.IN_USE, 1)
    assert store.hints.changes > before
    assert await store.hints.of_user("bob") == []


async def test_a_verdict_that_comes_twice_keeps_its_hint_once(store: Store) -> None:
    assert await _judged(store, "t1", PLAIN)
    assert not await store.judge(Verdict("t1", -1, VerdictSource.VOTES, hints=(PLAIN,)), keep=PLAIN)
    assert [kept.times for kept in await store.hints.of_user("alice")] == [1]


async def test_a_newer_hint_takes_the_place_of_one_about_the_same(store: Store) -> None:
    await store.hints.adopt("alice", Hint("Use bullet points."), at_s=1.0)
    await store.hints.adopt("alice", STEPS_WANTED, at_s=2.0)
    await store.hints.adopt("alice", Hint("Do not use bullet points!"), at_s=3.0)
    kept = await store.hints.of_user("alice")
    assert [(item.text, item.times) for item in kept] == [("Do not use bullet points!", 2), (STEPS_WANTED.text, 1)]


async def test_a_retired_hint_comes_back_when_the_user_asks_again(store: Store) -> None:
    kept = await store.hints.adopt("alice", PLAIN, at_s=1.0)
    assert await store.hints.retire(kept.id, why="the weights follow", at_s=2.0)
    assert not await store.hints.retire(kept.id, why="twice", at_s=3.0)
    (retired,) = await store.hints.of_user("alice")
    assert (retired.state, retired.why) == (HintState.RETIRED, "the weights follow")
    again = await store.hints.adopt("alice", PLAIN, at_s=4.0)
    assert (again.id, again.state, again.times) == (kept.id, HintState.IN_USE, 2)
    assert again.why == "asked for again after it had retired (the weights follow)"


async def test_a_hint_that_was_reworded_meanwhile_is_not_retired_for_its_old_words(store: Store) -> None:
    kept = await store.hints.adopt("alice", PLAIN, at_s=1.0)
    await store.hints.edit(kept.id, "Write plain prose.", at_s=2.0)
    assert not await store.hints.retire(kept.id, why="the weights follow", at_s=3.0, text=PLAIN.text)


async def test_an_edited_hint_is_the_owners_and_a_removed_one_is_gone(store: Store) -> None:
    kept = await store.hints.adopt("alice", PLAIN, at_s=1.0)
    edited = await store.hints.edit(kept.id, " Short answers. ", at_s=2.0)
    assert edited is not None and (edited.text, edited.source) == ("Short answers.", HintSource.OWNER)
    assert await store.hints.remove(kept.id) and not await store.hints.remove(kept.id)
    assert await store.hints.edit(kept.id, "x y", at_s=3.0) is None
    assert await store.hints.everyone() == []


async def test_the_number_of_kept_hints_is_bounded_and_retired_ones_go_first(store: Store) -> None:
    first = await store.hints.adopt("alice", Hint("word number zero"), at_s=0.0)
    for number in range(1, hints.MOST_KEPT):
        await store.hints.adopt("alice", Hint(f"alpha{number} beta{number}"), at_s=float(number))
    retired = (await store.hints.of_user("alice"))[50]
    await store.hints.retire(retired.id, why="x", at_s=1e6)
    await store.hints.adopt("alice", Hint("one more wish"), at_s=1e6)
    names = [item.id for item in await store.hints.of_user("alice")]
    assert len(names) == hints.MOST_KEPT and retired.id not in names and first.id in names


async def test_a_turn_comes_back_with_the_hints_it_was_read_behind(store: Store) -> None:
    turn = replace(a_turn("t1"), carried=(PlacedHint(0, "hint-1", "Be brief."),))
    await store.add_turn(turn, chain="t1")
    found = await store.turn("t1")
    assert found == turn and found is not None
    assert found.read[0].text == "What is 2 + 2?\n\n[user's hint] Be brief."
    assert found.messages[0].text == "What is 2 + 2?"


async def test_a_wish_that_changed_replaces_what_it_forbids_or_allows_and_a_shorter_one_loses_nothing(
    store: Store,
) -> None:
    plain = "The user wants plain sentences like a person writes, without markdown, bold text or numbered steps."
    marked = "Use a structured markdown format with a header, numbered bold steps and a boxed answer."
    await store.hints.adopt("alice", Hint(plain), at_s=1.0)
    await store.hints.adopt("alice", Hint(marked), at_s=2.0)
    assert [item.text for item in await store.hints.of_user("alice")] == [marked]
    await store.hints.adopt("bob", Hint("Answer in French, in short sentences."), at_s=3.0)
    await store.hints.adopt("bob", Hint("Short sentences in French!"), at_s=4.0)
    assert [(item.text, item.times) for item in await store.hints.of_user("bob")] == [
        ("Answer in French, in short sentences.", 2)
    ]
    await store.hints.adopt("bob", Hint("No short sentences in French."), at_s=5.0)
    assert [item.text for item in await store.hints.of_user("bob")] == ["No short sentences in French."]


async def test_a_wish_takes_the_place_of_all_that_are_about_the_same(store: Store) -> None:
    for text in ("Use bullet points for lists.", "Explain every step.", "Put bold headers over lists of points."):
        await store.hints.adopt("alice", Hint(text), at_s=1.0)
    await store.hints.adopt("alice", Hint("No bullet points, no bold headers and no lists."), at_s=2.0)
    assert {item.text for item in await store.hints.of_user("alice")} == {
        "No bullet points, no bold headers and no lists.",
        "Explain every step.",
    }


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Use bullet points.", "Do not use bullet points.", True),
        ("Explain every step.", "Number the steps in bold.", False),
        ("Write without any markdown.", "Explain each step in detail.", False),
        ("In grades: explain every step in detail.", "In solutions: explain every step in detail.", False),
        ("In grades: explain every step in detail.", "Explain every step in more detail.", True),
        ("When you write code, use short names.", "When you write code, never use short names.", True),
        ("Write in a warm and friendly tone.", "Write in a dry tone, never friendly.", True),
    ],
)
def test_a_wish_and_its_opposite_are_about_one_thing(one: str, other: str, expected: bool) -> None:
    assert is_same_wish(one, other) is expected


def test_likeness_looks_at_the_words_that_tell_wishes_apart() -> None:
    assert likeness("Use bullet points", "use BULLET points!") == 1.0
    assert likeness("Use bullet points.", "Do not use bullet points.") == 1.0
    assert likeness("Short answers please", "Write long stories") == 0.0
    # {plain, sentences, markdown} and {plain, sentences, bold}: 2 of 4
    assert likeness("Write plain sentences without markdown", "Plain sentences, no bold") == 0.5


def test_a_store_of_the_first_form_is_brought_to_the_newest(tmp_path: Path) -> None:
    connection.open_writer(tmp_path / "new.db").close()
    old = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    shape = _shape(old)
    take_back(old, 1)
    old.close()
    reopened = connection.open_writer(tmp_path / "new.db")
    assert _shape(reopened) == shape
    assert reopened.execute("PRAGMA user_version").fetchone()[0] == max(STEPS) + 1
    reopened.close()


def _shape(sql: sqlite3.Connection) -> list[object]:
    tables = [str(row[0]) for row in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    indexes = [str(row[0]) for row in sql.execute("SELECT name FROM sqlite_master WHERE type = 'index' ORDER BY name")]
    return [*indexes, *((table, sql.execute(f"PRAGMA table_info({table})").fetchall()) for table in tables)]


KILLED = """
import asyncio, os, sys
from pathlib import Path
from openclaw_rl.core.hint import Hint
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.selection import ForgetTarget

async def keep():
    store = await Store.open(Path(sys.argv[1]))
    kept = await store.hints.adopt("alice", Hint("Write plain sentences."), at_s=1.0)
    await store.hints.adopt("alice", Hint("Explain every step."), at_s=2.0)
    await store.hints.retire(kept.id, why="the weights follow", at_s=3.0)
    os.kill(os.getpid(), 9)

asyncio.run(keep())
"""


async def test_hints_outlive_a_process_that_is_killed(tmp_path: Path) -> None:
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, str(tmp_path))
    assert await killed.wait() == -signal.SIGKILL
    store = await Store.open(tmp_path)
    kept = await store.hints.of_user("alice")
    await store.aclose()
    assert [(item.text, item.state.value) for item in kept] == [
        ("Write plain sentences.", "retired"),
        ("Explain every step.", "in_use"),
    ]


async def test_a_forgotten_hint_is_known_to_be_gone_by_those_who_hold_hints_in_memory(store: Store) -> None:
    await _judged(store, "t1", PLAIN)
    before = store.hints.changes
    await store.forgettings.begin(ForgetTarget(user="alice"), name="f1", at_s=1.0, planned=lambda sql, found: "{}")
    assert await store.hints.of_user("alice") == [] and store.hints.changes > before


async def test_corrections_without_a_hint_are_those_since_one_was_last_heard(store: Store) -> None:
    for name, keep in (("t1", None), ("t2", PLAIN), ("t3", None), ("t4", None)):
        await _judged(store, name, keep)
    await _judged(store, "of-bob", None, user="bob")
    await store.add_turn(a_turn("good", "question", user="alice"), chain="good")
    await store.pair(NextState("good", (message(Role.USER, "Thanks!"),), NextStateSource.USER))
    await store.judge(Verdict("good", 1, VerdictSource.VOTES))
    found = await store.hints.unheard("alice", limit=12)
    assert [(turn.id, after.text) for turn, after in found] == [
        ("t4", "No markdown please."),
        ("t3", "No markdown please."),
    ]
    assert [turn.id for turn, _ in await store.hints.unheard("alice", limit=1)] == ["t4"]
    assert await store.hints.unheard("carol", limit=12) == []


async def test_a_damaged_correction_is_left_out(store: Store, tmp_path: Path) -> None:
    for name in ("t1", "t2"):
        await _judged(store, name, None)
    with sqlite3.connect(tmp_path / "store.db") as sql:
        sql.execute("UPDATE next_states SET messages = x'00' WHERE turn = 't1'")
    assert [turn.id for turn, _ in await store.hints.unheard("alice", limit=12)] == ["t2"]


async def test_a_hint_that_could_not_be_learned_is_left_to_prompts_until_it_is_asked_for_again(store: Store) -> None:
    assert await _judged(store, "t1", PLAIN)
    assert await _judged(store, "t2", STEPS_WANTED)
    before = store.hints.changes
    (left,) = await store.hints.leave_to_prompts(["t1", "gone"])
    assert (left.text, left.needs_prompt, left.is_wished) == (PLAIN.text, True, True)
    assert store.hints.changes > before
    assert [hint.needs_prompt for hint in await store.hints.of_user("alice")] == [True, False]
    assert await store.hints.leave_to_prompts(["t1"]) == []  # it is already
    assert await _judged(store, "t3", PLAIN)
    assert [hint.needs_prompt for hint in await store.hints.of_user("alice")] == [False, False]


async def test_so_is_one_whose_words_another_correction_repeated_since(store: Store) -> None:
    """The row names the turn that asked last."""
    assert await _judged(store, "t1", PLAIN)
    assert await _judged(store, "t2", PLAIN)
    assert [hint.turn for hint in await store.hints.leave_to_prompts(["t1"])] == ["t2"]


async def test_a_retired_hint_is_not_left_to_prompts(store: Store) -> None:
    assert await _judged(store, "t1", PLAIN)
    (kept,) = await store.hints.of_user("alice")
    await store.hints.retire(kept.id, why="retired by hand", at_s=2.0)
    assert await store.hints.leave_to_prompts(["t1"]) == []
