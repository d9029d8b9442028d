"""What `/v1/rl/status` shows: where every stage stands, in numbers and in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import msgspec

from openclaw_rl.collect.tally import Tally
from openclaw_rl.core.message import Json
from openclaw_rl.doctor.learning import Finding, Signs, learning_findings, story
from openclaw_rl.engines.local.settings import EngineInfo, EngineStats
from openclaw_rl.judge.stage import JudgeStatus
from openclaw_rl.publish.stage import PublishStatus
from openclaw_rl.runtime.activity import Activity
from openclaw_rl.runtime.loop_watch import Delays
from openclaw_rl.store.tables.overview import Overview
from openclaw_rl.teach.stage import CarryStatus
from openclaw_rl.train.stage import TrainStatus


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the status is made of: `counts` of the ledger, `prompts` of the renderer by how they were made.

    `reused` is the share of prompt tokens that needed no reading, in requests that go on from a turn.
    """

    counts: Mapping[str, int]
    prompts: Mapping[str, int]
    judging: JudgeStatus
    training: TrainStatus
    publishing: PublishStatus
    carrying: CarryStatus
    has_hints_to_try: bool
    info: EngineInfo
    engine: EngineStats
    learns: bool
    seen: Overview = field(default_factory=Overview)
    judge_calls: int = 0  # today
    judge_calls_limit: int = 0
    reused: float | None = None
    delays: Delays | None = None  # None where nothing is served
    serving: Activity = field(default_factory=Activity)
    collecting: Tally = field(default_factory=Tally)
    home: tuple[Finding, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)  # stages, and why they broke


def status_of(facts: Facts) -> dict[str, Json]:
    """The facts as JSON, `story`, `diagnosis` and `is_settled` derived from them.

    `is_settled` says that nothing is under way: every turn with a next state is judged, no step is due or running, no
    version waits at the gate and no hint to be tried.
    """
    signs = signs_of(facts)
    found = (*facts.home, *learning_findings(signs))
    body: dict[str, Json] = {
        "story": story(signs),
        "warnings": [f"{item.said}: {item.fix}" if item.fix else item.said for item in found if item.is_warning],
        "diagnosis": [_json(asdict(item)) for item in found],
        "problems": dict(signs.problems),
        "prompt_tokens_reused": facts.reused,
        "delays": None if facts.delays is None else _json(asdict(facts.delays)),
        "is_settled": is_settled(facts),
        "learns": facts.learns,
        "ledger": dict(facts.counts),
        "prompts": dict(facts.prompts),
        "judge": _json(asdict(facts.judging)),
        "train": _json(asdict(facts.training)),
        "publish": _json(asdict(facts.publishing)),
        "hints": _json(asdict(facts.carrying)),
        "model": _json(asdict(facts.info)),
        "engine": _json(asdict(facts.engine)),
    }
    return body


def is_settled(facts: Facts) -> bool:
    """Whether learning has nothing to do until something new is said."""
    if not facts.learns:
        return True
    waiting = facts.counts.get("paired", 0) + facts.judging.in_flight + facts.publishing.at_gate
    is_still = facts.training.is_resting and not facts.training.is_training and not facts.has_hints_to_try
    return waiting == 0 and is_still and bool(facts.training.why_waiting)


def signs_of(facts: Facts) -> Signs:
    """What the diagnosis looks at, and each stage's last problem."""
    judging, training, publishing = facts.judging, facts.training, facts.publishing
    problems = {
        "serve": facts.serving.last_problem,
        "collect": facts.collecting.complaint() or "",
        "judge": judging.last_error,
        "train": training.last_error,
        "publish": publishing.notice,
        **facts.broken,
    }
    return Signs(
        counts=facts.counts,
        seen=facts.seen,
        needed=training.needed,
        ready=training.ready,
        learns=facts.learns,
        is_live=True,
        judge_s=judging.seconds_p50,
        judge_error=judging.last_error,
        calls=facts.judge_calls,
        calls_limit=facts.judge_calls_limit,
        train_error=training.last_error,
        train_waits=training.why_waiting,
        is_training=training.is_training,
        doing=training.doing,
        publish_notice=publishing.notice,
        reused=facts.reused,
        problems=problems,
        broken=facts.broken,
    )


def _json(values: Mapping[str, object]) -> dict[str, Json]:
    plain: dict[str, Json] = msgspec.to_builtins(values)
    return plain
