"""What `/v1/rl/status` shows: where every stage stands, in numbers and in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import msgspec

from openclaw_rl.collect.status import collect_findings
from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.finding import Finding
from openclaw_rl.core.message import Json
from openclaw_rl.core.stage import StageReport
from openclaw_rl.doctor.learning import Loop, gathered, story


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

    `about` holds what is no stage's, under the names it is shown by. `home` are findings about the folder, `collecting`
    is what keeps requests from being told apart.
    """
    stages = [*collect_findings(facts), *(found for report in reports for found in report.findings)]
    found = (*home, *gathered(facts, loop, stages))
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
