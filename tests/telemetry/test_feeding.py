"""Sinks that are slow, hang or die are felt by nobody, and counted."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from openclaw_rl.core.event import EventKind, StoreEvent
from openclaw_rl.core.message import Json
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import ConfigError
from openclaw_rl.telemetry.feeder import FeedLimits, SinkFeeder
from openclaw_rl.telemetry.hub import NEEDS, Telemetry, check_installed, opened_telemetry
from openclaw_rl.telemetry.settings import MetricsSettings, SinkKind, TracesSettings

LIMITS = FeedLimits(open_s=20.0, answer_s=0.3, pause_s=0.05, close_s=2.0, most_waiting=4)
# Sinks as programs: each answers a line for a line, as the feeder expects.
GOOD = "import sys\nfor line in sys.stdin:\n    print('ok', flush=True)\n    open(OUT, 'a').write(line)"
HANGS = "import sys, time\nsys.stdin.readline()\nprint('ok', flush=True)\ntime.sleep(600)"
REFUSES = "import sys\nfor line in sys.stdin:\n    print('no such project' if 'x' in line else 'ok', flush=True)"
DIES = "import sys\nsys.stdin.readline()\nprint('ok', flush=True)\nsys.stdin.readline()"


def feeder(program: str, out: Path | None = None, *, limits: FeedLimits = LIMITS) -> SinkFeeder:
    return SinkFeeder("double", [sys.executable, "-c", program.replace("OUT", repr(str(out)))], {}, limits=limits)


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(1200):
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to that")


def record(number: int) -> dict[str, Json]:
    return {"rows": {"step/loss": 0.5}, "x": number, "at_s": 1.0}


def test_what_is_put_reaches_the_sink_in_order_and_what_waits_at_the_end_too(tmp_path: Path) -> None:
    fed = feeder(GOOD, tmp_path / "out")
    for number in range(3):
        fed.put(record(number))
    fed.close()
    assert (fed.status.sent, fed.status.dropped, fed.status.problem) == (3, 0, "")
    text = (tmp_path / "out").read_text("utf-8")
    assert text.startswith("{}\n") and text.index('"x": 0') < text.index('"x": 1') < text.index('"x": 2')


@pytest.mark.parametrize(
    ("program", "said"),
    [(HANGS, "did not answer within 0.3 s"), (REFUSES, "no such project"), (DIES, "process has ended")],
)
def test_a_sink_that_does_not_work_drops_and_says_so_once(
    program: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    fed = feeder(program)
    for number in range(3):
        fed.put(record(number))
        until(lambda number=number: fed.status.dropped >= number + 1)  # type: ignore[misc]
    assert said in fed.status.problem and fed.status.sent == 0
    (finding,) = Telemetry([fed]).findings()
    assert "the sink double dropped 3 records" in finding.said and said in finding.said
    fed.close()
    assert [said in line for line in caplog.messages if "does not take records" in line] == [True]
    assert sum("dropped and counted" in line for line in caplog.messages) == 1


def test_putting_never_waits_however_full_the_queue_is() -> None:
    fed = feeder(HANGS, limits=FeedLimits(answer_s=600.0, close_s=0.2, most_waiting=4))
    for number in range(1000):
        fed.put(record(number))
    assert fed.status.dropped >= 1000 - 4 - 256 and fed.status.waiting <= 4
    fed.close()  # does not wait for the sink


def test_a_sink_that_came_back_takes_records_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    mark = tmp_path / "works"
    program = f"import os, sys\nif not os.path.exists({str(mark)!r}): sys.exit(1)\n{GOOD}"
    fed = feeder(program, tmp_path / "out")
    fed.put(record(1))
    until(lambda: "process has ended" in fed.status.problem)
    mark.touch()
    until(lambda: fed.status.sent == 1)
    assert (fed.status.problem, fed.status.dropped) == ("", 0)
    fed.close()
    assert "takes records again dropped=0" in caplog.text


def test_what_is_not_installed_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (*SinkKind, "otel"):
        monkeypatch.setitem(NEEDS, kind, ("no_such_library.part",))
        metrics = MetricsSettings(sinks=(SinkKind(kind),)) if kind != "otel" else MetricsSettings()
        traces = TracesSettings("http://localhost:4318/v1/traces" if kind == "otel" else "")
        with pytest.raises(ConfigError, match=rf"{kind}, which is not installed.*openclaw-rl\[{kind}\]"):
            check_installed(metrics, traces)


def test_nothing_is_started_where_nothing_is_named(tmp_path: Path) -> None:
    telemetry = opened_telemetry(tmp_path, MetricsSettings(), TracesSettings())
    telemetry.heard([StoreEvent(EventKind.SERVED, version=PolicyVersion("shared", 1))])
    telemetry.close()
    assert telemetry.statuses == [] and list(tmp_path.iterdir()) == []
