"""The status of judging, what keeps turns from being judged, and how a judge without useful votes is detected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.finding import Finding, Level, many

ENOUGH = 10  # verdicts before anything is concluded from them
SAME = 20  # votes that all say the same before a judge is suspected


@dataclass(frozen=True, slots=True)
class JudgeStatus:
    """The status of judging, for people. `failed` counts attempts; those turns wait, none is lost."""

    waiting: int = 0
    in_flight: int = 0
    judged: int = 0
    failed: int = 0
    last_error: str = ""
    seconds_p50: float | None = None
    calls_today: int = 0
    calls_limit: int = 0  # a day; 0 for none


def judge_findings(facts: StoreFacts, status: JudgeStatus, *, is_live: bool) -> Iterator[Finding]:
    """Whether the judge answers, and whether its votes are informative; `is_live` if a server runs."""
    waiting = facts.unjudged
    if status.calls_limit and status.calls_today >= status.calls_limit:
        yield Finding(
            Level.MEND,
            "judge",
            f"today's limit of {status.calls_limit} judge calls is used up; {many(waiting, 'turn')} wait",
            "wait for tomorrow (UTC), or raise judge.daily_calls",
        )
    elif status.last_error:
        yield Finding(
            Level.MEND,
            "judge",
            f"the judge does not answer, {many(waiting, 'turn')} wait: {status.last_error}",
            "check whether it runs at judge.url, and with judge.model and its key",
        )
    elif waiting and not is_live:
        yield Finding(Level.NOTE, "judge", f"{many(waiting, 'turn')} wait for the judge until a server runs")
    scores = facts.seen.scores
    total, abstained = sum(scores.values()), scores.get(None, 0)
    if total >= ENOUGH and abstained * 2 >= total:
        yield Finding(
            Level.MEND,
            "judge",
            f"the judge gave no valid vote on {abstained} of the last {total} turns",
            "use a larger judge (judge.url, judge.model), or raise judge.max_tokens so that it gets to its vote",
        )
    elif total >= SAME and len(scores) == 1:
        yield Finding(
            Level.MEND,
            "judge",
            f"the judge voted {next(iter(scores))} on each of the last {total} turns, which gives no information",
            "look at its votes: `openclaw-rl turns ID`; use a larger judge if they are wrong",
        )
