"""The dashboard asks for what a server shows: every metric in it is one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry
from test_gauges import _installation

from openclaw_rl.home.exposure import GuardGauges, meter_of
from openclaw_rl.runtime.listening import PREFIX, DoorGauges, LearningGauges, SinkGauges
from openclaw_rl.runtime.loop_watch import LoopWatch
from openclaw_rl.serve.door.limits import Door
from openclaw_rl.serve.metrics import Metrics
from openclaw_rl.serve.settings import ServeSettings
from openclaw_rl.store.db import Store
from openclaw_rl.trainers.objective import LossSums

ROOT = Path(__file__).parent.parent.parent
DASHBOARD = ROOT / "examples" / "grafana" / "openclaw-rl.json"
PAGE = ROOT / "docs" / "metrics.md"
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def names(registry: CollectorRegistry) -> Iterator[str]:
    for family in registry.collect():
        for suffix in SUFFIXES[family.type]:
            yield family.name + suffix


async def shown(home: Path) -> set[str]:
    """What a server with a step behind it shows at /metrics."""
    async with aclosing(await Store.open(home)) as store:
        registry, parts = Metrics().registry, _installation(home, store)
        LoopWatch(registry)
        registry.register(LearningGauges(parts))
        registry.register(SinkGauges(parts.telemetry))
        registry.register(DoorGauges(Door(web.Server(lambda request: None), 1)))  # type: ignore[arg-type, return-value]
        registry.register(GuardGauges(meter_of(ServeSettings()), {}))
        of_step = LossSums(advantage_tokens=1, gap_tokens=1, tokens=1).metrics()
        return {*names(registry), *(f"{PREFIX}_{name}" for name in of_step)}


async def test_every_query_of_the_dashboard_names_a_metric_that_there_is(tmp_path: Path) -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    queries += [each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"]
    assert len(queries) > 40
    known = await shown(tmp_path)
    for query in queries:
        asked = re.findall(r"openclaw_rl_\w+", query)
        assert asked, query
        assert set(asked) <= known, query
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(places) == len(set(places)) and len({panel["id"] for panel in board["panels"]}) == len(places)


async def test_the_page_names_metrics_that_there_are(tmp_path: Path) -> None:
    asked = set(re.findall(r"`(openclaw_rl_\w+)", PAGE.read_text("utf-8")))
    assert len(asked) > 20
    assert asked <= await shown(tmp_path)
