"""The whole loop on a real vLLM, started once: a wish is learned, versions change under streams, and it is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from openclaw_rl.core.message import Json
from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.learning import AFTER, LearningRun, RunSettings
from openclaw_rl.evals.people.users import Student
from openclaw_rl.evals.records import LearningReport
from openclaw_rl.evals.server import Server, serving

REAL_VLLM = "REAL_VLLM"  # in the environment: the Python that has vLLM installed
VERSION = "x-openclaw-rl-version"
STREAMS = 2
SOME = 20
ENDS = ("stop", "tool_calls")  # by the model's own word; so warm, it may say anything
CONFIG = """
[engine]
kind = "vllm"
[engine.remote]
python = "{python}"
options = ["--enforce-eager", "--dtype", "float32", "--max-model-len", "4097"]
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(REAL_VLLM not in os.environ, reason="REAL_VLLM names no Python with vLLM: make test-vllm"),
]


@dataclass
class Answer:
    """One streamed answer: tokens as the client saw them come, and as the server counted them."""

    version: str = ""
    seen: int = 0
    counted: int = 0
    finish: str = ""
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)  # after some tokens


@dataclass
class Lived:
    """A server on which a wish was learned while streams ran."""

    server: Server
    http: aiohttp.ClientSession
    report: LearningReport
    streamed: list[Answer] = field(default_factory=list)

    async def post(self, path: str, body: dict[str, Json]) -> None:
        async with self.http.post(self.server.base_url + path, json=body) as answer:
            assert answer.status == 200, await answer.text()

    async def live(self) -> str:
        answer = Answer()
        await _stream(self.server, self.http, answer, session="asks", most=1)
        return answer.version


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lived(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lived]:
    folder = tmp_path_factory.mktemp("vllm")
    home = folder / "home"
    home.mkdir()
    (folder / "vllm.toml").write_text(CONFIG.format(python=os.environ[REAL_VLLM]))
    async with serving(home, model="bundled", config=folder / "vllm.toml", start_s=600) as server:
        headers = {"Authorization": f"Bearer {server.key}"}
        async with (
            Client(server.base_url, server.key, await served_model(server.base_url, server.key)) as client,
            aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=600)) as http,
        ):
            run = LearningRun(client, Student(0), RunSettings(sessions=8, problems=10, stop_after=0, settle_s=300))
            streamed: list[Answer] = []
            streams = [asyncio.create_task(_streams(server, http, number, streamed)) for number in range(STREAMS)]
            learning = asyncio.create_task(run.run())
            await asyncio.wait([learning, *streams], return_when=asyncio.FIRST_COMPLETED)
            if learning.done():  # what they say from now on is said by the last version
                said = len(streamed)
                while len(streamed) < said + 2 * STREAMS and not any(stream.done() for stream in streams):
                    await asyncio.wait(streams, timeout=0.2)
            done = [task for task in (learning, *streams) if task.done()]
            for task in (learning, *streams):
                task.cancel()
            await asyncio.gather(learning, *streams, return_exceptions=True)
            for task in done:
                task.result()  # a stream that was refused or cut ends all, and says why
            yield Lived(server, http, await run.report(), streamed)


async def _streams(server: Server, http: aiohttp.ClientSession, number: int, streamed: list[Answer]) -> None:
    """Answers one after the other, until cancelled."""
    for turn in range(10_000):
        answer = Answer()
        await _stream(server, http, answer, session=f"stream-{number}-{turn}", most=60)
        streamed.append(answer)


async def _stream(server: Server, http: aiohttp.ClientSession, answer: Answer, *, session: str, most: int) -> None:
    """One side answer so warm that it hardly ends before its length, filled in as it comes."""
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": f"Tell me a long story about {session}."}],
        "max_tokens": most,
        "temperature": 2.0,
        "logprobs": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"X-Session-Id": session, "X-Turn-Type": "side"}
    async with http.post(f"{server.base_url}/chat/completions", json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        answer.version = response.headers[VERSION]
        async for line in response.content:
            if line.startswith(b"data: {"):
                chunk = msgspec.json.decode(line[6:])
                assert "error" not in chunk, chunk
                for choice in chunk["choices"]:
                    answer.seen += len((choice.get("logprobs") or {}).get("content") or [])
                    answer.finish = choice.get("finish_reason") or answer.finish
                if answer.seen >= SOME:
                    answer.has_begun.set()
                if chunk.get("usage"):
                    answer.counted = chunk["usage"]["completion_tokens"]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *_children(child)]
    return found


def _vllm(server: Server) -> list[int]:
    """The processes of the model server, its own first."""
    return [pid for pid in _children(server.pid) if b"vllm" in Path(f"/proc/{pid}/cmdline").read_bytes().lower()]


def _alive(pids: list[int]) -> list[int]:
    """Those that still compute: neither gone nor a zombie."""
    return [
        pid
        for pid in pids
        if Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    ]


async def test_a_wish_is_learned(lived: Lived) -> None:
    report, measured = lived.report, lived.report.measured(AFTER)
    assert report.converged_at is not None and report.versions >= 1 and report.refused == 0
    assert measured is not None and measured.wish.value >= 0.9 and measured.right.value >= 0.9


async def test_versions_changed_under_streams_of_which_none_was_cut(lived: Lived) -> None:
    versions = {answer.version for answer in lived.streamed}
    assert "shared.0" in versions and len(versions) >= 2
    for answer in lived.streamed:
        assert answer.seen <= answer.counted and answer.counted > 0  # what ends an answer is counted and not shown
        assert answer.finish in ENDS or (answer.finish, answer.counted) == ("length", 60), answer


@pytest.mark.parametrize("killed", [0, -1], ids=["its server", "what computes"])
async def test_an_answer_goes_on_when_the_engine_is_killed_and_the_engine_comes_back(lived: Lived, killed: int) -> None:
    live = await lived.live()
    engine = _vllm(lived.server)
    assert len(engine) >= 2  # a server and what computes behind it
    answer = Answer()
    stream = asyncio.create_task(_stream(lived.server, lived.http, answer, session=f"killed {killed}", most=400))
    await answer.has_begun.wait()
    os.kill(engine[killed], signal.SIGKILL)
    assert not stream.done()
    await stream
    assert answer.version == live and SOME <= answer.seen <= answer.counted
    assert answer.finish in ENDS or (answer.finish, answer.counted) == ("length", 400), answer
    assert not set(_vllm(lived.server)) & set(engine)
    assert not _alive(engine)  # nothing of the old one holds memory or a GPU

    assert await lived.live() == live


async def test_an_earlier_version_is_served_again(lived: Lived) -> None:
    await lived.post("/rl/rollback", {"version": "shared.0"})
    assert await lived.live() == "shared.0"
