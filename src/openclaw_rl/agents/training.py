"""A training run: groups of attempts, several at once, while the server learns from finished ones.

The server trains; this supplies episodes. Asynchronously, groups follow each other without waiting for steps: samples
of versions further back than the server's `train.max_lag` are dropped there. A synchronous run ends the episodes of a
round of groups together, and then waits until the server has learned what it can, so that all are sampled by one
version, and by the newest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from openclaw_rl.agents.attempts import AttemptJob, Attempts
from openclaw_rl.agents.curriculum import Curriculum
from openclaw_rl.agents.entries import TaskEntry
from openclaw_rl.agents.rollout import RolloutResult
from openclaw_rl.agents.state import OpenGroup, RunState
from openclaw_rl.core.episode import EpisodeState, FailureClass
from openclaw_rl.core.message import Json, json_list
from openclaw_rl.errors import EngineError, TaskError
from openclaw_rl.evals.settled import is_settled

log = logging.getLogger(__name__)
POLL_S = 0.3
LEAST_TRIED = 8  # tasks tried before their success rate counts
REPLACEMENTS = 3  # groups without spread that are replaced in a synchronous round, for each of its groups
PAGE = 500


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How a run is driven, and its bounds; None means unlimited. Bounds include the costs of earlier starts.

    `until_success` is compared with the mean success of the tasks tried so far. `most_ready`: while more samples
    than this wait for the trainer, no group begins.
    """

    group_size: int = 8
    at_once: int = 8
    until_success: float | None = None
    episodes: int | None = None
    tokens: int | None = None
    minutes: float | None = None
    is_synchronous: bool = False
    groups_a_round: int = 4
    most_ready: int = 128
    settle_s: float = 900.0


@dataclass(slots=True)
class _Group:
    """A group under way: the outcomes known, and the attempts this start has made."""

    held: OpenGroup
    left: int  # places whose attempts are unfinished
    successes: list[bool] = field(default_factory=list)
    outcomes: list[float] = field(default_factory=list)
    results: list[RolloutResult] = field(default_factory=list)


@dataclass(slots=True)
class Training:
    """One start of a run. `save` puts the state on disk; `on_change` is called when the display should change."""

    attempts: Attempts
    entries: Mapping[str, TaskEntry]
    plan: TrainingPlan
    state: RunState
    curriculum: Curriculum
    save: Callable[[RunState], None]
    on_change: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    why_ended: str = ""
    versions: set[str] = field(default_factory=set)
    _jobs: deque[AttemptJob] = field(default_factory=deque, init=False)
    _groups: dict[str, _Group] = field(default_factory=dict, init=False)
    _to_begin: int = field(default=0, init=False)  # groups of this round that have not begun
    _replaced: int = field(default=0, init=False)
    _ticked_s: float = field(default=0.0, init=False)
    _finished: list[str] = field(default_factory=list, init=False)  # groups whose episodes the round will end
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def run(self) -> None:
        """Runs until a bound is reached; `why_ended` then says which. Cancelled, it can be started again."""
        self._ticked_s = self.clock()
        self.attempts.holds_ends = self.plan.is_synchronous
        await self._resume()
        while self._jobs or not self._is_over():
            self._to_begin = self._to_begin or (self.plan.groups_a_round if self.plan.is_synchronous else 1)
            async with asyncio.TaskGroup() as workers:
                for _ in range(self.plan.at_once):
                    workers.create_task(self._work())
            if self.plan.is_synchronous and not (self._to_begin and not self._is_over()):
                await self._end_round()
                await self._settled()

    @property
    def episodes(self) -> int:
        """Graded ones, those of groups under way too."""
        return self.state.totals.episodes + sum(len(group.outcomes) for group in self._groups.values())

    @property
    def tokens(self) -> int:
        """Sampled so far."""
        going = (result.counts.tokens for group in self._groups.values() for result in group.results)
        return self.state.totals.tokens + sum(going)

    async def _work(self) -> None:
        while (job := await self._next()) is not None:
            results = await self.attempts.run(job)
            self._note(job, results)

    async def _next(self) -> AttemptJob | None:
        """The next attempt; a new group's first attempt if none is left. None if a round is over."""
        async with self._lock:
            if not self._jobs:
                if self._is_over() or self._is_planned() or (self.plan.is_synchronous and not self._to_begin):
                    return None
                await self._until_room()
                if not self._begin():
                    return None
            return self._jobs.popleft()

    def _begin(self) -> bool:
        busy = {group.held.task for group in self._groups.values()}
        number = self.state.next_group
        name = self.curriculum.choose(number, busy)
        if name is None:
            self.why_ended = "every task is broken"
            return False
        held = OpenGroup(number, name, self.plan.group_size, number)
        self.state.next_group += 1
        self.state.open_groups.append(held)
        self._to_begin = max(0, self._to_begin - 1)
        self.save(self.state)
        self._enter(held, range(held.size))
        return True

    def _enter(self, held: OpenGroup, places: range) -> _Group:
        name = self.state.group_name(held.number)
        group = self._groups[name] = _Group(held, len(places))
        entry = self.entries[held.task]
        self._jobs.extend(AttemptJob(entry, name, held.size, place, held.seed) for place in places)
        return group

    def _note(self, job: AttemptJob, results: list[RolloutResult]) -> None:
        group, last = self._groups[job.group], results[-1]
        group.results += results
        group.left -= 1
        for result in results:
            self.versions.update(version for version in result.counts.versions if version)
        if last.is_graded and last.outcome is not None:
            group.outcomes.append(last.outcome)
            group.successes.append(last.is_success)
        elif last.failure is FailureClass.ENVIRONMENT:
            self.curriculum.put_aside(group.held.task, last.why)
            group.left -= self._drop_jobs(job.group)
        if not group.left and self.plan.is_synchronous:
            self._finished.append(job.group)
            most = REPLACEMENTS * self.plan.groups_a_round
            if len(set(group.outcomes)) < 2 and self._replaced < most:  # it teaches nothing, so another one replaces it
                self._replaced += 1
                self._to_begin += 1
        elif not group.left:
            self._over(job.group)
        self.on_change()

    async def _end_round(self) -> None:
        """Ends the episodes of a synchronous round, all at once, and records its groups."""
        results = [result for name in self._finished for result in self._groups[name].results if result.is_held]
        async with asyncio.TaskGroup() as ends:
            for one in results:
                ends.create_task(self.attempts.endpoint.end(one.episode, one.outcome, one.failure, one.why[:2000]))
        for name in self._finished:
            self._over(name)
        self._finished, self._replaced = [], 0

    def _drop_jobs(self, name: str) -> int:
        """Attempts at a broken task that had not begun."""
        dropped = [job for job in self._jobs if job.group == name]
        for job in dropped:
            self._jobs.remove(job)
        return len(dropped)

    def _over(self, name: str) -> None:
        """Records a group's figures, all of them or none."""
        group = self._groups.pop(name)
        self.curriculum.note(group.held.task, group.successes)
        totals = self.state.totals
        has_spread = len(set(group.outcomes)) > 1
        totals.groups += 1
        totals.spread += has_spread
        totals.episodes += len(group.outcomes)
        totals.solved += sum(group.successes)
        for result in group.results:
            counts = result.counts
            totals.lost += result.failure is FailureClass.INFRASTRUCTURE
            totals.broken += result.failure is FailureClass.ENVIRONMENT
            totals.turns += counts.turns
            totals.tokens += counts.tokens
            totals.unread += counts.unread
            totals.cut += counts.cut
            totals.policy_s += counts.policy_s
            totals.env_s += counts.start_s + counts.env_s + counts.judge_s
        now_s = self.clock()
        totals.seconds += now_s - self._ticked_s
        self._ticked_s = now_s
        self.state.open_groups.remove(group.held)
        self.save(self.state)

    def _is_planned(self) -> bool:
        """Whether the attempts under way suffice, if none of them is lost."""
        planned = self.episodes + sum(group.left for group in self._groups.values())
        return self.plan.episodes is not None and planned >= self.plan.episodes

    def _is_over(self) -> bool:
        """Whether no more groups begin."""
        if not self.why_ended:
            self.why_ended = self._bound()
        return bool(self.why_ended)

    def _bound(self) -> str:
        plan, success = self.plan, self.curriculum.success
        spent_s = self.state.totals.seconds + self.clock() - self._ticked_s
        is_known = self.curriculum.tried >= min(len(self.entries), LEAST_TRIED)
        if plan.until_success is not None and success is not None and is_known and success >= plan.until_success:
            return f"success is {success:.2f}"
        if plan.episodes is not None and self.episodes >= plan.episodes:
            return f"{plan.episodes} episodes"
        if plan.tokens is not None and self.tokens >= plan.tokens:
            return f"{plan.tokens} tokens"
        if plan.minutes is not None and spent_s >= 60 * plan.minutes:
            return f"{plan.minutes:g} minutes"
        return ""

    async def _until_room(self) -> None:
        """Waits while the trainer has more than enough to do."""
        most = self.plan.most_ready
        await self._until(lambda status: _of_train(status, "waiting") <= most, "trained on what is ready")

    async def _settled(self) -> None:
        """Waits until the server has made and served what it can of the round."""
        await self._until(has_learned, "learned from a round")

    async def _until(self, holds: Callable[[dict[str, Json]], bool], what: str) -> None:
        until_s = self.clock() + self.plan.settle_s
        while not holds(await self.attempts.endpoint.get("/v1/rl/status")):
            if self.clock() > until_s:
                raise EngineError(
                    f"the server has not {what} within {self.plan.settle_s:g} s",
                    fix="`openclaw-rl status` says why; then start this again to continue",
                )
            await asyncio.sleep(POLL_S)

    async def _resume(self) -> None:
        """Continues the groups of an earlier start: graded attempts count, open ones are lost."""
        for held in [*self.state.open_groups]:
            if held.task not in self.entries:
                self.state.open_groups.remove(held)
                continue
            rows = await self._rows(held)
            graded: list[float] = []
            for row in rows:
                outcome = row.get("outcome")
                if row.get("state") == EpisodeState.OPEN.value:
                    why = "the run that it belonged to was stopped"
                    await self.attempts.endpoint.end(str(row["id"]), None, FailureClass.INFRASTRUCTURE, why)
                elif isinstance(outcome, int | float) and FailureClass(str(row["failure"])).is_graded:
                    graded.append(float(outcome))
            first = max((_place(str(row["id"])) for row in rows), default=-1) + 1
            group = self._enter(held, range(first, first + held.size - len(graded)))
            group.outcomes, group.successes = graded, [outcome >= 1.0 for outcome in graded]
            log.info("continuing group %s: %d of %d graded", held.number, len(graded), held.size)
            if not group.left:
                self._over(self.state.group_name(held.number))

    async def _rows(self, held: OpenGroup) -> list[Mapping[str, Json]]:
        """The group's episodes from the server."""
        name = self.state.group_name(held.number)
        found = await self.attempts.endpoint.get(f"/v1/rl/episodes?limit={PAGE}&task={quote(held.task, safe='')}")
        rows = [row for row in json_list(found.get("episodes")) if isinstance(row, dict)]
        return [row for row in rows if row.get("group") == name]


def _of_train(status: Mapping[str, Json], name: str, *, default: int = 0) -> int:
    train = status.get("train")
    held = train.get(name) if isinstance(train, dict) else None
    return held if isinstance(held, int) else default


def has_learned(status: dict[str, Json]) -> bool:
    """Whether no step is still to come; samples may wait for others for some seconds."""
    return is_settled(status) and _of_train(status, "ready") < _of_train(status, "least", default=1)


def _place(name: str) -> int:
    """The place in an episode's name: `KEY:RUN.GROUP.PLACE`, and the number of the attempt if there were several."""
    parts = name.rpartition(":")[2].split(".")
    return int(parts[2]) if len(parts) > 2 and parts[2].isdecimal() else 0


def figures_of(training: Training, *, seconds: float) -> dict[str, Json]:
    """The results of a run, for one line of JSON. `seconds` are those of this start; the totals are the run's."""
    totals = training.state.totals
    success = training.curriculum.success
    return {
        "run": training.state.name,
        "ended": training.why_ended or "stopped",
        "episodes": training.episodes,
        "solved": totals.solved,
        "success": None if success is None else round(success, 4),
        "tasks_tried": training.curriculum.tried,
        "groups": totals.groups,
        "groups_with_spread": totals.spread,
        "lost": totals.lost,
        "broken": totals.broken,
        "turns": totals.turns,
        "tokens": training.tokens,
        "unread": totals.unread,
        "cut": totals.cut,
        "versions": len(training.versions),
        "minutes": round(totals.seconds / 60, 3),
        "episodes_a_minute": round(60 * totals.episodes / totals.seconds, 2) if totals.seconds else None,
        "policy_s": round(totals.policy_s, 1),
        "env_s": round(totals.env_s, 1),
        "this_start_s": round(seconds, 1),
    }


def check_names(entries: Mapping[str, TaskEntry]) -> None:
    """Raises TaskError for names that the server cannot take."""
    for name in entries:
        if len(name) > 200 or not name.isprintable():
            raise TaskError(f"the task's name {name[:60]!r}... is too long or cannot be printed", fix="rename it")
