"""Forgetting and the records over HTTP."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest
from serve_doubles import Serving, serving

from openclaw_rl.core.message import Json
from openclaw_rl.core.turn import TurnKind
from openclaw_rl.errors import ConfigError, RequestError
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.serve.parts import ForgettingControl, ServeParts
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.selection import ForgetSelection, ForgetTarget
from openclaw_rl.testing.turns import a_turn

KEY = {"Authorization": "Bearer secret"}


@dataclass
class Forgets:
    """Forgets ann, whom it knows, once."""

    begun: list[tuple[ForgetTarget, bool]] = field(default_factory=list)

    async def preview(self, what: ForgetTarget) -> Mapping[str, int]:
        if what.user not in ("ann", None):
            raise ConfigError(f"there is no user {what.user}")
        return {} if what.user is None else {"turns": 3}

    async def begin(self, what: ForgetTarget, has_records: bool) -> str:
        if self.begun:
            raise RequestError("something else is still being forgotten", status=409)
        self.begun.append((what, has_records))
        return "f1"

    async def standing(self) -> list[Mapping[str, Json]]:
        return [{"id": "f1", "phase": "done"} for _ in self.begun]


@pytest.fixture
async def forgets() -> Forgets:
    return Forgets()


@pytest.fixture
async def server(renderer: ChatRenderer, store: Store, forgets: Forgets) -> AsyncIterator[Serving]:
    def change(parts: ServeParts) -> ServeParts:
        return replace(parts, forgetting=ForgettingControl(forgets.preview, forgets.begin, forgets.standing))

    async with serving(renderer, store, change=change) as made:
        yield made


async def posted(http: aiohttp.ClientSession, body: Json) -> tuple[int, dict[str, Json]]:
    async with http.post("/v1/rl/forget", json=body) as answer:
        return answer.status, await answer.json()


async def test_what_would_go_is_counted_and_what_is_asked_for_goes_once(
    http: aiohttp.ClientSession, forgets: Forgets
) -> None:
    counted = {"id": None, "goes": {"turns": 3}, "is_nothing": False}
    assert await posted(http, {"user": "ann", "dry_run": True}) == (200, counted)
    assert forgets.begun == []
    assert await posted(http, {"user": "ann", "records": True}) == (200, counted | {"id": "f1"})
    assert forgets.begun == [(ForgetTarget(user="ann"), True)]
    async with http.get("/v1/rl/forget") as answer:
        assert await answer.json() == {"forgettings": [{"id": "f1", "phase": "done"}]}
    assert (await posted(http, {"user": "ann"}))[0] == 409
    assert await posted(http, {"before": 5.0}) == (200, {"id": None, "goes": {}, "is_nothing": True})


@pytest.mark.parametrize(
    ("body", "status"),
    [({}, 400), ({"user": "ann", "turn": "t"}, 400), ({"user": 3}, 400), ({"user": "eve"}, 404), ([], 400)],
)
async def test_what_makes_no_sense_is_refused(
    http: aiohttp.ClientSession, forgets: Forgets, body: Json, status: int
) -> None:
    assert (await posted(http, body))[0] == status
    assert forgets.begun == []


async def filled(store: Store, count: int) -> None:
    for number in range(count):
        kind = TurnKind.SIDE if number % 3 == 2 else TurnKind.MAIN
        turn = a_turn(f"t{number}", "word " * 2000, user="bob" if number % 2 else "ann", kind=kind)
        await store.add_turn(turn, chain=str(number))


async def test_all_turns_are_handed_out_as_lines(http: aiohttp.ClientSession, store: Store, tmp_path: Path) -> None:
    await filled(store, 60)
    to = tmp_path / "elsewhere" / "records.jsonl"
    async with http.get("/v1/rl/export", params={"to": str(to)}) as answer:
        lines = [json.loads(line) for line in (await answer.text()).splitlines()]
        assert (answer.content_type, answer.headers["x-openclaw-rl-forgotten"]) == ("application/x-ndjson", "0")
    assert [line["turn_id"] for line in lines] == [f"t{number}" for number in range(60)]
    assert sum(line["kind"] == "side" for line in lines) == 20
    async with http.get("/v1/rl/export", params={"user": "bob", "side": "false"}) as answer:
        lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert {line["user"] for line in lines} == {"bob"}
    assert {line["kind"] for line in lines} == {"main"}
    with sqlite3.connect(tmp_path / "store.db") as sql:
        assert [Path(row[0]).name for row in sql.execute("SELECT path FROM exports")] == ["records.jsonl"]
    sql.close()


async def test_records_are_broken_off_where_something_is_forgotten_meanwhile(
    http: aiohttp.ClientSession, store: Store
) -> None:
    await filled(store, 400)

    def no_plan(sql: sqlite3.Connection, what: ForgetSelection) -> str:
        return "{}"

    async with http.get("/v1/rl/export") as answer:
        assert await answer.content.readany()
        await store.forgettings.begin(ForgetTarget(user="ann"), name="f", at_s=1.0, planned=no_plan)
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    async with asyncio.timeout(20):
        await store.forgettings.compact()  # nobody holds the state from before any more


@pytest.mark.parametrize("query", [{"side": "maybe"}, {"to": "relative.jsonl"}, {"to": "/x" * 4000}, {"to": "/a\0b"}])
async def test_odd_wishes_for_records_are_refused(http: aiohttp.ClientSession, query: dict[str, str]) -> None:
    async with http.get("/v1/rl/export", params=query) as answer:
        assert answer.status == 400
