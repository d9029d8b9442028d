"""Where learning is and what is queued and held, for Prometheus: read from the parts' own status at each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from openclaw_rl.core.version import SHARED
from openclaw_rl.runtime.installation import Installation
from openclaw_rl.serve.door.connections import Door
from openclaw_rl.telemetry.hub import Telemetry

PREFIX = "openclaw_rl"


class DoorGauges(Collector):
    """How many connections there are, and how many there was no place for."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def collect(self) -> Iterable[Metric]:
        """One gauge a number."""
        return _gauges({"connections_open": self._door.open, "connections_refused": self._door.refused})


class LearningGauges(Collector):
    """Gauges of every stage; `train_rollout_logp_gap` and its like come from the last step.

    Beside them one for each bounded queue and each thing held in memory: docs/operation.md tells what gives way.
    """

    def __init__(self, parts: Installation) -> None:
        self._parts = parts

    def collect(self) -> Iterable[Metric]:
        """One gauge a number."""
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
    """What each sink took over and dropped, and how many records wait for it."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def collect(self) -> Iterable[Metric]:
        """The counters as they stand."""
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
