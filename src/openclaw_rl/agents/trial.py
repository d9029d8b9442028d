"""Measures what training on tasks achieves: success on unseen tasks before, a training run, and success after."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from openclaw_rl.agents.attempts import Attempts
from openclaw_rl.agents.curriculum import Curriculum, CurriculumSettings
from openclaw_rl.agents.endpoint import PolicyEndpoint
from openclaw_rl.agents.entries import EnvOpener, task_entries
from openclaw_rl.agents.figures import Attempted, figures_json
from openclaw_rl.agents.measuring import attempt_all
from openclaw_rl.agents.rollout import RolloutBudget, RolloutResult, RolloutSampling
from openclaw_rl.agents.state import RunState
from openclaw_rl.agents.training import Training, TrainingPlan, figures_of
from openclaw_rl.core.message import Json
from openclaw_rl.errors import EngineError
from openclaw_rl.evals.settled import is_settled

POLL_S = 0.5
SETTLE_S = 600.0
FRESH = CurriculumSettings(explore_every=1)  # always the least recently tried task: a few alone would be memorised
SMALL = RolloutBudget(turns=6, tokens=320, reply_tokens=80)  # for small tasks: twice what they need


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """The folders to train on and to measure, by name; each task is attempted `times` times.

    The budget's `needs_end` only applies to training; measured attempts are always judged.
    """

    kind: str
    train: Path
    measured: dict[str, Path]
    training: TrainingPlan
    times: int = 2
    seed: int = 0
    budget: RolloutBudget = SMALL


@dataclass(frozen=True, slots=True)
class Measured:
    """Attempts at unseen tasks, by the name of their folder: figures, and every result."""

    figures: dict[str, dict[str, Json]]
    attempted: dict[str, Attempted]


@dataclass(slots=True)
class AgentTrial:
    """One server's trial. `tell` gets progress messages now and then."""

    endpoint: PolicyEndpoint
    open_env: EnvOpener
    plan: TrialPlan
    tell: Callable[[str], None] = lambda words: None
    clock: Callable[[], float] = time.monotonic
    state: RunState = field(init=False)
    _told_s: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self.state = RunState(f"trial-{self.plan.seed}", self.plan.kind)

    async def measure(self, label: str) -> Measured:
        """Success of the served version. The attempts are neither recorded nor learned from."""
        figures: dict[str, dict[str, Json]] = {}
        attempted: dict[str, Attempted] = {}
        for name, folder in self.plan.measured.items():
            entries = task_entries([folder], None)
            began_s, over, solved = self.clock(), 0, 0
            total = len(entries) * self.plan.times

            def hear(result: RolloutResult, name: str = name, total: int = total) -> None:
                nonlocal over, solved
                over, solved = over + result.is_graded, solved + result.is_success
                self._say(f"{label}, {name}: {solved} of {over} solved, {total} to attempt")

            found = await attempt_all(
                self._attempts(is_side=True),
                entries,
                run=f"{label}-{name}-{self.plan.seed}",
                times=self.plan.times,
                at_once=self.plan.training.at_once,
                tell=hear,
            )
            families = {entry.name: entry.family for entry in entries}
            figures[name] = figures_json(found, families, seconds=self.clock() - began_s)
            attempted[name] = found
        return Measured(figures, attempted)

    async def train(self, on_change: Callable[[Training], None] = lambda training: None) -> dict[str, Json]:
        """A training run to its bound, and until the server has learned what it can; returns its results."""
        entries = {entry.name: entry for entry in task_entries([self.plan.train], None)}
        curriculum = Curriculum([*entries], self.state.tasks, FRESH, self.plan.seed)
        began_s = self.clock()

        def changed() -> None:
            on_change(training)
            self._say(words_of(training))

        training = Training(
            self._attempts(is_side=False),
            entries,
            self.plan.training,
            self.state,
            curriculum,
            lambda _state: None,  # a trial that is stopped begins again
            on_change=changed,
        )
        await training.run()
        await self.settled()
        return figures_of(training, seconds=self.clock() - began_s)

    async def settled(self) -> None:
        """Waits until the server can learn nothing more from the attempts. Raises EngineError."""
        until_s = self.clock() + SETTLE_S
        while not is_settled(await self.endpoint.get("/v1/rl/status")):
            if self.clock() > until_s:
                raise EngineError(
                    f"the server has not settled within {SETTLE_S:g} s", fix="`openclaw-rl status` says what it does"
                )
            await asyncio.sleep(POLL_S)

    def _attempts(self, *, is_side: bool) -> Attempts:
        return Attempts(
            self.endpoint,
            self.open_env,
            self.plan.kind,
            budget=replace(self.plan.budget, needs_end=self.plan.budget.needs_end and not is_side),
            sampling=RolloutSampling(),
            draw=self.plan.seed,
            is_side=is_side,
        )

    def _say(self, words: str) -> None:
        """Not more often than every ten seconds."""
        if self.clock() - self._told_s >= 10.0:
            self._told_s = self.clock()
            self.tell(words)


def words_of(training: Training) -> str:
    """The progress of a run, in a line."""
    success = training.curriculum.success
    share = "-" if success is None else f"{success:.0%}"
    return (
        f"training: {training.episodes} episodes, {training.tokens} tokens, {len(training.versions)} versions spoke, "
        f"{share} of the tasks tried are solved"
    )
