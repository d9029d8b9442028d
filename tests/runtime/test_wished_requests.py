"""The conversations in which a user's wishes were asked for, as the teacher finds them in the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from openclaw_rl.runtime.teaching import opening_of
from openclaw_rl.store.db import Store
from openclaw_rl.testing.turns import a_turn


async def test_the_opening_of_a_conversation_is_found_from_any_turn_of_it_and_from_none_that_is_gone(
    tmp_path: Path,
) -> None:
    store = await Store.open(tmp_path)
    try:
        parent = None
        for name in ("first", "second", "third"):
            await store.add_turn(replace(a_turn(name, f"{name}?"), parent=parent), chain=name)
            parent = name
        for name in ("first", "second", "third"):
            found = await opening_of(store, name)
            assert found is not None and found.id == "first"
        assert await opening_of(store, None) is None
        assert await opening_of(store, "gone") is None
    finally:
        await store.aclose()
