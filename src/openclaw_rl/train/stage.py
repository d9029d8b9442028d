"""The training stage: verdicts become samples, samples a step, a step a version that waits at the gate.

One step is under way at a time, and the next begins when the version the last one made has been settled. A step's
samples and its version are committed together; until then nothing of it counts.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from openclaw_rl.core.adapter import Adapter, StepReport
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.manifest import Manifest
from openclaw_rl.core.message import Json
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import AdapterError, TrainerError
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.train import folders
from openclaw_rl.train.admit import teaches
from openclaw_rl.train.entry import Entry
from openclaw_rl.train.retry import Retries
from openclaw_rl.train.schedule import Moment, batch, outdated, why_waiting
from openclaw_rl.train.settings import TrainStageSettings, Wants

log = logging.getLogger(__name__)
POLL_S = 2.0


class TrainerHandle(Protocol):
    """A trainer that lives in a process of its own. Its calls raise TrainerError, and it can be called again then."""

    async def step(self, samples: Sequence[Sample], *, resume: Path | None) -> StepReport:
        """One step that starts from exactly the weights in `resume`, None being those of the base model.

        That holds also where this trainer has since gone on from there: what was never committed, or refused at the
        gate, must not come back.
        """
        ...

    async def export(self, folder: Path, version: PolicyVersion) -> Adapter:
        """Writes the weights of the last step, and beside them what it takes to go on from there."""
        ...


@dataclass(frozen=True, slots=True)
class TrainStatus:
    """How training goes, for people: what is ready, what a step needs, and why none is taken just now."""

    ready: int = 0  # samples with a signal
    riders: int = 0  # promoted samples that train the anchor alone
    needed: int = 0  # samples that make a step due at once
    steps: int = 0  # since the program started
    failures: int = 0
    is_training: bool = False
    why_waiting: str = ""
    last_error: str = ""
    last_metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class TrainStage:
    """Admits, decides and steps. `candidate_made` is rung for the gate, `version_settled` by it; both only save time.

    `recipe` is what the manifest tells of the settings a version was made with.
    """

    store: Store
    entry: Entry
    trainer: TrainerHandle
    settings: TrainStageSettings
    wants: Wants
    home: Path
    scope: str = SHARED
    recipe: Mapping[str, Json] = field(default_factory=dict)
    idle_s: Callable[[], float] = lambda: math.inf
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    candidate_made: asyncio.Event = field(default_factory=asyncio.Event)
    version_settled: asyncio.Event = field(default_factory=asyncio.Event)
    status: TrainStatus = field(default_factory=TrainStatus)
    _retries: Retries = field(init=False)
    _is_at_gate: bool = False
    _ready_since_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._retries = Retries(self.settings.retry_s, self.settings.retry_max_s)
        self.status = replace(self.status, needed=self.settings.batch_size)

    async def run(self) -> None:
        """Trains until cancelled."""
        await self.start()
        while True:
            if not await self.once():
                await self._rest()

    async def start(self) -> None:
        """Removes what a crash left of a step that was never committed."""
        known = {row.version for row in await self.store.versions()}
        await asyncio.to_thread(folders.remove_orphans, self.home, known)

    async def once(self) -> bool:
        """One round: admit, and step where one is due. True where something moved."""
        moved = await self.entry.admit()
        rows = [row for row in await self.store.versions() if row.version.scope == self.scope]
        at_gate = [row.version for row in rows if row.status is VersionStatus.CANDIDATE]
        self._is_at_gate = bool(at_gate)
        if at_gate:
            self.status = replace(self.status, why_waiting=f"version {at_gate[0]} is at the gate")
            return moved
        parent = await self.store.current(self.scope)
        ready = await self._ready(rows, parent)
        why = self._why_waiting(ready)
        self.status = replace(self.status, why_waiting=why)
        if why:
            return moved
        size = min(self._retries.most or self.settings.batch_size, self.settings.batch_size)
        chosen = batch(ready, self._teaches, size=size, put_off=self._retries.put_off)
        self.status = replace(self.status, is_training=True)
        try:
            await self._step(chosen, parent, rows)
        finally:
            self.status = replace(self.status, is_training=False)
        return True

    async def _rest(self) -> None:
        """Until there may be something to do."""
        if not self._is_at_gate:
            await self.store.wait(State.JUDGED, timeout_s=POLL_S)
            return
        try:
            async with asyncio.timeout(POLL_S):
                await self.version_settled.wait()
        except TimeoutError:
            return
        self.version_settled.clear()

    @property
    def _limit(self) -> int:
        """How many ready samples are looked at: a full batch beside all the riders and those put off there may be."""
        return 3 * self.settings.batch_size + len(self._retries.put_off)

    def _teaches(self, sample: Sample) -> bool:
        return teaches(sample, self.wants)

    async def _ready(self, rows: Sequence[VersionRow], parent: PolicyVersion) -> list[Sample]:
        """The samples of this scope that a step may use; those that waited too long are dropped on the way."""
        ready = [item for item in await self.store.ready(limit=self._limit) if item.version.scope == self.scope]
        served = [row.version for row in rows if row.status is VersionStatus.LIVE and row.version <= parent]
        old = outdated(
            ready, self._teaches, served, max_lag=self.settings.max_lag, most_riders=self.settings.batch_size
        )
        await self._drop(old)
        gone = {turn for turn, _ in old}
        ready = [sample for sample in ready if sample.turn not in gone]
        now = self.clock()
        self._ready_since_s = {sample.turn: self._ready_since_s.get(sample.turn, now) for sample in ready}
        self._retries.forget_but(self._ready_since_s)
        return ready

    def _why_waiting(self, ready: Sequence[Sample]) -> str:
        now = self.clock()
        teaching = [sample for sample in ready if self._teaches(sample)]
        self.status = replace(self.status, ready=len(teaching), riders=len(ready) - len(teaching))
        if teaching and now < self._retries.not_before_s:
            return f"the last step failed; it is tried again in {self._retries.not_before_s - now:.0f} s"
        local = datetime.fromtimestamp(self.now())
        waited_s = max((now - self._ready_since_s[sample.turn] for sample in teaching), default=0.0)
        moment = Moment(minute=local.hour * 60 + local.minute, idle_s=self.idle_s())
        return why_waiting(len(teaching), waited_s, moment, self.settings, most=self._retries.most)

    async def _step(self, samples: Sequence[Sample], parent: PolicyVersion, rows: Sequence[VersionRow]) -> None:
        started = self.now()
        resume = next((row.folder for row in rows if row.version == parent), None)
        log.info("training samples=%d from=%s", len(samples), parent)
        try:
            report = await self.trainer.step(samples, resume=resume)
        except (TrainerError, AdapterError) as problem:
            await self._failed(str(problem), self._retries.failed(samples, self.clock()))
            return
        if not report.took_step:
            await self._no_step(samples, report)
            return
        version = PolicyVersion(self.scope, max((row.version.number for row in rows), default=0) + 1)
        unused = _reasons(report.dropped)
        trained = tuple(sample.turn for sample in samples if sample.turn not in dict(unused))
        record = StepRecord(uuid.uuid4().hex, started, self.now(), trained, unused, report.metrics, None)
        try:
            made = await self._written(record, version, parent)
        except (TrainerError, AdapterError, OSError) as problem:
            self._retries.paused(self.clock())
            await asyncio.to_thread(folders.remove, self.home, version)
            await self._failed(f"version {version} could not be written: {problem}")
            return
        if await self.store.current(self.scope) != parent:
            await self._discard(version, f"{parent} is no longer served")
            return
        if not {sample.turn for sample in samples} <= {item.turn for item in await self.store.ready(limit=self._limit)}:
            await self._discard(version, "some of what it was trained on was forgotten meanwhile")
            return
        await self.store.commit_step(replace(record, ended_s=self.now(), version=made))
        self._retries.succeeded(samples, self.settings.batch_size)
        self.status = replace(
            self.status, steps=self.status.steps + 1, last_metrics=dict(report.metrics), last_error=""
        )
        log.info("made version=%s samples=%d seconds=%.1f", version, len(trained), self.now() - started)
        self.candidate_made.set()

    async def _written(self, record: StepRecord, version: PolicyVersion, parent: PolicyVersion) -> VersionRow:
        """The version, on disk under its own name, as the row to be committed."""
        folder = await asyncio.to_thread(folders.fresh_folder, self.home, version)
        adapter = await self.trainer.export(folder, version)
        await asyncio.to_thread(folders.check_digest, replace(adapter, folder=folder))
        manifest = Manifest(
            version=version,
            parent=parent,
            step=record.id,
            turns=record.trained,
            samples=len(record.trained),
            digest=adapter.digest,
            made_s=self.now(),
            metrics=record.metrics,
            settings=self.recipe,
        )
        final = await asyncio.to_thread(folders.finish, folder, manifest)
        return VersionRow(
            version=version,
            parent=parent,
            folder=final,
            digest=adapter.digest,
            status=VersionStatus.CANDIDATE,
            why="",
            made_s=manifest.made_s,
            turns=record.trained,
            metrics=dict(record.metrics),
        )

    async def _no_step(self, samples: Sequence[Sample], report: StepReport) -> None:
        """The trainer found nothing to learn, or numbers that are not finite. Neither may come up for ever."""
        if "finite" in report.why:
            await self._failed(report.why, self._retries.not_finite(samples, self.clock()))
            return
        log.info("no step samples=%d why=%s", len(samples), report.why)
        named = dict(_reasons(report.dropped))
        await self._drop([(item.turn, named.get(item.turn, DropReason.NO_SIGNAL)) for item in samples])

    async def _failed(self, why: str, given_up: Sequence[tuple[str, DropReason]] = ()) -> None:
        self.status = replace(self.status, failures=self.status.failures + 1, last_error=why)
        log.warning("no step, its samples are kept: %s", why)
        await self._drop(given_up)

    async def _discard(self, version: PolicyVersion, why: str) -> None:
        await asyncio.to_thread(folders.remove, self.home, version)
        log.info("discarded version=%s, its samples wait: %s", version, why)

    async def _drop(self, dropped: Sequence[tuple[str, DropReason]]) -> None:
        for turn, reason in dropped:
            if await self.store.drop(turn, reason):
                log.info("dropped turn=%s reason=%s", turn, reason)


def _reasons(dropped: Sequence[tuple[str, str]]) -> tuple[tuple[str, DropReason], ...]:
    """The trainer's own words as reasons of the closed list."""
    known = {reason.value: reason for reason in DropReason}
    return tuple((turn, known.get(reason, DropReason.TRAINER_FAILED)) for turn, reason in dropped)
