"""Where numbers and traces go, and how the log is written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar
from urllib.parse import urlsplit


class SinkKind(StrEnum):
    """Where the numbers of steps, gates and evaluations can go."""

    TENSORBOARD = "tensorboard"
    TRACKIO = "trackio"
    MLFLOW = "mlflow"
    WANDB = "wandb"


class LogFormat(StrEnum):
    """How the log is written."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the log is written."""

    format: LogFormat = LogFormat.TEXT
    """`text`, or `json` for one object a line. Change it when a program collects the log."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where the numbers of steps, gates and evaluations go, besides /metrics."""

    # They mean something to one kind of sink each: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset({"mlflow_uri", "project", "run"})

    sinks: tuple[SinkKind, ...] = ()
    """Any of `tensorboard`, `trackio`, `mlflow` and `wandb`; each needs the extra of its name. Change it when you want
    to see steps as curves there."""
    project: str = "openclaw-rl"
    """The project, or experiment, of the run. Change it when several installations report to one place."""
    run: str = ""
    """The name of the run; empty takes the home folder's. Change it when several installations report to one place."""
    mlflow_uri: str = ""
    """The MLflow server or database; empty takes a file in the home folder. Change it when you run an MLflow server."""
    wandb_key: str = ""
    """The key for Weights & Biases; from WANDB_KEY in the environment only."""

    def __post_init__(self) -> None:
        if not self.project:
            raise ValueError("project is empty")
        if len(set(self.sinks)) != len(self.sinks):
            raise ValueError(f"sinks names one twice: {', '.join(self.sinks)}")


@dataclass(frozen=True, slots=True)
class TracesSettings:
    """Where traces of turns go."""

    endpoint: str = ""
    """The OTLP/HTTP address for traces, such as http://localhost:4318/v1/traces; empty sends none. Change it when you
    run an OpenTelemetry collector; needs the extra `otel`."""

    def __post_init__(self) -> None:
        if self.endpoint and urlsplit(self.endpoint).scheme not in ("http", "https"):
            raise ValueError(f"endpoint is {self.endpoint!r}: it begins with http:// or https://")
