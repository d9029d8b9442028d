"""The HTTP side of an installation: it listens, and at the end lets every stream finish.

Gauges of learning and queues are read from the parts' own status at each scrape.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from openclaw_rl.core.message import Json, Message
from openclaw_rl.core.scope import own_scope
from openclaw_rl.core.turn import Placement
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.home.address import BoundAddress
from openclaw_rl.home.exposure import GuardGauges, MeteredCollector, meter_of
from openclaw_rl.home.folder import Address, forget_address, note_address
from openclaw_rl.home.models import served_name
from openclaw_rl.publish.compare import ComparedPrompt, Comparison
from openclaw_rl.publish.swap import pin, rollback, unpin
from openclaw_rl.runtime.forgetting import Forgetter
from openclaw_rl.runtime.installation import Installation
from openclaw_rl.runtime.loop_watch import LoopWatch, watching
from openclaw_rl.runtime.owning import owner_control
from openclaw_rl.serve.app import build_app, runner_of
from openclaw_rl.serve.door.limits import Door, room_for
from openclaw_rl.serve.metrics import Metrics
from openclaw_rl.serve.parts import Control, ForgettingControl, Orders, ServeParts
from openclaw_rl.serve.request.params import defaults_of
from openclaw_rl.telemetry.hub import Telemetry
from openclaw_rl.trainers.external.trainer import ExternalTrainer
from openclaw_rl.ui.page import add_page

log = logging.getLogger(__name__)

BACKLOG = 128  # connections the system queues until they are accepted
PREFIX = "openclaw_rl"


@asynccontextmanager
async def listening(
    parts: Installation, place: BoundAddress, *, learns: bool, forgetter: Forgetter | None = None
) -> AsyncIterator[str]:
    """The server's URL, while it listens. At the end new requests get 503, and those under way are finished.

    Answers that take longer than `serve.finish_s` are cut off, their turns stored as cancelled.
    """
    metrics = Metrics()
    async with watching(metrics.registry) as watch:
        serve_parts = _serve_parts(parts, metrics, watch, learns=learns, forgetter=forgetter)
        metrics.registry.register(LearningGauges(parts))
        metrics.registry.register(SinkGauges(parts.telemetry))
        async with _answering(parts, serve_parts, place) as url:
            yield url


@asynccontextmanager
async def _answering(parts: Installation, serve_parts: ServeParts, place: BoundAddress) -> AsyncIterator[str]:
    settings, loop = parts.config.serve, asyncio.get_running_loop()
    app = build_app(serve_parts, add_page)
    app.middlewares.append(parts.activity.middleware)
    runner = runner_of(app)
    await runner.setup()
    assert runner.server is not None
    door = Door(runner.server, room_for(settings.max_connections))
    serve_parts.metrics.registry.register(DoorGauges(door))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(asyncio.to_thread, forget_address, parts.config.home)
        for one in place.opened():
            listener = await loop.create_server(door, sock=one, ssl=place.tls, backlog=BACKLOG)
            stack.callback(listener.close)
        await asyncio.to_thread(note_address, parts.config.home, Address(place.url, os.getpid()))
        yield place.url
        await parts.activity.finished(settings.finish_s)  # new clients are meanwhile asked to retry


def _serve_parts(
    parts: Installation, metrics: Metrics, watch: LoopWatch, *, learns: bool, forgetter: Forgetter | None
) -> ServeParts:
    settings = parts.config.serve
    meter = meter_of(settings)
    metrics.registry.register(GuardGauges(meter, parts.store.masked))

    async def status() -> Mapping[str, Json]:
        found = await parts.status(learns=learns, reused=metrics.reuse.share, delays=watch.delays)
        return {**found, "placeholders": dict(metrics.replaced)}

    async def own(placement: Placement) -> PolicyVersion | None:
        scope = own_scope(parts.config.train.scopes, user=placement.user, agent=placement.agent)
        return None if scope is None else await parts.served.own(scope)

    async def roll_back(version: PolicyVersion) -> None:
        await rollback(parts.store, version, served=parts.served)

    ends = parts.renderer.ends(parts.engine.info.eos_ids)
    comparison = Comparison(parts.store, parts.engine, parts.renderer, parts.served, ends)
    return ServeParts(
        engine=parts.engine,
        renderer=parts.renderer,
        collector=MeteredCollector(parts.collect, meter),
        store=parts.store,
        control=Control(
            feedback=parts.store.add_feedback,
            session_done=parts.collect.done,
            status=status,
            rollback=roll_back,
            session_name=parts.collect.session_name,
        ),
        current=lambda user: parts.served.current(SHARED),
        own=own,
        named=parts.served.named,
        models=(settings.model_name or served_name(parts.config.model),),
        context_length=parts.engine.info.context_length,
        eos_ids=ends,
        keys=parts.keys,
        meter=meter,
        orders=orders_of(parts, comparison),
        forgetting=None
        if forgetter is None
        else ForgettingControl(forgetter.preview, forgetter.begin, forgetter.standing),
        owner=owner_control(parts.config),
        training=parts.trainer if isinstance(parts.trainer, ExternalTrainer) else None,
        check_grammar=parts.engine.check_grammar,
        is_stopping=lambda: parts.activity.is_stopping,
        settings=settings,
        metrics=metrics,
        carried=parts.bridge.hints.placed,
        defaults=defaults_of(settings, _generation_config(parts.folder)),
    )


def orders_of(parts: Installation, comparison: Comparison) -> Orders:
    """The owner's orders about versions."""

    async def pinned(version: PolicyVersion) -> None:
        await pin(parts.store, version, served=parts.served, at_s=time.time())

    async def unpinned(scope: str) -> PolicyVersion:
        return await unpin(parts.store, scope, served=parts.served)

    async def compare(
        versions: Sequence[PolicyVersion], prompts: Sequence[Sequence[Message]], max_tokens: int
    ) -> Sequence[ComparedPrompt]:
        return await comparison.of(versions, prompts, max_tokens=max_tokens)

    return Orders(pinned, unpinned, compare)


def _generation_config(folder: Path) -> dict[str, Json]:
    """What the model's makers recommend for sampling; nothing if they say nothing."""
    path = folder / "generation_config.json"
    if not path.is_file():
        return {}
    try:
        held = json.loads(path.read_text("utf-8"))
    except ValueError:
        log.warning("%s is not valid JSON; sampling falls back to temperature 1", path)
        return {}
    return held if isinstance(held, dict) else {}


class DoorGauges(Collector):
    """The number of connections, and of those refused for lack of room."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def collect(self) -> Iterable[Metric]:
        """One gauge per number."""
        return _gauges({"connections_open": self._door.open, "connections_refused": self._door.refused})


class LearningGauges(Collector):
    """Gauges of every stage; `train_rollout_logp_gap` and similar ones come from the last step.

    Besides them, one for each bounded queue and each cache: docs/operation.md says what is dropped.
    """

    def __init__(self, parts: Installation) -> None:
        self._parts = parts

    def collect(self) -> Iterable[Metric]:
        """One gauge per number."""
        parts = self._parts
        facts: dict[str, float] = {
            "version": parts.served.current(SHARED).number,
            "requests_open": parts.activity.running,
            "requests_turned_away": parts.activity.turned_away,
            "versions_on_disk": parts.pruning.on_disk.versions,
            "versions_bytes": parts.pruning.on_disk.bytes,
            "versions_loaded": len(parts.served.loaded),
        }
        for stage in parts.learning.stages:
            facts |= stage.gauges()
        yield from _gauges(facts)
        yield from _gauges({**parts.store.waiting, **parts.collect.held, **parts.renderer.held})


class SinkGauges(Collector):
    """The records that each sink took and dropped, and that wait for it."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def collect(self) -> Iterable[Metric]:
        """The present counters."""
        sent = CounterMetricFamily(f"{PREFIX}_sink_records", "Records taken over by sinks.", labels=["sink"])
        dropped = CounterMetricFamily(f"{PREFIX}_sink_dropped", "Records that a sink did not take.", labels=["sink"])
        waiting = GaugeMetricFamily(f"{PREFIX}_sink_waiting", "Records that wait for a sink.", labels=["sink"])
        for one in self._telemetry.statuses:
            sent.add_metric([one.name], one.sent)
            dropped.add_metric([one.name], one.dropped)
            waiting.add_metric([one.name], one.waiting)
        yield from (sent, dropped, waiting)


def _gauges(facts: Mapping[str, float]) -> Iterable[Metric]:
    for name, value in facts.items():
        yield GaugeMetricFamily(f"{PREFIX}_{name}", name.replace("_", " "), value=float(value))
