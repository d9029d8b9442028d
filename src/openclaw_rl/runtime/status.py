"""What `/v1/rl/status` shows: where every stage stands, in numbers and in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import msgspec

from openclaw_rl.carry.stage import CarryStatus
from openclaw_rl.core.message import Json
from openclaw_rl.engines.local.settings import EngineInfo, EngineStats
from openclaw_rl.judge.stage import JudgeStatus
from openclaw_rl.publish.stage import PublishStatus
from openclaw_rl.train.stage import TrainStatus


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the status is made of: `counts` of the ledger, `prompts` of the renderer by how they were made."""

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


def status_of(facts: Facts) -> dict[str, Json]:
    """The facts as JSON, `story` and `is_settled` derived from them.

    `is_settled` says that nothing is under way: every turn with a next state is judged, no step is due or running, no
    version waits at the gate and no hint to be tried.
    """
    body: dict[str, Json] = {
        "story": story(facts),
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
    is_still = not facts.training.is_training and not facts.has_hints_to_try
    return waiting == 0 and is_still and bool(facts.training.why_waiting)


def story(facts: Facts) -> str:
    """Where learning stands, in one sentence for people."""
    count = facts.counts
    main, side = count.get("main", 0), count.get("side", 0)
    if not facts.learns:
        return f"learning is off; {main} main turns were stored"
    if main + side == 0:
        return "nothing has been served yet"
    if main == 0:
        return f"all {side} turns were side requests: there is nothing to learn from"
    parts = [
        f"{main} main turns",
        f"{count.get('served', 0)} wait for what follows them",
        f"{count.get('paired', 0)} for a judge",
        f"{count.get('trained', 0)} were trained on",
        f"{count.get('dropped', 0)} were dropped",
        f"{facts.training.ready} are ready and a step needs {facts.training.needed}",
    ]
    if facts.judging.last_error:
        parts.append(f"the judge does not answer ({facts.judging.last_error})")
    if facts.publishing.notice:
        parts.append(facts.publishing.notice)
    return "; ".join(parts)


def _json(values: Mapping[str, object]) -> dict[str, Json]:
    plain: dict[str, Json] = msgspec.to_builtins(values)
    return plain
