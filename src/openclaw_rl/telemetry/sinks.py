"""The sinks of numbers: each is opened from its options in a separate process."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from openclaw_rl.telemetry.records import Record
from openclaw_rl.telemetry.settings import SinkKind


class RecordSink(Protocol):
    """Takes records."""

    def take(self, records: Sequence[Record]) -> None:
        """Writes them; its errors are reported to the owner."""

    def close(self) -> None:
        """Flushes and ends."""


@dataclass(frozen=True, slots=True)
class NumberSink:
    """A sink of numbers: `write` gets names with values, the version's number, and seconds since the epoch."""

    write: Callable[[dict[str, float], int, float], None]
    end: Callable[[], None]

    def take(self, records: Sequence[Record]) -> None:
        """Writes each record's numbers."""
        for record in records:
            rows, x, at_s = record["rows"], record["x"], record["at_s"]
            assert isinstance(rows, dict) and isinstance(x, int) and isinstance(at_s, int | float)
            self.write({name: float(value) for name, value in rows.items() if isinstance(value, int | float)}, x, at_s)

    def close(self) -> None:
        """Ends the run."""
        self.end()


def tensorboard_sink(options: dict[str, str]) -> NumberSink:
    """Event files in `folder`/PROJECT/RUN."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(Path(options["folder"]) / "tensorboard" / options["project"] / options["run"]))

    def write(rows: dict[str, float], x: int, at_s: float) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in rows.items()]
        writer.add_event(Event(wall_time=at_s, step=x, summary=Summary(value=values)))
        writer.flush()

    return NumberSink(write, writer.close)


def trackio_sink(options: dict[str, str]) -> NumberSink:
    """A run in trackio's local database; in `folder` if TRACKIO_DIR is not set."""
    import trackio

    name, project = options["run"], options["project"]
    run = trackio.init(project, name, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False)

    def write(rows: dict[str, float], x: int, _at_s: float) -> None:
        run.log(dict(rows), step=x)

    return NumberSink(write, run.finish)


def mlflow_sink(options: dict[str, str]) -> NumberSink:
    """A run on an MLflow server or in a database file."""
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=options["mlflow_uri"])
    named = client.get_experiment_by_name(options["project"])
    experiment = client.create_experiment(options["project"]) if named is None else named.experiment_id
    tag = f"tags.openclaw_rl_run = '{options['run_id']}'"
    earlier = client.search_runs([experiment], filter_string=tag, max_results=1)
    if earlier:
        run = earlier[0].info.run_id
        client.update_run(run, status="RUNNING")
    else:
        tags = {"openclaw_rl_run": options["run_id"]}
        run = client.create_run(experiment, run_name=options["run"], tags=tags).info.run_id

    def write(rows: dict[str, float], x: int, at_s: float) -> None:
        client.log_batch(run, metrics=[Metric(name, value, int(at_s * 1000), x) for name, value in rows.items()])

    return NumberSink(write, lambda: client.set_terminated(run))


def wandb_sink(options: dict[str, str]) -> NumberSink:
    """A run at Weights & Biases, or in `folder` with WANDB_MODE=offline."""
    import wandb

    run = wandb.init(
        project=options["project"],
        name=options["run"],
        id=options["run_id"],
        resume="allow",
        dir=options["folder"],
        settings=wandb.Settings(silent=True, x_disable_stats=True, console="off"),
    )
    run.define_metric("version")
    run.define_metric("*", step_metric="version")  # with several scopes, gates may come after the next step

    def write(rows: dict[str, float], x: int, _at_s: float) -> None:
        run.log({**rows, "version": x})

    return NumberSink(write, run.finish)


SINKS: dict[str, Callable[[dict[str, str]], RecordSink]] = {
    SinkKind.TENSORBOARD: tensorboard_sink,
    SinkKind.TRACKIO: trackio_sink,
    SinkKind.MLFLOW: mlflow_sink,
    SinkKind.WANDB: wandb_sink,
}


def sink_options(*, home: Path, project: str, run: str, mlflow_uri: str, what: str = "") -> dict[str, str]:
    """The options of a sink's process: the same run after a restart; with `what`, a separate run."""
    folder = home.absolute() / "metrics"
    suffix = f"{what}-{time.strftime('%Y%m%d-%H%M%S')}" if what else ""
    name = "-".join(part for part in (run or home.absolute().name.lstrip("."), suffix) if part)
    return {
        "folder": str(folder),
        "project": project,
        "run": name,
        "run_id": hashlib.blake2b(f"{folder}\0{project}\0{name}".encode(), digest_size=8).hexdigest(),
        "mlflow_uri": mlflow_uri or f"sqlite:///{folder / 'mlflow.db'}",
    }
