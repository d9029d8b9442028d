"""Screenshots of episodes over HTTP: sent, shown, refused in words, and a full disk that costs nothing else."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from serve_doubles import Serving, serving
from test_full_disk import no_file_longer_than

from openclaw_rl.core.episode import EpisodeStep
from openclaw_rl.core.rights import KnownKey, Right
from openclaw_rl.core.version import BASE
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.serve.door.auth import Keys, key_digest
from openclaw_rl.store.db import Store
from openclaw_rl.testing.png import a_png
from openclaw_rl.testing.turns import a_turn

PATH = "/v1/rl/episodes/ep/steps"
GUEST = KnownKey("guest", key_digest("guests"), frozenset({Right.CHAT}))


@pytest.fixture
async def server(renderer: ChatRenderer, store: Store) -> AsyncIterator[Serving]:
    keys = Keys({"alice": "secret"}, lambda: [GUEST])
    async with serving(renderer, store, change=lambda parts: replace(parts, keys=keys)) as made:
        yield made


@pytest.fixture
async def http(server: Serving, store: Store) -> AsyncIterator[aiohttp.ClientSession]:
    """A program with the owner's key, and an episode of two steps."""
    async with aiohttp.ClientSession(server.url, headers={"Authorization": "Bearer secret"}) as session:
        async with session.post("/v1/rl/episodes", json={"id": "ep", "task": "pens"}) as begun:
            name = (await begun.json())["id"]
        for index in range(2):
            turn = replace(a_turn(f"t{index}", session=name, version=BASE), step=EpisodeStep(name, index, "screen"))
            await store.add_turn(turn, chain=f"t{index}")
        yield session


async def put(http: aiohttp.ClientSession, path: str, data: bytes) -> tuple[int, str]:
    async with http.put(f"{PATH}/{path}", data=io.BytesIO(data)) as answer:
        return answer.status, await answer.text()


async def test_pictures_are_sent_listed_and_shown(http: aiohttp.ClientSession) -> None:
    assert (await put(http, "0/picture", a_png(1)))[0] == 200
    assert await put(http, "1/picture?when=after", a_png(2)) == (
        200, f'{{"id":"alice:ep","step":1,"when":"after","bytes":{len(a_png(2))}}}'
    )  # fmt: skip
    assert (await put(http, "1/picture?when=before", a_png(3)))[0] == 200
    async with http.get("/v1/rl/episodes/ep") as answer:
        assert [turn["pictures"] for turn in (await answer.json())["turns"]] == [["before"], ["before", "after"]]
    async with http.get(f"{PATH}/1/picture?when=after") as answer:
        assert await answer.read() == a_png(2)
        told = answer.headers
    assert (told["Content-Type"], told["Cache-Control"], told["X-Content-Type-Options"]) == (
        "image/png", "no-store", "nosniff"
    )  # fmt: skip
    assert "default-src 'none'" in told["Content-Security-Policy"]
    await put(http, "0/picture", a_png(9))  # sent again, it takes the place of the first
    async with http.get(f"{PATH}/0/picture") as answer:
        assert await answer.read() == a_png(9)


@pytest.mark.parametrize(
    ("path", "data", "status", "said"),
    [
        ("0/picture", b"<svg onload=alert(1)>", 400, "not a whole PNG: it does not begin as one"),
        ("0/picture", a_png()[:40], 400, "not a whole PNG: it is cut off"),
        ("0/picture", b"", 400, "not a whole PNG"),
        ("0/picture", a_png(words="x" * (5 << 20)), 413, "send at most 4194304"),
        ("2/picture", a_png(), 404, "has taken no step 2"),
        ("-1/picture", a_png(), 400, "step is '-1'"),
        ("9999999999/picture", a_png(), 400, "step is"),
        ("0/picture?when=now", a_png(), 400, "when is 'now'"),
    ],
)
async def test_what_cannot_be_kept_is_refused_in_words(
    http: aiohttp.ClientSession, path: str, data: bytes, status: int, said: str
) -> None:
    found, text = await put(http, path, data)
    assert found == status and said.lower() in text.lower()
    async with http.get("/v1/rl/episodes/ep") as answer:
        assert [turn["pictures"] for turn in (await answer.json())["turns"]] == [[], []]
    async with http.get(f"{PATH}/0/picture") as answer:
        assert answer.status == 404 and "there is no picture before step 0" in await answer.text()


async def test_only_a_key_with_admin_sends_or_sees_pictures(http: aiohttp.ClientSession, server: Serving) -> None:
    await put(http, "0/picture", a_png())
    for key, status in (("guests", 403), ("nobody", 401)):
        for method in ("GET", "PUT"):
            async with (
                aiohttp.ClientSession(server.url, headers={"x-api-key": key}) as other,
                other.request(method, f"{PATH}/0/picture", data=a_png(2) if method == "PUT" else None) as answer,
            ):
                assert answer.status == status
    async with http.get(f"{PATH}/0/picture") as answer:
        assert await answer.read() == a_png()


async def test_a_full_disk_refuses_a_picture_and_loses_nothing_else(
    http: aiohttp.ClientSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await put(http, "0/picture", a_png(1))
    with no_file_longer_than(100_000):
        status, text = await put(http, "0/picture", a_png(2, words="x" * 300_000))
        assert status == 507 and "the disk is full" in text and "cannot_be_stored" in text
        assert (await put(http, "1/picture", a_png(3, words="x" * 300_000)))[0] == 507
    async with http.get(f"{PATH}/0/picture") as answer:
        assert await answer.read() == a_png(1)  # the one before is whole
    assert [path.name for path in (tmp_path / "pictures").glob("*/*")] == ["0.png"]
    async with http.post(f"{PATH}", json={"step": 1, "score": 1.0}) as answer:
        assert answer.status == 200
    assert (await put(http, "1/picture", a_png(3, words="x" * 300_000)))[0] == 200
