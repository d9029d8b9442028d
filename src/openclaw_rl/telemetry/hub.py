"""The sinks of a server or a command: opened from the settings, fed with events, and closed at the end."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from openclaw_rl.core.event import StoreEvent
from openclaw_rl.core.finding import Finding, Level
from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError
from openclaw_rl.telemetry.feeder import FeedLimits, FeedStatus, SinkFeeder
from openclaw_rl.telemetry.records import Record, evaluation, event_record, numbers_of
from openclaw_rl.telemetry.settings import MetricsSettings, SinkKind, TracesSettings

log = logging.getLogger(__name__)
OTEL = "otel"
# Libraries count their users unless they are asked not to.
UNCOUNTED = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_ERROR_REPORTING": "false",
}
# The module that each sink needs; the extra that installs it has the sink's name.
NEEDS: dict[str, tuple[str, ...]] = {
    SinkKind.TENSORBOARD: ("tensorboard",),
    SinkKind.TRACKIO: ("trackio",),
    SinkKind.MLFLOW: ("mlflow", "sqlalchemy"),
    SinkKind.WANDB: ("wandb",),
    OTEL: ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
}
EVALUATION_S = 60.0  # a command waits at most this long for a sink


def check_installed(metrics: MetricsSettings, traces: TracesSettings) -> None:
    """Raises ConfigError if the settings name a sink whose library is not installed."""
    wanted = [(kind.value, "metrics.sinks names") for kind in metrics.sinks]
    wanted += [(OTEL, "traces.endpoint needs")] if traces.endpoint else []
    for kind, why in wanted:
        if not all(_is_here(name) for name in NEEDS[kind]):
            raise ConfigError(
                f"{why} {kind}, which is not installed", fix=f'install it: pip install "openclaw-rl[{kind}]"'
            )


class Telemetry:
    """The destination of events. It never blocks, and failures of sinks do not affect serving or training."""

    def __init__(self, numbers: Sequence[SinkFeeder] = (), traces: SinkFeeder | None = None) -> None:
        self._numbers = numbers
        self._traces = traces

    def heard(self, events: Sequence[StoreEvent]) -> None:
        """Passes committed events to the sinks that want them."""
        at_s = time.time()
        for event in events:
            if self._traces is not None:
                self._traces.put(event_record(event, at_s))
            numbers = numbers_of(event, at_s) if self._numbers else None
            if numbers is not None:
                self._put(numbers)

    def evaluated(self, name: str, figures: Mapping[str, Json]) -> None:
        """Passes the figures of an evaluation to the sinks of numbers."""
        self._put(evaluation(name, figures, time.time()))

    @property
    def statuses(self) -> list[FeedStatus]:
        """The status of each sink."""
        return [feeder.status for feeder in self._feeders]

    def findings(self) -> list[Finding]:
        """Findings on sinks that lost records or do not work now."""
        found = []
        for one in self.statuses:
            if one.problem or one.dropped:
                said = f"the sink {one.name} dropped {one.dropped} records, {one.waiting} wait"
                said += f": {one.problem}" if one.problem else ""
                found.append(Finding(Level.NOTE, "metrics", said, "serving and learning continue; see docs/metrics.md"))
        return found

    def close(self) -> None:
        """Ends all sinks. Blocks for a few seconds at most for each."""
        for feeder in self._feeders:
            feeder.close()

    @property
    def _feeders(self) -> list[SinkFeeder]:
        return [*self._numbers, *([] if self._traces is None else [self._traces])]

    def _put(self, record: Record) -> None:
        for feeder in self._numbers:
            feeder.put(record)


def opened_telemetry(
    home: Path, metrics: MetricsSettings, traces: TracesSettings, *, what: str = "", limits: FeedLimits | None = None
) -> Telemetry:
    """The sinks that the settings name; `what` names an evaluation, which is a separate run.

    Raises ConfigError if one is not installed.
    """
    check_installed(metrics, traces)
    if not metrics.sinks and not traces.endpoint:
        return Telemetry()
    from openclaw_rl.telemetry.sinks import sink_options

    options = sink_options(
        home=home, project=metrics.project, run=metrics.run, mlflow_uri=metrics.mlflow_uri, what=what
    )
    folder = Path(options["folder"])
    if metrics.sinks:
        folder.mkdir(parents=True, exist_ok=True)
    here = {"TRACKIO_DIR": os.environ.get("TRACKIO_DIR", str(folder / "trackio"))}
    key = {"WANDB_API_KEY": metrics.wandb_key} if metrics.wandb_key else {}
    feed: Callable[..., SinkFeeder] = _fed(limits)
    numbers = [feed(kind.value, options, {**here, **(key if kind is SinkKind.WANDB else {})}) for kind in metrics.sinks]
    return Telemetry(numbers, feed(OTEL, {**options, "endpoint": traces.endpoint}, {}) if traces.endpoint else None)


def note_evaluation(
    home: Path, metrics: MetricsSettings, name: str, figures: Mapping[str, Json], *, limit_s: float = EVALUATION_S
) -> list[Finding]:
    """Sends an evaluation to the sinks of numbers, and waits for them. Returns what went wrong. Blocks."""
    limits = FeedLimits(open_s=limit_s, answer_s=limit_s, pause_s=0.1, close_s=limit_s)
    sinks = opened_telemetry(home, metrics, TracesSettings(), what=f"eval-{name}", limits=limits)
    sinks.evaluated(name, figures)
    sinks.close()
    return sinks.findings()


def _fed(limits: FeedLimits | None) -> Callable[[str, Mapping[str, Json], Mapping[str, str]], SinkFeeder]:
    def fed(name: str, options: Mapping[str, Json], environment: Mapping[str, str]) -> SinkFeeder:
        command = [sys.executable, "-m", "openclaw_rl.telemetry.worker", name]
        return SinkFeeder(name, command, options, limits=limits, environment={**UNCOUNTED, **environment})

    return fed


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package
        return False
