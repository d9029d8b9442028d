"""What is too old is erased, unless it is still needed; what was learned and asked for stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from store_doubles import ready, said

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.runtime.serving import DAY_S, retain
from openclaw_rl.store.db import Store
from openclaw_rl.testing.turns import a_turn

MARKER = "zanzibarcinnamon " * 400  # long enough to be kept as a text of its own


async def test_old_turns_of_ended_sessions_go_and_all_others_stay(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    old = replace(a_turn("old", session="key:a"), at_s=0.0, messages=(message(Role.USER, MARKER),))
    await store.add_turn(old, chain="1", seen_s=0.0)
    await store.add_turn(replace(a_turn("open", session="key:b"), at_s=0.0), chain="2", seen_s=0.0)
    await store.add_turn(replace(a_turn("new", session="key:c"), at_s=5 * DAY_S), chain="3", seen_s=5 * DAY_S)
    for session in ("key:a", "key:c"):
        await store.end_session(session, why="done", at_s=6.0)
    assert await retain(store, 3.0, now_s=lambda: 7 * DAY_S) == 1
    assert [await store.turn(name) is None for name in ("old", "open", "new")] == [True, False, False]
    assert await retain(store, 0.0, now_s=lambda: 700 * DAY_S) == 0  # 0 days keep everything
    await store.aclose()
    assert _files_with(tmp_path, b"zanzibarcinnamon") == []


async def test_a_turn_that_waits_to_teach_is_kept_until_it_has(store: Store) -> None:
    await ready(store, "a", session="key:s")
    await store.end_session("key:s", why="done", at_s=2.0)
    assert await retain(store, 1.0, now_s=lambda: 9 * DAY_S) == 0
    assert await store.drop("a", DropReason.STALE)
    assert await retain(store, 1.0, now_s=lambda: 9 * DAY_S) == 1
    assert await store.rows(state=State.DROPPED) == []


async def test_a_kept_hint_outlives_the_turn_it_was_drawn_from(store: Store) -> None:
    await store.add_turn(a_turn("a", session="key:s"), chain="1")
    await store.pair(said("a"))
    hint = Hint("Answer in French.")
    await store.judge(Verdict("a", -1, VerdictSource.VOTES, hints=(hint,)), keep=hint)
    await store.drop("a", DropReason.STALE)
    await store.end_session("key:s", why="done", at_s=2.0)
    assert await retain(store, 1.0, now_s=lambda: 9 * DAY_S) == 1
    [kept] = await store.hints.everyone()
    assert (kept.text, kept.turn) == ("Answer in French.", None)


def _files_with(folder: Path, words: bytes) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file() and words in path.read_bytes()]
