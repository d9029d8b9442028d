"""The state of learning in one sentence; why nothing is learned; and `/v1/rl/status`, which shows both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime

import msgspec

from openclaw_rl.collect.status import collect_findings
from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.finding import Finding, Level, many
from openclaw_rl.core.message import Json
from openclaw_rl.core.stage import StageReport
from openclaw_rl.judge.status import JudgeStatus, judge_findings
from openclaw_rl.publish.status import PublishStatus, publish_findings
from openclaw_rl.teach.status import TeachStatus, teach_findings
from openclaw_rl.train.status import TrainStatus, train_findings


@dataclass(frozen=True, slots=True)
class Loop:
    """The state of the stages; facts known only to a running server have neutral defaults.

    `is_live` is True if a server runs, `learns` if it runs the stages. `broken` are stages and why they broke
    recently, `last_failure` is the last request that failed, `reused` the share of prompt tokens that needed no
    reading.
    """

    judge: JudgeStatus = field(default_factory=JudgeStatus)
    teach: TeachStatus = field(default_factory=TeachStatus)
    train: TrainStatus = field(default_factory=TrainStatus)
    publish: PublishStatus = field(default_factory=PublishStatus)
    is_live: bool = False
    learns: bool = True
    broken: Mapping[str, str] = field(default_factory=dict)
    last_failure: str = ""
    reused: float | None = None


def story(facts: StoreFacts, loop: Loop) -> str:
    """The state of learning, in one sentence."""
    main, side = facts.count("main"), facts.count("side")
    if main + side == 0:
        return _nothing(facts)
    if not loop.learns:
        return f"learning is off; {many(main, 'main turn')} were stored"
    if main == 0:
        return f"all {side} turns were side requests: there is nothing to learn from"
    paired = facts.seen.paired
    parts = [
        f"{many(main, 'main turn')}, {paired} {'has' if paired == 1 else 'have'} a next state, "
        f"{facts.seen.zeros} judged 0, {loop.train.ready} ready",
        _next_step(facts, loop),
    ]
    if facts.unjudged:
        parts.append(f"{facts.unjudged} wait for the judge")
    if loop.judge.last_error:
        parts.append(f"the judge does not answer ({loop.judge.last_error})")
    elif loop.judge.seconds_p50 is not None:
        parts.append(f"the judge answers in {loop.judge.seconds_p50:.1f} s")
    parts.append(f"{facts.count('trained')} were trained on, {facts.count('dropped')} were dropped")
    if loop.reused is not None:
        parts.append(f"prompt tokens reused: {loop.reused:.0%}")
    if loop.publish.notice:
        parts.append(loop.publish.notice)
    return "; ".join(parts)


def learning_findings(facts: StoreFacts, loop: Loop) -> tuple[Finding, ...]:
    """What keeps turns from being learned from, stage by stage; a finding that all is well if nothing does."""
    stages = [
        *collect_findings(facts),
        *judge_findings(facts, loop.judge, is_live=loop.is_live),
        *teach_findings(facts),
        *train_findings(facts, loop.train),
        *publish_findings(facts, loop.publish),
    ]
    return gathered(facts, loop, stages)


def gathered(
    facts: StoreFacts, loop: Loop, stages: Sequence[Finding], home: Sequence[Finding] = ()
) -> tuple[Finding, ...]:
    """The findings about the folder, the server and all stages; and whether turns are learned from, if none of them
    needs attention.
    """
    broken = [
        Finding(
            Level.MEND,
            stage,
            why,
            "see the server's log; requests are still answered, and the stage restarts by itself",
        )
        for stage, why in loop.broken.items()
    ]
    if facts.count("main") + facts.count("side") == 0:
        return (*home, *broken, Finding(Level.NOTE, "serve", _nothing(facts), "point a client at the server"))
    found = [*home, *broken, *_served(loop), *stages]
    if not any(item.level is Level.MEND for item in found):
        found[len(home) : len(home)] = _learns(facts, loop)
    return tuple(found)


def _learns(facts: StoreFacts, loop: Loop) -> Iterator[Finding]:
    """Whether turns are learned from, if nothing needs attention."""
    frozen_s = facts.seen.frozen_since_s
    if frozen_s is not None:
        since = datetime.fromtimestamp(frozen_s).strftime("%Y-%m-%d %H:%M")
        said = f"training is frozen by your order since {since}: turns are judged, and wait"
        yield Finding(Level.NOTE, "learn", said, "`openclaw-rl unfreeze` resumes it")
    elif loop.learns:
        when = "when enough are ready" if loop.is_live else "once a server runs and enough are ready"
        yield Finding(Level.OK, "learn", f"turns are learned from, or will be {when}")
    if facts.seen.pinned:
        which = ", ".join(facts.seen.pinned)
        fix = "`openclaw-rl unpin` serves the newest that passed the gate"
        yield Finding(Level.NOTE, "publish", f"pinned by your order: {which}; what is trained is not served", fix)


def _served(loop: Loop) -> Iterator[Finding]:
    if not loop.learns:
        yield Finding(Level.NOTE, "serve", "learning is off: turns are stored only", "start it without --no-learn")
    if loop.last_failure:
        yield Finding(Level.NOTE, "serve", f"the last request that failed: {loop.last_failure}")


def _nothing(facts: StoreFacts) -> str:
    if facts.seen.has_forgotten:
        return "no turn is stored: what was forgotten is gone, and nothing has been served since"
    return "nothing has been served yet"


def _next_step(facts: StoreFacts, loop: Loop) -> str:
    train, doing = loop.train, loop.train.doing or loop.teach.doing
    if train.is_training:
        return train.doing or "a step is being taken"
    if facts.seen.frozen_since_s is not None:
        return "training is frozen"
    return f"a step needs {train.needed}" + (f"; {doing}" if doing else "")


def status_of(
    facts: StoreFacts,
    loop: Loop,
    reports: Sequence[StageReport],
    *,
    about: Mapping[str, object],
    home: Sequence[Finding] = (),
    collecting: str = "",
) -> dict[str, Json]:
    """The status as JSON: `story`, `warnings`, `diagnosis` and `is_settled`, then each stage under its name.

    `about` contains what does not belong to a stage, under its display names. `home` are findings about the folder,
    `collecting` is what keeps requests from being distinguished.
    """
    stages = [*collect_findings(facts), *(found for report in reports for found in report.findings)]
    found = gathered(facts, loop, stages, home)
    return {
        "story": story(facts, loop),
        "warnings": [f"{item.said}: {item.fix}" if item.fix else item.said for item in found if item.is_warning],
        "diagnosis": [plain(asdict(item)) for item in found],
        "problems": {
            "serve": loop.last_failure,
            "collect": collecting,
            **{report.name: report.problem for report in reports},
            **loop.broken,
        },
        "is_settled": not loop.learns or all(report.is_settled for report in reports),
        "learns": loop.learns,
        "ledger": dict(facts.counts),
        **{name: plain(value) for name, value in about.items()},
        **{report.name: plain(report.status) for report in reports},
    }


def plain(value: object) -> Json:
    """Anything as JSON."""
    made: Json = msgspec.to_builtins(value)
    return made
