"""Measures a judge: how often it agrees with people, how often it gives no verdict, and how far its votes agree."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openclaw_rl.core.message import Json
from openclaw_rl.core.protocols import Judge
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.errors import JudgeError
from openclaw_rl.evals.judging.cases import TAUGHT, JudgeCase

SAID = {1: "+1", 0: "0", -1: "-1", None: "none"}


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """A case and the verdict on it; None if the judge could not be reached."""

    case: JudgeCase
    verdict: Verdict | None

    @property
    def score(self) -> int | None:
        """The judge's score."""
        return None if self.verdict is None else self.verdict.score

    @property
    def is_right(self) -> bool:
        """Whether the score equals the label."""
        return self.score == self.case.score

    @property
    def agreement(self) -> float | None:
        """The share of pairs of votes that agree; None with fewer than two valid votes."""
        votes = [] if self.verdict is None else [vote.score for vote in self.verdict.votes if vote.asked == "score"]
        valid = [score for score in votes if score is not None]
        pairs = len(valid) * (len(valid) - 1) / 2
        if not pairs:
            return None
        return sum(count * (count - 1) / 2 for count in Counter(valid).values()) / pairs


async def judged(
    judge: Judge,
    cases: Sequence[JudgeCase],
    *,
    at_once: int = 4,
    on_case: Callable[[JudgedCase], None] = lambda _: None,
) -> list[JudgedCase]:
    """Every case's verdict, in the cases' order, `at_once` at a time."""
    slots = asyncio.Semaphore(at_once)

    async def one(index: int, case: JudgeCase) -> JudgedCase:
        name = f"case-{index}"
        async with slots:
            try:
                verdict = await judge.judge(case.turn(name), case.followed(name))
            except JudgeError:
                verdict = None
        made = JudgedCase(case, verdict)
        on_case(made)
        return made

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(index, case)) for index, case in enumerate(cases)]
    return [task.result() for task in tasks]


def as_json(results: Sequence[JudgedCase]) -> dict[str, Json]:
    """The figures: accuracy over all cases, those the bundled judge was trained for, the rest, and by kind."""
    kinds: dict[str, list[JudgedCase]] = defaultdict(list)
    for result in results:
        kinds[result.case.kind].append(result)
    agreements = [result.agreement for result in results if result.agreement is not None]
    return {
        "cases": len(results),
        "accuracy": _share(results),
        "accuracy_taught": _share(kinds.get(TAUGHT, [])),
        "accuracy_rest": _share([result for result in results if result.case.kind != TAUGHT]),
        "abstained": sum(result.score is None for result in results),
        "vote_agreement": round(sum(agreements) / len(agreements), 4) if agreements else None,
        "by_kind": {kind: _kind_json(found) for kind, found in kinds.items()},
    }


def _kind_json(found: Sequence[JudgedCase]) -> dict[str, Json]:
    said: Counter[str] = Counter(SAID[result.score] for result in found)
    return {"cases": len(found), "accuracy": _share(found), "said": {name: said[name] for name in SAID.values()}}


def _share(results: Sequence[JudgedCase]) -> float | None:
    return round(sum(result.is_right for result in results) / len(results), 4) if results else None
