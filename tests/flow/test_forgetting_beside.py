"""`openclaw-rl forget`, `export` and `check` beside the running server: it forgets by itself while it serves."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from flow_parts import KEY, Served, headers, start
from forgetting_parts import CANARY, files_with, lived, make_home, never_saw

from openclaw_rl.core.message import Json
from openclaw_rl.core.version import SHARED
from openclaw_rl.store.db import Store
from openclaw_rl.tiny.world import bundled_model

pytestmark = pytest.mark.usefixtures("forked_trainers")
CONFIG = """
[trainer]
rank = 4
alpha = 8.0
nice = 0
[train]
batch_size = 8
min_batch = 8
max_wait_s = 1e9
[publish]
gate = false
"""


@dataclass
class Streams:
    """Clients that ask one thing after the other, and what became of their streams."""

    url: str
    whole: int = 0
    broken: list[str] = field(default_factory=list)

    async def ask(self, name: str, words: str, *, tokens: int = 60) -> tuple[str, dict[str, Json]]:
        """One streamed answer, and its usage."""
        body = {
            "model": "default",
            "messages": [{"role": "user", "content": words}],
            "max_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
        said, usage, is_done = "", dict[str, Json](), False
        async with (
            aiohttp.ClientSession(headers={**headers(), "X-Session-Id": name, "X-User-Id": name}) as session,
            session.post(f"{self.url}/v1/chat/completions", json=body) as response,
        ):
            assert response.status == 200, await response.text()
            async for line in response.content:
                text = line.decode().strip().removeprefix("data: ")
                if text == "[DONE]":
                    is_done = True
                elif text:
                    event = json.loads(text)
                    usage = event.get("usage") or usage
                    said += "".join(choice["delta"].get("content") or "" for choice in event.get("choices", []))
        if not is_done:
            self.broken.append(f"{name}: no end")
        self.whole += 1
        return said, usage

    async def go_on(self, name: str) -> None:
        number = 0
        while True:
            number += 1
            try:
                await self.ask(f"{name}-{number}", f"Tell me number {number}.")
            except (aiohttp.ClientError, AssertionError) as problem:
                self.broken.append(f"{name}-{number}: {problem!r}")


@asynccontextmanager
async def two(url: str) -> AsyncIterator[Streams]:
    """Two of them for as long as this lasts."""
    streams = Streams(url)
    tasks = [asyncio.ensure_future(streams.go_on(f"client{number}")) for number in range(2)]
    try:
        yield streams
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def command(home: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "openclaw_rl", *words, "--home", str(home)]


async def ran(home: Path, *words: str) -> tuple[int, str, str]:
    """A command's code and what it said."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = await asyncio.to_thread(
        subprocess.run, command(home, *words), capture_output=True, text=True, env=environment, check=False
    )
    return done.returncode, done.stdout, done.stderr


async def learned(folder: Path) -> None:
    """A home folder that learned the canary, and whose server takes the commands' key."""
    home = await make_home(folder, bundled_model())
    await lived(home, with_canary=True)
    await home.store.aclose()
    folder.joinpath("api_key").write_text(KEY + "\n")


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `learned` makes it, to be copied."""
    folder = tmp_path_factory.mktemp("taught") / "home"
    asyncio.run(learned(folder))
    return folder


@pytest.fixture(scope="module")
def never(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The last version's digest where the canary was never said."""
    return asyncio.run(never_saw(tmp_path_factory.mktemp("never") / "home", bundled_model()))


@pytest.fixture
def home(tmp_path: Path, taught: Path) -> Path:
    return Path(shutil.copytree(taught, tmp_path / "home"))


@pytest.mark.timeout(900)
async def test_the_server_forgets_while_it_serves(
    tmp_path: Path, home: Path, never: str, running: list[Served]
) -> None:
    copy = Path(shutil.copytree(home, tmp_path / "copy"))
    code, offline, said = await ran(copy, "forget", "--user", "ann", "--yes")
    assert code == 0, said
    running.append(server := start(home, config=CONFIG))
    first = Streams(server.url)
    spoken = f"Remember {CANARY} and nothing else, for ever and ever and ever."
    assert (await first.ask("ann", spoken))[1]
    assert (await first.ask("eve", spoken))[1]["prompt_tokens_details"] != {"cached_tokens": 0}
    code, _, said = await ran(home, "forget", "--user", "ann", "--dry-run")
    assert code == 0, said
    assert "versions that saw it" in said
    async with two(server.url) as streams:
        slow = asyncio.ensure_future(streams.ask("ann", f"Now go on about {CANARY}.", tokens=500))
        code, out, said = await ran(home, "forget", "--user", "ann", "--yes")
        assert code == 0, said
        await slow
    assert streams.broken == []
    assert streams.whole > 2
    code, _, said = await ran(home, "forget", "--user", "eve", "--yes")  # who had said the same words
    assert code == 0, said
    assert files_with(home, CANARY) == []
    certificate, expected = json.loads(out), json.loads(offline)
    same = ("kind", "removed", "records", "finished_at", "at_gate", "served")
    assert {**{name: certificate[name] for name in same}, "finished_at": 0, "removed": 0} == {
        **{name: expected[name] for name in same},
        "finished_at": 0,
        "removed": 0,
    }
    assert [(item["version"], item["digest"]) for item in certificate["rebuilt"]] == [
        (item["version"], item["digest"]) for item in expected["rebuilt"]
    ]
    assert [item["version"] for item in certificate["versions_removed"]] == ["shared.2", "shared.3"]
    assert (await server.get("/v1/rl/versions"))["current"] == {SHARED: "shared.5"}
    # nobody goes on from what was read before
    usage = (await first.ask("mallory", spoken, tokens=1))[1]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}, usage
    assert server.end() == 0
    store = await Store.open(home)
    row = await store.version(await store.current(SHARED))
    await store.aclose()
    assert row is not None and row.digest == never


@pytest.mark.timeout(900)
async def test_killed_in_the_middle_it_is_finished_at_the_next_start(
    home: Path, never: str, running: list[Served]
) -> None:
    running.append(server := start(home, config=CONFIG))
    asking = await asyncio.create_subprocess_exec(
        *command(home, "forget", "--user", "ann", "--yes"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    for _ in range(2400):
        forgettings = (await server.get("/v1/rl/forget"))["forgettings"]
        assert isinstance(forgettings, list)
        if forgettings and forgettings[0]["phase"] == "rebuilding":  # type: ignore[index,call-overload]
            break
        await asyncio.sleep(0.05)
    asking.send_signal(signal.SIGINT)  # whoever asked may go away
    await asking.communicate()
    server.process.kill()
    server.process.wait(30)
    assert files_with(home, CANARY) == []
    running.append(server := start(home, config=CONFIG))
    code, _, said = await ran(home, "forget", "--user", "ann", "--yes")  # shows where it stands, and waits
    stands = "is under way in the running server" in said or "was forgotten already" in said  # where it was quick
    assert (code, stands) == (0, True), said
    assert (await server.get("/v1/rl/versions"))["current"] == {SHARED: "shared.5"}
    assert server.end() == 0
    store = await Store.open(home)
    row = await store.version(await store.current(SHARED))
    await store.aclose()
    assert row is not None and row.digest == never


@pytest.mark.timeout(600)
async def test_export_and_check_work_beside_the_server(tmp_path: Path, home: Path, running: list[Served]) -> None:
    out = tmp_path / "records.jsonl"
    running.append(server := start(home, config=CONFIG))
    async with (
        aiohttp.ClientSession(headers={**headers(), "X-Turn-Type": "side"}) as session,
        session.post(
            f"{server.url}/v1/chat/completions",
            json={"model": "default", "max_tokens": 4, "messages": [{"role": "user", "content": "name this chat"}]},
        ) as response,
    ):
        assert response.status == 200
    (home / "versions" / "shared.9.tmp").mkdir()  # as while a step writes its version
    code, said, told = await ran(home, "export", str(out))
    assert (code, said) == (0, f"6 turns and 1 side requests in {out}\n"), told
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["kind"] for record in records] == ["main"] * 6 + ["side"]
    assert records[-1]["turn"] is None
    code, said, _ = await ran(home, "export", str(out), "--user", "ann", "--no-side")
    assert (code, said) == (0, f"1 turns in {out}\n")
    code, _, told = await ran(home, "check")
    assert code == 0, told
    assert "a server runs on" in told
    assert "all is sound" in told
    (home / "versions" / "shared.2" / "adapter_config.json").write_text("{}")
    code, _, told = await ran(home, "check")
    assert code == 1
    assert "shared.2" in told
    code, _, told = await ran(home, "check", "--repair")
    assert code == 2
    assert "stop that server first" in told
    code, _, told = await ran(home, "replay")
    assert code == 2
    assert "stop it, run this again" in told
