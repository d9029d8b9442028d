"""What is made of events: numbers for curves, spans for traces; what was committed and nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from openclaw_rl.core.event import EventKind, StoreEvent
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.connection import open_writer
from openclaw_rl.store.db import Store
from openclaw_rl.store.threads import Transaction, Writer
from openclaw_rl.telemetry.records import evaluation, event_record, numbers_of
from openclaw_rl.telemetry.settings import MetricsSettings, SinkKind, TracesSettings
from openclaw_rl.telemetry.spans import SpanMaker, span_id, trace_id
from openclaw_rl.testing.turns import a_turn

MADE = PolicyVersion("shared", 3)
STEP = StoreEvent(
    EventKind.STEP,
    ("a", "b"),
    MADE,
    100.0,
    {"samples": 2, "dropped": 1, "ended_s": 104.0, "scope": "shared", "metrics": {"loss": 0.5, "bad": math.nan}},
)
GATE = StoreEvent(EventKind.GATE, ("a", "b"), MADE, 104.0, {"status": "refused", "metrics": {"gate_kl": 0.1}})


def test_a_step_and_a_gate_are_numbers_by_version() -> None:
    step, gate = numbers_of(STEP, 105.0), numbers_of(GATE, 109.0)
    rows = {"step/loss": 0.5, "step/seconds": 4.0, "step/samples": 2.0, "step/dropped": 1.0}
    assert step == {"rows": rows, "x": 3, "at_s": 105.0}
    assert gate == {"rows": {"gate/gate_kl": 0.1, "gate/passed": 0.0}, "x": 3, "at_s": 109.0}
    assert numbers_of(StoreEvent(EventKind.TURN, ("a",), MADE), 1.0) is None


def test_a_users_own_step_does_not_say_whose_it_is() -> None:
    own = StoreEvent(EventKind.STEP, ("a",), PolicyVersion("user-ann", 1), 1.0, {"metrics": {"loss": 0.5}})
    found = numbers_of(own, 2.0)
    assert found is not None and found["rows"] == {"own_step/loss": 0.5}


def test_an_evaluation_is_its_numbers_by_their_path() -> None:
    found = evaluation("judge", {"score": {"accuracy": 0.9, "cases": 375}, "model": "x", "seeds": [1, 2]}, 1.0)
    assert found["rows"] == {"eval/judge/score/accuracy": 0.9, "eval/judge/score/cases": 375.0}


def test_a_turns_spans_share_the_trace_that_its_id_gives_and_stages_begin_where_the_last_ended() -> None:
    maker = SpanMaker()
    states = [(12.0, "paired"), (15.0, "judged"), (16.0, "ready")]
    records = [event_record(StoreEvent(EventKind.TURN, ("a",), PolicyVersion("shared", 0), 8.0, {}), 10.0)]
    records += [event_record(StoreEvent(EventKind.STATE, ("a",), facts={"state": s}), at_s) for at_s, s in states]
    records += [event_record(STEP, 105.0), event_record(GATE, 109.0)]
    spans = [span for record in records for span in maker.of(record)]
    assert [(span.name, span.began_s, span.ended_s) for span in spans if span.about == "a"] == [
        ("request", 8.0, 10.0),
        ("stored", 10.0, 10.0),
        ("judged", 12.0, 15.0),
        ("sample", 15.0, 16.0),
        ("step", 100.0, 104.0),
        ("gate", 104.0, 109.0),
    ]
    (of_version,) = [span for span in spans if span.about == "version shared.3" and span.name == "step"]
    assert of_version.links == ("a", "b") and of_version.facts["metrics.loss"] == 0.5
    assert [span.links for span in spans if span.name == "gate"] == [("a", "b"), *[("version shared.3",)] * 2]


def test_ids_are_the_same_after_a_restart_and_differ_where_the_spans_do() -> None:
    assert trace_id("a", "home1") == trace_id("a", "home2") != trace_id("b")
    assert trace_id("version shared.1", "home1") != trace_id("version shared.1", "home2")
    assert span_id("a", "request") == span_id("a", "request", 5.0)
    assert span_id("a", "step", 5.0) != span_id("a", "step", 6.0)  # learned from again after a refusal
    assert 0 < trace_id("a") < 1 << 128 and 0 < span_id("a", "request") < 1 << 64


async def test_the_store_reports_what_it_committed_with_nothing_that_was_said(tmp_path: Path) -> None:
    heard: list[StoreEvent] = []
    store = await Store.open(tmp_path, listener=heard.extend)
    await store.add_turn(a_turn("t", "my secret wish"), chain="c")
    await store.pair(NextState("t", (message(Role.USER, "no, my secret"),), NextStateSource.USER))
    await store.judge(Verdict("t", -1, VerdictSource.VOTES))
    with pytest.raises(ValueError, match="no turn"):
        await store.drop("nobody", reason=None)  # type: ignore[arg-type]
    await store.aclose()
    assert [(event.kind.value, event.turns, event.facts.get("state")) for event in heard] == [
        ("turn", ("t",), None),
        ("state", ("t",), "paired"),
        ("state", ("t",), "judged"),
    ]
    assert heard[2].facts["score"] == -1 and "secret" not in repr(heard)


async def test_work_that_was_undone_is_not_reported(tmp_path: Path) -> None:
    heard: list[StoreEvent] = []
    writer = Writer(open_writer(tmp_path / "store.db"), lambda moved: None, heard.extend)

    def work(transaction: Transaction, name: str) -> None:
        transaction.events.append(StoreEvent(EventKind.TURN, (name,)))
        if name == "undone":
            raise ValueError(name)

    undone = writer.begin(lambda transaction: work(transaction, "undone"))
    done = writer.begin(lambda transaction: work(transaction, "done"))
    with pytest.raises(ValueError, match="undone"):
        await undone
    await done
    writer.close()
    assert [event.turns for event in heard] == [("done",)]


@pytest.mark.parametrize("endpoint", ["localhost:4318", "ftp://collector"])
def test_settings_that_mean_nothing_are_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="endpoint is"):
        TracesSettings(endpoint)
    with pytest.raises(ValueError, match="names one twice"):
        MetricsSettings(sinks=(SinkKind.WANDB, SinkKind.WANDB))
