"""`make bench-updates`: 100 version changes under 32 streams, and a judge that is away while people go on talking.

python -m benchmarks.updates [--hour]

The changes are those of `make bench-swap`, without its computing every output again. The outage is of a real HTTP
endpoint behind the product's own server, judge and store, with a scripted engine. It fails in every way in turn: 503,
429, an answer that never comes, nonsense, connections that break. All of the judge's times are a thirtieth of the
defaults, so 120 s stand for an hour. With `--hour` it is an hour, with the defaults, of people who think between turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from benchmarks.common import Figures, conditions, finish, is_quick, make_model, progress
from benchmarks.http import bundled_model
from benchmarks.in_process import served
from benchmarks.kill_clients import Target, Told, talk
from benchmarks.kill_server import scripted_engine, serve_parts
from benchmarks.recompute import make_adapter
from benchmarks.swap import through_local
from openclaw_rl.collect.stage import Collect, CollectSettings
from openclaw_rl.judge.llm import LlmJudge
from openclaw_rl.judge.partners import EndpointChat
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.judge.stage import JudgeStage
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.store.db import Store
from openclaw_rl.testing.listening import listening

STREAMS = 32
BETWEEN_S = 0.3
CLIENTS = 4
CATCH_UP_S = 120.0
LOOK_S = 0.1
SILENT_S = 150.0  # longer than the judge's own patience
WAYS = ("503", "429", "silence", "nonsense", "gone")


@dataclass(frozen=True, slots=True)
class Outage:
    """So many seconds without a judge whose times are the defaults over `scale`, and how long people think."""

    seconds: float
    scale: float
    pause_s: float


HOUR, SCALED, SHORT = Outage(3600.0, 1.0, 1.0), Outage(120.0, 30.0, 0.0), Outage(10.0, 30.0, 0.0)


@dataclass(slots=True)
class Judging:
    """The endpoint: well where `way` is empty, else failing in that way."""

    way: str = ""
    calls: int = 0
    failed: int = 0
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One answer."""
        self.calls += 1
        self.failed += bool(self.way)
        if self.way == "503":
            return web.json_response({"error": "away"}, status=503)
        if self.way == "429":
            return web.json_response({"error": "slow down"}, status=429, headers={"Retry-After": "1"})
        if self.way == "nonsense":
            return web.Response(text="<html>maintenance</html>")
        if self.way == "silence":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), SILENT_S)
        if self.way == "gone" and request.transport is not None:
            request.transport.abort()
        content = "[HINT_START]\nWrite plain sentences.\n[HINT_END]\n\\boxed{1}"
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": content}}]})


def main() -> None:
    """Measures and prints the figures."""
    updates, away = (8, SHORT) if is_quick() else (100, HOUR if "--hour" in sys.argv[1:] else SCALED)
    with tempfile.TemporaryDirectory() as place:
        model = make_model(Path(place) / "model")
        adapters = [make_adapter(model, Path(place) / f"v{number}", number) for number in range(1, updates + 1)]
        progress(f"{STREAMS} streams through {updates} versions")
        record = asyncio.run(through_local(model, adapters, streams=STREAMS, between_s=BETWEEN_S))
        wrong = sum(item.version != output.version for output in record.outputs for item in output.items)
        figures: Figures = {
            "updates": len(record.changes),
            "streams": STREAMS,
            "refused": record.refused,
            "cut": record.cut,
            "wrong_version_tokens": wrong,
            "outputs": len(record.outputs),
        }
        progress(f"{figures}")
        figures |= asyncio.run(outage(Path(place) / "home", away))
    figures["conditions"] = conditions(
        f"random Qwen3 for the changes; for the outage a scripted engine, the judge's times 1/{away.scale:g} of the "
        f"defaults, {CLIENTS} clients that pause {away.pause_s:g} s after each turn",
        threads=1,
        seeds=[0],
        repeats=1,
    )
    finish(figures)


async def outage(home: Path, away: Outage) -> Figures:
    """People talk while the judge is away, and what is left unjudged when it has been back for a while."""
    model = bundled_model()
    assert model is not None
    renderer, judging = ChatRenderer(read_template(model)), Judging()
    store = await Store.open(home)
    engine = scripted_engine(renderer)
    collect = Collect(store, CollectSettings(), time.time)
    behind = web.Application()
    behind.router.add_post("/v1/chat/completions", judging.answer)
    parts = serve_parts(store, renderer, engine, collect, ServedVersions(store, engine))
    scale = away.scale
    settings = JudgeSettings(retry_s=1.0 / scale, retry_max_s=60.0 / scale, timeout_s=120.0 / scale, votes=1)
    try:
        async with (
            listening(behind) as judge_url,
            served(parts) as url,
            EndpointChat(f"{judge_url}/v1", "judge", timeout_s=settings.timeout_s, retries=0) as chat,
        ):
            stage = JudgeStage(store, LlmJudge(chat, settings), settings)
            try:
                async with asyncio.TaskGroup() as group:
                    running = group.create_task(stage.run())
                    figures = await _through(store, judging, url, away)
                    running.cancel()
            finally:
                judging.stop.set()
    finally:
        await store.aclose()
    figures["judged_out_of_order"] = _out_of_order(home)
    return figures


async def _through(store: Store, judging: Judging, url: str, away: Outage) -> Figures:
    told, target = Told(), Target(url)
    async with asyncio.TaskGroup() as group:
        for client in range(CLIENTS):
            group.create_task(talk(client, "outage", target, told, pause_s=away.pause_s))
        await asyncio.sleep(1.0)
        before, begin = len(told.acknowledged), time.monotonic()
        for way in WAYS:
            judging.way = way
            await asyncio.sleep(away.seconds / len(WAYS))
            progress(f"{way}: {judging.failed} failed calls, {len(told.acknowledged)} answers")
        away_s = time.monotonic() - begin
        waiting, answered, failed = (await store.counts())["paired"], len(told.acknowledged) - before, judging.failed
        target.is_over, judging.way = True, ""
        judging.stop.set()
    begin = time.monotonic()
    left = 1
    for _ in range(int(CATCH_UP_S / LOOK_S)):
        left = (await store.counts())["paired"]
        if not left:
            break
        await asyncio.sleep(LOOK_S)
    return {
        "judge_outage_s": round(away_s, 1),
        "answered_during_outage": answered,
        "refused_during_outage": told.wrong_status + told.broken_off,
        "failed_judge_calls": failed,
        "waiting_at_end_of_outage": waiting,
        "unjudged_after": left,
        "caught_up_s": round(time.monotonic() - begin, 1),
    }


def _out_of_order(home: Path) -> int:
    """Verdicts that came after those of turns 64 places younger. A turn may wait long for what follows it."""
    with contextlib.closing(sqlite3.connect(home / "store.db")) as sql:
        rows = sql.execute(
            "SELECT turns.seq FROM verdicts JOIN turns ON turns.id = verdicts.turn ORDER BY verdicts.seq"
        )
        order = [int(row[0]) for row in rows]
    newest, late = 0, 0
    for seq in order:
        late += seq < newest - 64
        newest = max(newest, seq)
    return late


if __name__ == "__main__":
    main()
