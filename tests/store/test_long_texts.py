"""Long texts are looked through beside the writing thread: nobody else's turn waits, and the order stays."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from openclaw_rl.core.ledger import State
from openclaw_rl.core.masked import Private
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.store.db import Store
from openclaw_rl.store.redact.masker import LONG_CHARS, Finder, Found, Masker
from openclaw_rl.testing.turns import a_turn

LONG = "a long text " * (LONG_CHARS // 12 + 1)


def held_up(free: threading.Event, begun: threading.Event) -> Finder:
    """Finds nothing, in a long text only after it was set free."""

    def find(text: str) -> list[Found]:  # type: ignore[misc]
        if len(text) > LONG_CHARS:
            begun.set()
            assert free.wait(30)
        return []

    return find  # type: ignore[return-value]


def stands_in(home: Path, text: str) -> bool:
    return any(text.encode() in path.read_bytes() for path in home.iterdir())


async def test_short_turns_are_stored_while_a_long_one_is_looked_through(tmp_path: Path) -> None:
    free, begun = threading.Event(), threading.Event()
    store = await Store.open(tmp_path, masker=Masker((held_up(free, begun),)))
    first = a_turn("first", session="key:one")
    await store.add_turn(first, chain="first", prefix="first")
    said = (message(Role.USER, LONG),)
    pairing = store.begin_pair(NextState("first", said, NextStateSource.USER))
    asked = (*first.messages, first.reply, *said)
    second = a_turn("second", asked, session="key:one")
    storing = asyncio.ensure_future(store.add_turn(second, chain="second", prefix="second"))
    ending = asyncio.ensure_future(store.end_session("key:one", why="done", at_s=9.0))
    await asyncio.to_thread(begun.wait, 30)
    assert await store.add_turn(a_turn("other", session="key:two"), chain="other", prefix="other")
    assert not (pairing.done() or storing.done() or ending.done())
    free.set()
    assert await pairing and await storing
    await ending
    row = await store.row("first")
    assert row is not None and row.state is State.PAIRED  # before its session was over
    assert (await store.turn("second")) is not None
    await store.aclose()


async def test_what_a_long_text_holds_is_looked_for_once_and_masked(tmp_path: Path) -> None:
    looked: list[int] = []
    secret = "sk-very-secret-1234567890"

    def find(text: str) -> list[Found]:
        looked.append(len(text))
        at = text.find(secret)
        return [] if at < 0 else [Found(at, at + len(secret), Private.SECRET)]

    store = await Store.open(tmp_path, masker=Masker((find,)))  # type: ignore[arg-type]
    turn = a_turn("one", (message(Role.USER, LONG + secret),))
    assert await store.add_turn(turn, chain="one", prefix="one")
    assert looked.count(len(LONG) + len(secret)) == 1
    kept = await store.turn("one")
    assert kept is not None and secret not in kept.messages[0].text and len(kept.messages[0].text) > len(LONG) // 2
    await store.aclose()
    assert not stands_in(tmp_path, secret)
