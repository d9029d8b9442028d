"""A real server on a real store whose disk fills up: told, nothing acknowledged is lost, and it goes on afterwards."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
from openai import AsyncOpenAI, InternalServerError
from serve_doubles import Serving

from openclaw_rl.core.message import Json
from openclaw_rl.store.db import Store


@contextmanager
def no_file_longer_than(size_bytes: int) -> Iterator[None]:
    """No file of this process can grow beyond it: SQLite is told what a full disk would tell it."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


async def test_a_full_disk_refuses_what_it_cannot_keep_and_serving_recovers(
    server: Serving, client: AsyncOpenAI, store: Store, tmp_path: Path
) -> None:
    acknowledged: list[str] = []

    async def ask(number: int) -> None:
        server.says(f"answer {number}")
        words = " ".join(f"{number * index % 7919}" for index in range(150))
        raw = await client.chat.completions.with_raw_response.create(
            model="tiny", messages=[{"role": "user", "content": words}], max_tokens=20
        )
        acknowledged.append(raw.headers["x-openclaw-rl-turn"])

    for number in range(3):
        await ask(number)
    with (
        no_file_longer_than((tmp_path / "store.db-wal").stat().st_size + 60_000),
        pytest.raises(InternalServerError, match=r"the store cannot be written.*[Ff]ree space") as told,
    ):
        for number in range(3, 200):
            await ask(number)
    assert told.value.status_code == 507 and len(acknowledged) > 3
    server.answers.clear()
    await ask(200)
    for turn in acknowledged:
        assert await store.turn(turn) is not None


SAID = "the store cannot be written"
USER: Json = {"role": "user", "content": " ".join(f"{index * 7919 % 104729}" for index in range(150))}
ASKED: dict[str, dict[str, Json]] = {
    "/v1/chat/completions": {"messages": [USER], "max_tokens": 20},
    "/v1/completions": {"prompt": "hello", "max_tokens": 20},
    "/v1/responses": {"input": [USER], "max_output_tokens": 20},
    "/v1/messages": {"messages": [USER], "max_tokens": 20},
}


@pytest.mark.parametrize(("path", "is_streamed"), [(path, how) for path in ASKED for how in (False, True)])
async def test_each_api_says_that_the_disk_is_full_in_its_own_shape_and_the_log_in_one_line(
    server: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str, *, is_streamed: bool
) -> None:
    answers: list[tuple[int, str]] = []
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session:
        with no_file_longer_than((tmp_path / "store.db-wal").stat().st_size + 20_000):
            while not any(SAID in text for _, text in answers) and len(answers) < 200:
                server.says("an answer that is kept")
                async with session.post(server.url + path, json={**ASKED[path], "stream": is_streamed}) as answer:
                    answers.append((answer.status, await answer.text()))
    *kept, (status, last) = answers
    assert status == (200 if is_streamed else 507), last
    assert all(code == 200 and SAID not in text for code, text in kept) and len(kept) < 199
    told = json.loads(last[last.rindex("data: ") + 6 :] if is_streamed else last)
    error = told.get("error") or told["response"]["error"]
    assert SAID in error["message"] and "free space" in error["message"].lower()
    if path == "/v1/messages":
        assert (told["type"], error["type"]) == ("error", "api_error")
    assert "Traceback" not in caplog.text and "unexpected error" not in caplog.text
    assert len(await server.parts.store.rows(limit=500)) == len(kept)
    server.answers.clear()
