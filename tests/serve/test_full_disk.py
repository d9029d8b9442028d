"""A real server on a real store whose disk fills up: told, nothing acknowledged is lost, and it goes on afterwards."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from openai import AsyncOpenAI, InternalServerError
from serve_doubles import Serving

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
    assert told.value.status_code == 500 and len(acknowledged) > 3
    server.engine.answers.clear()
    await ask(200)
    for turn in acknowledged:
        assert await store.turn(turn) is not None
