"""Every sink and a collector at once, for real: a server learns a correction, and each is read back with its own means.

`make test-metrics` makes an environment with the libraries.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from flow_parts import Served, headers, start

from openclaw_rl.core.message import Json
from openclaw_rl.telemetry.hub import NEEDS, note_evaluation
from openclaw_rl.telemetry.settings import MetricsSettings, SinkKind
from openclaw_rl.telemetry.spans import span_id, trace_id
from openclaw_rl.testing.listening import listening

MODULES = [module for needs in NEEDS.values() for module in needs]
# the libraries' own warnings are none of ours
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.filterwarnings("ignore")]
CONFIG = """
[train]
batch_size = 1
min_batch = 1
[trainer]
rank = 4
lr = 1e-4
[publish]
gate = false
[log]
format = "json"
[metrics]
sinks = ["tensorboard", "trackio", "mlflow", "wandb"]
project = "tried"
run = "live"
[traces]
endpoint = "URL"
"""
WISH = "Write plain sentences without any markdown."


def has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@dataclass(slots=True)
class Collector:
    """A collector of traces: OTLP over HTTP, each span by its trace and name."""

    url: str = ""
    spans: dict[tuple[bytes, str], object] = field(default_factory=dict)
    resources: set[str] = field(default_factory=set)

    async def take(self, request: web.Request) -> web.Response:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        assert request.headers["content-type"] == "application/x-protobuf"
        message = ExportTraceServiceRequest.FromString(await request.read())
        for resource in message.resource_spans:
            self.resources |= {one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans |= {(span.trace_id, span.name): span for span in scope.spans}
        return web.Response(body=b"", content_type="application/x-protobuf")


@pytest_asyncio.fixture
async def collector() -> AsyncIterator[Collector]:
    """It listens."""
    if missing := [module for module in MODULES if not has(module)]:
        pytest.skip(f"not installed: {', '.join(missing)}; run `make test-metrics`")
    collector, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", collector.take)
    async with listening(app) as url:
        collector.url = f"{url}/v1/traces"
        yield collector


async def call(server: Served, path: str, body: dict[str, Json]) -> str:
    async with (
        aiohttp.ClientSession(headers=headers()) as session,
        session.post(server.url + path, json=body) as response,
    ):
        assert response.status == 200, await response.text()
        return response.headers.get("x-openclaw-rl-turn", "")


async def taught(server: Served) -> str:
    """A turn that was corrected, once the version that learned from it is served."""
    ask: dict[str, Json] = {"messages": [{"role": "user", "content": "Mia has 5 apples and gets 7 more."}]}
    turn = await call(server, "/v1/chat/completions", {**ask, "max_tokens": 200, "temperature": 0.0})
    await call(server, "/v1/feedback", {"response_id": turn, "score": -1, "text": WISH})
    for _ in range(2400):
        rows = (await server.get("/v1/rl/versions?learned=true"))["versions"]
        if "shared.1" in str(rows) and "candidate" not in str(rows):
            return turn
        await asyncio.sleep(0.25)
    raise AssertionError(server.log.read_text("utf-8")[-3000:])


async def until_sent(server: Served) -> str:
    """What /metrics says once all sinks have taken something and nothing waits."""
    for _ in range(1200):
        async with aiohttp.ClientSession() as session, session.get(f"{server.url}/metrics") as response:
            text = await response.text()
        sent = [line for line in text.splitlines() if line.startswith("openclaw_rl_sink_records_total")]
        waiting = [line for line in text.splitlines() if line.startswith("openclaw_rl_sink_waiting")]
        if (
            len(sent) == 5
            and not any(line.endswith(" 0.0") for line in sent)
            and "".join(line[line.index("}") :] for line in waiting) == "} 0.0" * 5
        ):
            return text
        await asyncio.sleep(0.25)
    raise AssertionError(text)


async def test_a_correction_is_seen_in_every_sink_and_its_trace_leads_to_the_version(
    tmp_path: Path, running: list[Served], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    running.append(server := start(tmp_path / "home", config=CONFIG.replace("URL", collector.url)))
    turn = await taught(server)
    text = await until_sent(server)
    assert "openclaw_rl_sink_dropped_total{" in text
    assert all(line.endswith(" 0.0") for line in text.splitlines() if line.startswith("openclaw_rl_sink_dropped_total"))
    assert "sink" not in str((await server.get("/v1/rl/status"))["diagnosis"])
    assert server.end(signal.SIGTERM) == 0
    check_spans(collector, turn)
    check_log(server.log, turn)
    folder = tmp_path / "home" / "metrics"
    for kind, found in (("tensorboard", tensorboard(folder)), ("trackio", trackio(folder)), ("mlflow", mlflow(folder))):
        assert found["step/samples"] == 1.0 and found["gate/passed"] == 1.0, (kind, found)
        assert found["step/seconds"] > 0, (kind, found)
    assert wandb(folder) >= {"step/samples", "step/seconds", "gate/passed", "version"}


def check_spans(collector: Collector, turn: str) -> None:
    trace = trace_id(turn).to_bytes(16, "big")
    root = span_id(turn, "request").to_bytes(8, "big")
    spans = {name: span for (about, name), span in collector.spans.items() if about == trace}
    assert set(spans) == {"request", "stored", "judged", "sample", "step", "gate", "served"}
    assert all((span.parent_span_id or root) == root for span in spans.values())  # type: ignore[attr-defined]
    order = ["request", "judged", "sample", "step", "gate", "served"]
    ends = [spans[name].end_time_unix_nano for name in order]  # type: ignore[attr-defined]
    assert ends == sorted(ends)
    (link,) = spans["served"].links  # type: ignore[attr-defined]
    of_version = collector.spans[link.trace_id, "step"]
    assert of_version.span_id == link.span_id  # type: ignore[attr-defined]
    assert [each.trace_id for each in of_version.links] == [trace]  # type: ignore[attr-defined]
    assert "openclaw-rl" in collector.resources
    said = repr(list(collector.spans.values()))
    assert "markdown" not in said and "apples" not in said  # ids and numbers, nothing that anybody said


def check_log(log: Path, turn: str) -> None:
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert all({"time", "level", "name", "message"} <= set(line) for line in lines)
    assert any(line.get("turn") == turn and line["message"].startswith("judged") for line in lines)
    assert any(line.get("version") == "shared.1" and line["message"].startswith("serving") for line in lines)


def tensorboard(folder: Path) -> dict[str, float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard" / "tried" / "live"))
    events.Reload()
    found = {name: events.Scalars(name)[-1] for name in events.Tags()["scalars"]}
    assert {point.step for point in found.values()} == {1}
    return {name: point.value for name, point in found.items()}


def trackio(folder: Path) -> dict[str, float]:
    with sqlite3.connect(folder / "trackio" / "tried.db") as sql:
        rows = sql.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
    assert {(run, step) for run, step, _ in rows} == {("live", 1)}
    return {name: value for _, _, text in rows for name, value in json.loads(text).items()}


def mlflow(folder: Path) -> dict[str, float]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tried")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("live", "FINISHED")
    assert {point.step for point in client.get_metric_history(run.info.run_id, "step/samples")} == {1}
    found: dict[str, float] = run.data.metrics
    return found


def wandb(folder: Path) -> set[str]:
    """The names in the history of the offline run."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    found = [wandb_internal_pb2.Record.FromString(data) for data in logged(path.read_bytes())]
    return {item.key or "/".join(item.nested_key) for record in found for item in record.history.item}


def logged(data: bytes) -> Iterator[bytes]:
    """The records of W&B's file: LevelDB's log, in blocks of 32 KiB after a header of 7 bytes."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def test_an_evaluation_is_a_run_of_its_own(tmp_path: Path) -> None:
    if not has("tensorboard"):
        pytest.skip("tensorboard is not installed; run `make test-metrics`")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = MetricsSettings(sinks=(SinkKind.TENSORBOARD,), project="tried")
    assert note_evaluation(tmp_path, settings, "judge", {"accuracy": 0.75, "by": {"wish": 1}}) == []
    (folder,) = (tmp_path / "metrics" / "tensorboard" / "tried").glob("*-eval-judge-*")
    events = EventAccumulator(str(folder))
    events.Reload()
    assert {name: events.Scalars(name)[0].value for name in events.Tags()["scalars"]} == {
        "eval/judge/accuracy": 0.75,
        "eval/judge/by/wish": 1.0,
    }
