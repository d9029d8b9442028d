"""Success over attempts: shares with their intervals, by family, and pass@k."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from openclaw_rl.agents.rollout import RolloutResult
from openclaw_rl.core.episode import FailureClass
from openclaw_rl.core.message import Json
from openclaw_rl.evals.share import Share

Attempted = Mapping[str, Sequence[RolloutResult]]  # by task, the attempts that count, in order


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """The chance that at least one of k attempts succeeds, estimated without bias from n >= k of which c did.

    1 - C(n - c, k) / C(n, k). Source: arXiv 2107.03374.
    """
    if not 0 < k <= attempts or not 0 <= successes <= attempts:
        raise ValueError(f"pass@{k} of {successes} successes in {attempts} attempts")
    return 1.0 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def share_json(results: Sequence[RolloutResult]) -> dict[str, Json]:
    """The share of graded attempts that succeeded, with Wilson's 95 % interval; None if none was graded."""
    graded = [result for result in results if result.is_graded]
    if not graded:
        return {"success": None, "interval": None, "solved": 0, "graded": 0}
    share = Share(sum(result.is_success for result in graded), len(graded))
    low, high = share.interval()
    interval: list[Json] = [round(low, 4), round(high, 4)]
    return {"success": round(share.value, 4), "interval": interval, "solved": share.count, "graded": share.of}


def passes_json(attempted: Attempted) -> dict[str, Json]:
    """pass@k for k = 1, 2, 4 ..., over the tasks with at least k graded attempts; each task weighs the same."""
    counts = [
        (len(graded), sum(result.is_success for result in graded))
        for results in attempted.values()
        if (graded := [result for result in results if result.is_graded])
    ]
    found: dict[str, Json] = {}
    k = 1
    while any(attempts >= k for attempts, _ in counts):
        values = [pass_at_k(attempts, successes, k) for attempts, successes in counts if attempts >= k]
        found[f"pass@{k}"] = round(sum(values) / len(values), 4)
        k *= 2
    return found


def figures_json(attempted: Attempted, families: Mapping[str, str], *, seconds: float) -> dict[str, Json]:
    """All figures, with the costs of the attempts."""
    results = [result for each in attempted.values() for result in each]
    by_family: dict[str, list[RolloutResult]] = defaultdict(list)
    for result in results:
        by_family[families.get(result.task, "")].append(result)
    counts = [result.counts for result in results]
    versions: list[Json] = [*sorted({version for one in counts for version in one.versions if version})]
    return {
        **share_json(results),
        **passes_json(attempted),
        "tasks": len(attempted),
        "families": {name: share_json(each) for name, each in sorted(by_family.items())},
        "ended": sum(result.has_ended for result in results),
        "lost": sum(result.failure is FailureClass.INFRASTRUCTURE for result in results),
        "broken": sum(result.failure is FailureClass.ENVIRONMENT for result in results),
        "turns": sum(one.turns for one in counts),
        "tokens": sum(one.tokens for one in counts),
        "prompt_tokens": sum(one.prompt_tokens for one in counts),
        "unread": sum(one.unread for one in counts),
        "cut": sum(one.cut for one in counts),
        "policy_s": round(sum(one.policy_s for one in counts), 2),
        "env_s": round(sum(one.start_s + one.env_s + one.judge_s for one in counts), 2),
        "versions": versions,
        "seconds": round(seconds, 2),
        "episodes_a_minute": round(60 * len(results) / seconds, 2) if seconds > 0 else None,
    }


def result_json(result: RolloutResult) -> dict[str, Json]:
    """One attempt as JSON."""
    return {
        "episode": result.episode,
        "task": result.task,
        "outcome": result.outcome,
        "success": result.is_success,
        "ended": result.has_ended,
        "failure": result.failure.value,
        "why": result.why,
        "seconds": round(result.duration_s, 3),
        **asdict(result.counts),
    }
