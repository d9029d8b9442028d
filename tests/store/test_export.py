"""The published record shape."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from store_doubles import said

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Json, Message, Role, TextPart, ToolCall, message
from openclaw_rl.core.next_state import Feedback
from openclaw_rl.core.turn import TurnKind
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.errors import StoreError
from openclaw_rl.store.db import Store
from openclaw_rl.store.export import ExportFilter, export, pieces
from openclaw_rl.testing.turns import a_turn

PUBLISHED = ["session_id", "turn", "timestamp", "messages", "prompt_text", "response_text", "tool_calls"]
PUBLISHED += ["next_state", "votes", "score", "hint"]


async def records(store: Store, wanted: ExportFilter) -> list[dict[str, Json]]:
    async with store.exports.snapshot() as snapshot:
        return [json.loads(line) async for piece in pieces(snapshot, wanted) for line in piece.lines.splitlines()]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_judged_turn_is_a_line_of_the_published_shape(store: Store, tmp_path: Path) -> None:
    call = ToolCall("call_1", "ls", '{"path": "."}')
    reply = Message(Role.ASSISTANT, (TextPart("Let me \ud800 look."),), reasoning="hm", tool_calls=(call,))
    await store.add_turn(a_turn("t", "What is here?", reply, at_s=0.5), chain="c")
    await store.pair(said("t", "no, use find"))
    votes = (Vote("score", "x", -1), Vote("score", "x", None), Vote("hint", "x", 1, "Use find."))
    await store.judge(Verdict("t", -1, VerdictSource.VOTES, votes, (Hint("Use find."), Hint("find it")), -1.0))
    await store.add_feedback(Feedback("t", -1, None, 1.0))
    path = tmp_path / "out.jsonl"
    assert await export(store, path, ExportFilter(text_of=lambda ids: f"{len(ids)} ids")) == (1, 0)
    (line,) = path.read_text("utf-8").splitlines()
    record = json.loads(line)
    assert list(record)[: len(PUBLISHED)] == PUBLISHED
    assert {name: record[name] for name in PUBLISHED} == {
        "session_id": "key:s",
        "turn": 1,
        "timestamp": "1970-01-01T00:00:00.500000+00:00",
        "messages": [{"role": "user", "content": "What is here?"}],
        "prompt_text": "14 ids",
        "response_text": "Let me \ud800 look.",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}],
        "next_state": [{"role": "user", "content": "no, use find"}],
        "votes": [-1, None],
        "score": -1,
        "hint": "Use find.",
    }
    assert record["feedback"] == {"score": -1, "text": None}
    assert (record["state"], record["hints"], record["version"]) == ("judged", ["Use find.", "find it"], "shared.0")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_main_turns_are_numbered_within_their_session_over_all_pages(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "home")
    for number in range(250):
        kind = TurnKind.SIDE if number % 5 == 0 else TurnKind.MAIN
        session, user = f"s{number % 2}", "bob" if number % 2 else "alice"
        await store.add_turn(a_turn(f"t{number}", session=session, user=user, kind=kind), chain=str(number))
    found = [(item["session_id"], item["turn"]) for item in await records(store, ExportFilter(with_side=False))]
    assert len(found) == len(set(found)) == 200
    assert [number for session, number in found if session == "s0"] == list(range(1, 101))
    bob = await records(store, ExportFilter(user="bob", with_side=False))
    assert [item["turn"] for item in bob] == list(range(1, 101))
    everything = await records(store, ExportFilter())
    assert [item["turn_id"] for item in everything] == [f"t{number}" for number in range(250)]
    assert [(item["kind"], item["turn"]) for item in everything[:4]] == [
        ("side", None),
        *[("main", 1)] * 2,
        ("main", 2),
    ]
    assert [item["turn_id"] for item in await records(store, ExportFilter(session="s1"))][:3] == ["t1", "t3", "t5"]
    await store.aclose()


async def test_a_turn_nobody_judged_has_no_score_rather_than_nought(store: Store) -> None:
    await store.add_turn(a_turn("t", (message(Role.USER, "hi"),)), chain="c")
    (record,) = await records(store, ExportFilter())
    names = ("score", "votes", "hint", "next_state", "prompt_text", "feedback")
    assert [record[name] for name in names] == [None] * 6


async def test_a_path_that_cannot_be_written_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "home")
    await store.add_turn(a_turn("t"), chain="c")
    with pytest.raises(StoreError, match="cannot be written"):
        await export(store, tmp_path / "nowhere" / "out.jsonl")
    (tmp_path / "taken").mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        await export(store, tmp_path / "taken")
    assert _names(tmp_path) == ["home", "taken"]
    await store.aclose()


async def test_what_is_written_meanwhile_is_not_in_it(store: Store) -> None:
    for number in range(30):
        await store.add_turn(a_turn(f"t{number}"), chain=str(number))
    async with store.exports.snapshot() as snapshot:
        found = pieces(snapshot, ExportFilter())
        first = await anext(found)
        await store.add_turn(a_turn("later"), chain="later")
        rest = [piece async for piece in found]
    assert sum(piece.main for piece in (first, *rest)) == 30
