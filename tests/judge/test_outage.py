"""A real endpoint that fails in every way for an hour: turns wait, cost little, and are judged in order afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from judge_doubles import said, turn

from openclaw_rl.judge.llm import LlmJudge
from openclaw_rl.judge.partners import EndpointChat
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.judge.stage import JudgeStage
from openclaw_rl.store.db import Store
from openclaw_rl.testing.listening import listening

NAMES = [f"t{number}" for number in range(12)]
HOUR_S = 3600.0


@dataclass
class Endpoint:
    """Fails in its way until it is well."""

    way: str
    calls: int = 0
    url: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.calls += 1
        if self.way == "429":
            return web.json_response({"error": "slow down"}, status=429, headers={"Retry-After": "30"})
        if self.way == "slow":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(20):
                    await self.ended.wait()
        if self.way == "cut off" and request.transport is not None:
            request.transport.abort()
        if self.way == "nonsense":
            return web.Response(text="<html>maintenance</html>")
        if self.way == "503":
            return web.Response(status=503, text="away")
        content = "\\boxed{-1}"
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": content}}]})


@dataclass
class Time:
    """Passes when somebody waits."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s

    async def pause(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


@asynccontextmanager
async def failing(way: str) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(way)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", endpoint.answer)
    async with listening(app) as url:
        endpoint.url = f"{url}/v1"
        try:
            yield endpoint
        finally:
            endpoint.ended.set()


async def until(task: asyncio.Task[None], time: Time, *, s: float) -> None:
    """Lets the stage go on until so much time has passed."""
    while time.now_s < s:
        await asyncio.wait([task], timeout=0.001)
        assert not task.done(), task


@pytest.mark.parametrize("way", ["503", "429", "slow", "cut off", "nonsense"])
async def test_an_hour_without_a_judge_loses_no_turn_and_costs_few_calls(tmp_path: Path, way: str) -> None:
    store, time = await Store.open(tmp_path), Time()
    for number, name in enumerate(NAMES):
        await store.add_turn(turn(name, at_s=float(number)), chain=name)
        await store.pair(said("no, shorter please", name))
    settings = JudgeSettings(votes=1, at_once=1, retries=0, timeout_s=5.0)
    async with failing(way) as endpoint:
        chat = EndpointChat(endpoint.url, "judge", timeout_s=0.05, retries=0, clock=time, pause=time.pause)
        async with chat:
            judge = LlmJudge(chat, settings, clock=time, pause=time.pause)
            stage = JudgeStage(store, judge, settings, clock=time, pause=time.pause)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(stage.run())
                await until(running, time, s=HOUR_S)
                assert (await store.counts())["paired"] == len(NAMES)
                assert stage.status.judged == 0 and stage.status.last_error
                # a score and a hint each minute, and some more while the pauses grew
                assert 60 <= endpoint.calls <= 150
                endpoint.way = ""
                endpoint.ended.set()
                while (await store.counts())["judged"] < len(NAMES):
                    await asyncio.wait([running], timeout=0.001)
                running.cancel()
    await store.aclose()
    first, *others = verdicts(tmp_path)
    assert others == [name for name in NAMES if name != first]  # the first was being tried as the judge came back


def verdicts(home: Path) -> list[str]:
    """The judged turns in the order of their verdicts."""
    with contextlib.closing(sqlite3.connect(home / "store.db")) as sql:
        return [str(row[0]) for row in sql.execute("SELECT turn FROM verdicts ORDER BY seq")]
