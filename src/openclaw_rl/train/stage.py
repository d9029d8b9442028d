"""The training stage: samples become a step, a step a version that waits at the gate.

One step is under way at a time, of whichever scope has waited longest; the next of that scope begins when the version
the last one made has been settled.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.manifest import Manifest
from openclaw_rl.core.message import Json
from openclaw_rl.core.protocols import Teaching, Trainer
from openclaw_rl.core.sample import Wants
from openclaw_rl.core.stage import StageReport
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import TrainerError
from openclaw_rl.store.db import Store
from openclaw_rl.train import folders
from openclaw_rl.train.costs import KEPT, Costs, ScopeTurns
from openclaw_rl.train.settings import TrainSettings
from openclaw_rl.train.status import TrainStatus, train_findings
from openclaw_rl.train.step_parts import StepParts, left_s, progress_in_words
from openclaw_rl.train.steps import ScopeSteps, StepOutcome, StepReadiness

log = logging.getLogger(__name__)
POLL_S = 2.0
FROZEN = "training is frozen by the owner's order; `openclaw-rl unfreeze` resumes it"
NOT_YET = "what is ready is being read"
SCOPES_NAMED = 5  # in the status, of those that wait


@dataclass(slots=True)
class TrainStage:
    """Decides and steps. `candidate_made` is set for the gate, `version_settled` by it; both only save time.

    `recipe` is the manifest's record of the settings a version was made with. `active` returns the scopes in use; their
    versions follow the shared one when it changes. `before_steps` is done before the first step of each run: versions
    that had learned from something forgotten are made again without it.
    """

    store: Store
    teaching: Teaching
    trainer: Trainer
    settings: TrainSettings
    wants: Wants
    home: Path
    recipe: Mapping[str, Json] = field(default_factory=dict)
    idle_s: Callable[[], float] = lambda: math.inf
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    active: Callable[[], Collection[str]] = tuple
    costs: Costs = field(default_factory=Costs)
    before_steps: Callable[[], Awaitable[None]] | None = None
    candidate_made: asyncio.Event = field(default_factory=asyncio.Event)
    version_settled: asyncio.Event = field(default_factory=asyncio.Event)
    _status: TrainStatus = field(default_factory=TrainStatus)
    _parts: StepParts = field(init=False)
    _turns: ScopeTurns = field(init=False)
    _scopes: dict[str, ScopeSteps] = field(default_factory=dict)
    _is_at_gate: bool = False
    _training: str = ""  # the scope that a step is taken for
    _riders: int = 0  # as of the last look at what is ready
    _preparing: asyncio.Future[None] | None = None

    def __post_init__(self) -> None:
        self._parts = StepParts(
            self.store,
            self.trainer,
            self.settings,
            self.wants,
            self.home,
            self.recipe,
            self.idle_s,
            self.clock,
            self.now,
            self.teaching.still_holds,
            self.costs,
        )
        self._turns = ScopeTurns(self.costs)
        needed, least = self.settings.needed, min(self.settings.min_batch, self.settings.batch_size)
        self._status = replace(self._status, needed=needed, least=least, why_waiting="training has not begun yet")

    @property
    def status(self) -> TrainStatus:
        """The status at this moment. If no step is being taken, it always says why."""
        held = self._status
        if held.is_training:
            progress, under_way = self.trainer.progress, self._parts.under_way
            how_far = progress_in_words(progress, under_way)
            doing = step_over(under_way.samples, self._training) if under_way.samples else held.doing
            doing = f"{doing}: {how_far}" if how_far else doing
            return replace(held, doing=doing, progress=progress, left_s=left_s(progress, under_way))
        if held.why_waiting:
            return held
        return replace(held, why_waiting=f"{held.doing or NOT_YET}; then it is seen whether a step is due")

    @property
    def name(self) -> str:
        """Its name as a stage."""
        return "train"

    @property
    def turns_in_step(self) -> frozenset[str]:
        """The turns of the step that is being taken or committed."""
        return self._parts.under_way.turns if self._status.is_training else frozenset()

    def gauges(self) -> Mapping[str, float]:
        """Steps, failures, and what the last step measured."""
        held = self.status
        return {
            "samples_ready": held.ready,
            "train_steps": held.steps,
            "train_failures": held.failures,
            "train_running": held.is_training,
            **held.last_metrics,
        }

    async def report(self, facts: StoreFacts) -> StageReport:
        """The state of training; `waiting` is counted again, since a step or the gate may take long without updates."""
        taken_up = self._parts.under_way.samples + self._riders
        held = replace(self.status, waiting=max(0, facts.count("ready") - taken_up))
        is_settled = held.is_resting and not held.is_training and bool(held.why_waiting)
        return StageReport(self.name, held, is_settled, held.last_error, tuple(train_findings(facts, held)))

    def let_go(self) -> None:
        """Clears its memory of turns, as after a restart; only while it does not run."""
        self._scopes.clear()

    async def run(self) -> None:
        """Trains until cancelled."""
        if self.before_steps is not None:
            await self.before_steps()
        await self.start()
        try:
            while True:
                if not await self.once():
                    self._status = replace(self._status, is_resting=not self._is_at_gate)
                    await self._rest()
                    self._status = replace(self._status, is_resting=False)
        finally:
            if self._preparing is not None:
                self._preparing.cancel()
                await asyncio.gather(self._preparing, return_exceptions=True)

    def expect_step(self) -> None:
        """A sample is about to be made, so the trainer is started meanwhile. Returns at once."""
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.ensure_future(self._prepare())

    async def _prepare(self) -> None:
        is_soon = self._status.ready + 1 >= self.settings.needed and not self._status.is_training
        if not is_soon or await self.store.orders.frozen_since_s() is not None:
            return
        try:
            await self.trainer.prepare()
        except (TrainerError, OSError) as problem:
            log.info("the trainer cannot be started ahead of the step, which will try again: %s", problem)

    async def start(self) -> None:
        """Removes what a crash left of a step that was never committed: its samples wait, so it is taken again.

        Any other folder that the store does not know may be all that is left of a version, and stays. Samples that were
        set aside as too costly are considered again, with the cost of earlier steps: settings may allow for them now.
        """
        if not self.costs.is_known:
            self.costs.note_all(await self.store.steps.newest(KEPT))
        again = await self.store.steps.take_back(DropReason.TOO_DEAR)
        if again:
            log.info("looking again at %d samples that were too dear", len(again))
        await asyncio.to_thread(folders.remove_unfinished, self.home)
        known = {row.version for row in await self.store.versions()}
        for version, manifest in (await asyncio.to_thread(folders.orphans, self.home, known)).items():
            if manifest is not None and await self._is_uncommitted(manifest, known):
                await asyncio.to_thread(folders.remove, self.home, version)
                log.warning("removed the folder of a version that was never committed: %s", version)
            else:
                log.error("the store does not know version %s; `openclaw-rl check --repair` takes it in", version)

    async def _is_uncommitted(self, manifest: Manifest, known: Collection[PolicyVersion]) -> bool:
        """Whether the step can be repeated unchanged: from the same version, over samples that still wait."""
        has_parent = manifest.parent.is_base or manifest.parent in known
        return has_parent and await self.store.waits_for(manifest.turns, manifest.version.scope)

    async def once(self) -> bool:
        """One round: a step if one is due. True if something changed."""
        await self.teaching.wait_until_looked_at()
        names = await self.store.waiting_scopes() or [SHARED]
        active = sorted({*self.active()} - {SHARED})
        self._scopes = {name: self._scopes.get(name) or ScopeSteps(self._parts, name) for name in (*names, *active)}
        looks = {name: await self._scopes[name].look() for name in names}
        self._note(looks)
        if await self.store.orders.frozen_since_s() is not None:
            self._status = replace(self._status, why_waiting=FROZEN)
            return False
        due = {name: look.cheapest for name, look in looks.items() if not look.why}
        if due:
            began_s, name = self.clock(), self._turns.chosen(due)
            await self._take(name, looks[name])
            self._turns.took(self.clock() - began_s)
            return True
        for name in active:
            if self._scopes[name].may_rebase and (await self._scopes[name].look()).at_gate is None:
                taken = await self._rebased(name)
                if taken is not None:
                    self._enter(taken, is_step=False)
                    return True
        return False

    async def _take(self, scope: str, look: StepReadiness) -> None:
        self._training = scope
        doing = step_over(min(look.teaching, self.settings.batch_size), scope)
        self._status = replace(self._status, is_training=True, doing=doing)
        try:
            self._enter(await self._scopes[scope].step(look.ready), is_step=True)
        finally:
            self._status = replace(self._status, is_training=False, doing="")

    async def _rebased(self, scope: str) -> StepOutcome | None:
        self._status = replace(self._status, doing=f"putting what {scope} learned on the shared version served now")
        try:
            return await self._scopes[scope].rebase()
        finally:
            self._status = replace(self._status, doing="")

    def _enter(self, taken: StepOutcome, *, is_step: bool) -> None:
        if taken.failed:
            self._status = replace(self._status, failures=self._status.failures + 1, last_error=taken.failed)
        if taken.version is None:
            return
        if is_step:
            self._status = replace(
                self._status, steps=self._status.steps + 1, last_metrics=dict(taken.metrics), last_error=""
            )
        self.candidate_made.set()

    def _note(self, looks: Mapping[str, StepReadiness]) -> None:
        self._is_at_gate = any(look.at_gate is not None for look in looks.values())
        if not self._is_at_gate:
            self._riders = sum(len(look.ready) - look.teaching for look in looks.values())
        reasons = [f"{name}: {look.why}" if len(looks) > 1 else look.why for name, look in looks.items()]
        more = f"; and {len(reasons) - SCOPES_NAMED} more" if len(reasons) > SCOPES_NAMED else ""
        self._status = replace(
            self._status,
            ready=sum(look.teaching for look in looks.values()),
            rehearsals=sum(len(look.ready) - look.teaching for look in looks.values()),
            why_waiting=""
            if not all(look.why for look in looks.values())
            else "; ".join(reasons[:SCOPES_NAMED]) + more,
        )

    async def _rest(self) -> None:
        """Until there may be something to do."""
        if not self._is_at_gate:
            await self.store.wait(State.READY, timeout_s=POLL_S)
            return
        try:
            async with asyncio.timeout(POLL_S):
                await self.version_settled.wait()
        except TimeoutError:
            return
        self.version_settled.clear()


def step_over(count: int, scope: str) -> str:
    """A step in words."""
    return f"taking a step over {count} sample{'' if count == 1 else 's'} for {scope}"
