"""The steps of one scope: what is ready for it, whether a step is due, and the version a step makes.

A step's samples and its version are committed together; until then nothing of it counts.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from openclaw_rl.core.adapter import GENTLENESS, NO_NEARER, StepReport
from openclaw_rl.core.hint import KeptHint
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.manifest import Manifest
from openclaw_rl.core.sample import Sample, teaches
from openclaw_rl.core.to_end import to_end
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import AdapterError, StepTooCostlyError, TrainerError
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.train import folders, schedule
from openclaw_rl.train.costs import BatchPlanner, MeasuredStep, StepWork
from openclaw_rl.train.schedule import Moment, RehearsalBudget, Retries
from openclaw_rl.train.step_parts import StepParts

log = logging.getLogger(__name__)
WAITING_STEPS = 16  # the rehearsal samples of this many steps may wait


@dataclass(frozen=True, slots=True)
class StepReadiness:
    """What there is to do for a scope: `why` no step is due, empty if one is; what the `cheapest` sample costs."""

    why: str
    ready: tuple[Sample, ...] = ()
    teaching: int = 0
    at_gate: PolicyVersion | None = None
    cheapest: StepWork = field(default_factory=StepWork)


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The result of a step: the version it made, or why there is none; `failed` if no sample caused that."""

    version: PolicyVersion | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""


@dataclass(frozen=True, slots=True)
class StepBase:
    """What a step starts from: the scope's version being served, and the shared one under it."""

    parent: PolicyVersion
    resume: Path | None
    upon: PolicyVersion | None
    under: Path | None
    number: int  # of the version to be made


@dataclass(slots=True)
class ScopeSteps:
    """Looks and steps for one scope, with its own memory of failures."""

    parts: StepParts
    scope: str
    retries: Retries = field(init=False)
    affordable: BatchPlanner = field(init=False)
    _ready_since_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.retries = Retries(self.parts.settings.retry_s, self.parts.settings.retry_max_s)
        self.affordable = BatchPlanner(self.parts.costs)

    async def look(self) -> StepReadiness:
        """What is ready and whether a step is due; samples that waited too long are dropped on the way."""
        waiting = await self.parts.store.candidates()
        at_gate = next((row.version for row in waiting if row.version.scope == self.scope), None)
        if at_gate is not None:
            return StepReadiness(f"version {at_gate} is at the gate", at_gate=at_gate)
        ready = await self._ready()
        teaching = [sample for sample in ready if self._teaches(sample)]
        cheapest = self.affordable.least(teaching, self.retries.apart) or StepWork()
        return StepReadiness(self._why_waiting(teaching), tuple(ready), len(teaching), cheapest=cheapest)

    async def step(self, ready: Sequence[Sample]) -> StepOutcome:
        """One step over the next of these samples."""
        settings = self.parts.settings
        size = min(self.retries.most or settings.batch_size, settings.batch_size)
        if self.scope == SHARED and await self.parts.store.has_several_teachers():
            ready = schedule.shared_fairly(ready, schedule.most_of_one(settings), self._teaches)
        returned = await self.parts.store.refusals.returned(self.scope)
        ready = schedule.apart(ready, returned, self._teaches)
        room = RehearsalBudget(
            settings.rehearsal_samples if self.retries.most is None else 0, settings.max_sample_tokens
        )
        samples = await self._picked(ready, size, room)
        gentleness = max((returned.get(sample.turn, 0) for sample in samples if self._teaches(sample)), default=0)
        ground = await self._ground()
        rehearsed = await self.affordable.with_room_for(await self._rehearsed(samples, room, ground.number), samples)
        work = await asyncio.to_thread(self.parts.costs.work_of, (*samples, *rehearsed))
        started = self.parts.now()
        log.info(
            "training scope=%s samples=%d rehearsed=%d from=%s upon=%s",
            self.scope, len(samples), len(rehearsed), ground.parent, ground.upon,
        )  # fmt: skip
        teaching = sum(self._teaches(sample) for sample in samples)
        turns = frozenset(sample.turn for sample in samples)
        self.parts.under_way.begin(teaching, work.read, self.parts.costs.seconds(work), turns)
        try:
            report = await self.parts.trainer.step(
                (*samples, *rehearsed), resume=ground.resume, under=ground.under, gentleness=gentleness
            )
        except StepTooCostlyError as problem:
            return await self._too_dear(problem, (*samples, *rehearsed), work)
        except (TrainerError, AdapterError) as problem:
            return await self._failed(str(problem), self.retries.failed((*samples, *rehearsed), self.parts.clock()))
        finally:
            self.parts.under_way.end()
        took = self.parts.costs.taken(work, report)
        if not report.took_step:
            return await self._no_step(samples, rehearsed, report)
        unused = dict(_reasons(report.dropped))
        trained, read = (tuple(one.turn for one in each if one.turn not in unused) for each in (samples, rehearsed))
        dropped = tuple((one.turn, unused[one.turn]) for one in samples if one.turn in unused)
        metrics = report.metrics | ({GENTLENESS: float(gentleness)} if gentleness else {})
        record = StepRecord(uuid.uuid4().hex, started, self.parts.now(), trained, dropped, metrics, None, self.scope)
        return await self._committed(record, ground, samples, read, took=took)

    async def rebase(self) -> StepOutcome | None:
        """The scope's version based on the shared one being served now; None if it is based on it already.

        If this was tried and refused, it is not tried again.
        """
        ground = await self._ground()
        own = await self.parts.store.version(ground.parent)
        if own is None or ground.resume is None or own.upon == ground.upon:
            return None
        rows = await self.parts.store.versions_of(self.scope)
        if any(row.parent == ground.parent and row.upon == ground.upon and not row.turns for row in rows):
            return None
        started = self.parts.now()
        log.info("rebasing version=%s from=%s onto=%s", own.version, own.upon, ground.upon)
        try:
            await self.parts.trainer.rebase(resume=ground.resume, under=ground.under)
        except (TrainerError, AdapterError) as problem:
            self.retries.paused(self.parts.clock())
            return await self._failed(str(problem))
        record = StepRecord(uuid.uuid4().hex, started, self.parts.now(), (), (), {}, None, self.scope)
        return await self._committed(record, ground, ())

    @property
    def may_rebase(self) -> bool:
        """Whether the pause after the last failure is over."""
        return self.parts.clock() >= self.retries.not_before_s

    @property
    def _limit(self) -> int:
        """How many ready samples are examined: full batches, rehearsal samples that may wait, those put off."""
        return 3 * self.parts.settings.batch_size + 2 * self._waiting_room.samples + len(self.retries.put_off)

    @property
    def _waiting_room(self) -> RehearsalBudget:
        settings = self.parts.settings
        return RehearsalBudget(WAITING_STEPS * settings.rehearsal_samples, WAITING_STEPS * settings.max_sample_tokens)

    def _teaches(self, sample: Sample) -> bool:
        return teaches(sample, self.parts.wants)

    async def _ready(self) -> list[Sample]:
        settings = self.parts.settings
        ready = await self.parts.store.ready(limit=self._limit, scope=self.scope)
        current = await self.parts.store.current(self.scope)
        served = await self.parts.store.newest_live(current, most=settings.max_lag + 1)
        places = {version: await self._place(version) for version in {sample.version for sample in ready}}
        old = schedule.outdated(
            ready,
            self._teaches,
            served,
            max_lag=settings.max_lag,
            room=self._waiting_room,
            place=lambda version: places[version],
        )
        old = (*old, *await self._no_longer_asked_for(ready, {turn for turn, _ in old}))
        await self.affordable.look_at(ready)
        dear = self.affordable.beyond([sample for sample in ready if self._teaches(sample)])
        for turn, seconds in dear.items():
            log.warning(
                "too costly: turn=%s alone takes about %.0f s, a step may take %.0f s",
                turn, seconds, self.parts.costs.limit_s,
            )  # fmt: skip
        gone = {turn for turn, _ in old}
        old = (*old, *((turn, DropReason.TOO_DEAR) for turn in dear if turn not in gone))
        await self._drop(old)
        gone = {turn for turn, _ in old}
        ready = [sample for sample in ready if sample.turn not in gone]
        now = self.parts.clock()
        self._ready_since_s = {sample.turn: self._ready_since_s.get(sample.turn, now) for sample in ready}
        self.retries.forget_but(self._ready_since_s)
        return ready

    async def _rehearsed(self, samples: Sequence[Sample], room: RehearsalBudget, number: int) -> list[Sample]:
        """Rehearsal samples of earlier steps that fit into this step besides its own."""
        settings = self.parts.settings
        left = room.without([sample for sample in samples if not self._teaches(sample)])
        if left.samples < 1 or not settings.rehearse_again:
            return []
        earlier = await self.parts.store.rehearsed(scope=self.scope, most=settings.rehearse_again)
        kept = await self._kept_hints(sample.user for sample, _ in earlier)
        said_s = {sample.turn: at_s for sample, at_s in earlier}
        asked_for = [sample for sample, _ in earlier if schedule.is_asked_for(sample, kept[sample.user])]
        found: list[Sample] = []
        for rehearsal in schedule.again(asked_for, number, settings.rehearsal_samples):
            since = schedule.wished_since(rehearsal, said_s[rehearsal.turn], kept[rehearsal.user])
            if await self.parts.holds(rehearsal, since):
                found = schedule.fitting([*found, rehearsal], left)
            if len(found) == left.samples:
                break
        return found

    async def _no_longer_asked_for(
        self, ready: Sequence[Sample], gone: Collection[str]
    ) -> list[tuple[str, DropReason]]:
        """Rehearsals that follow a hint which its user took back since, or wished the opposite of."""
        rehearsals = [sample for sample in ready if sample.rehearses and sample.turn not in gone]
        kept = await self._kept_hints(one.user for one in rehearsals)
        return [
            (one.turn, DropReason.NO_SIGNAL) for one in rehearsals if not schedule.is_asked_for(one, kept[one.user])
        ]

    async def _kept_hints(self, users: Iterable[str]) -> dict[str, dict[str, KeptHint]]:
        """The hints kept for these users, by their words."""
        store = self.parts.store.hints
        return {user: {hint.text: hint for hint in await store.of_user(user)} for user in set(users)}

    async def _place(self, version: PolicyVersion) -> PolicyVersion:
        """The position of the version that sampled among those of this scope.

        A user's or agent's version has the position of the shared one it is based on; for an own scope the shared
        version comes before all of the scope's versions.
        """
        if version.scope == self.scope:
            return version
        row = await self.parts.store.version(version) if self.scope == SHARED else None
        return PolicyVersion(self.scope, 0) if row is None or row.upon is None else row.upon

    async def _picked(self, ready: Sequence[Sample], size: int, room: RehearsalBudget) -> tuple[Sample, ...]:
        """The samples of the next step with rehearsal samples, as many as there is time for."""
        put_off, apart = self.retries.put_off, self.retries.apart
        teaching = [sample for sample in ready if self._teaches(sample) and sample.turn not in put_off]
        least = self.parts.settings.min_batch
        chosen = await self.affordable.chosen(teaching, size=size, apart=apart, least=least)
        names = {sample.turn for sample in chosen} if chosen else put_off.keys()
        others = [sample for sample in ready if sample.turn in names or not self._teaches(sample)]
        samples = schedule.batch(others, self._teaches, size=size, room=room, put_off=put_off)
        along = [sample for sample in samples if not self._teaches(sample)]
        timely = await self.affordable.with_room_for(along, [one for one in samples if self._teaches(one)])
        return tuple(sample for sample in samples if self._teaches(sample) or sample in timely)

    def _why_waiting(self, teaching: Sequence[Sample]) -> str:
        now = self.parts.clock()
        if teaching and now < self.retries.not_before_s:
            return f"the last step failed; it is tried again in {self.retries.not_before_s - now:.0f} s"
        local = datetime.fromtimestamp(self.parts.now())
        waited_s = max((now - self._ready_since_s[sample.turn] for sample in teaching), default=0.0)
        moment = Moment(minute=local.hour * 60 + local.minute, idle_s=self.parts.idle_s())
        return schedule.why_waiting(len(teaching), waited_s, moment, self.parts.settings, most=self.retries.most)

    async def _ground(self) -> StepBase:
        store = self.parts.store
        parent = await store.orders.head(self.scope)
        from_row = await store.version(parent)
        resume = None if from_row is None else from_row.folder
        last = await store.last_number(self.scope)
        number = await asyncio.to_thread(folders.next_number, self.parts.home, self.scope, last)
        if self.scope == SHARED:
            return StepBase(parent, resume, None, None, number)
        below = await store.version(await store.current(SHARED))
        if below is None or below.folder is None:
            return StepBase(parent, resume, None, None, number)
        return StepBase(parent, resume, below.version, below.folder, number)

    async def _committed(
        self,
        record: StepRecord,
        ground: StepBase,
        samples: Sequence[Sample],
        rehearsed: tuple[str, ...] = (),
        *,
        took: MeasuredStep | None = None,
    ) -> StepOutcome:
        version = PolicyVersion(self.scope, ground.number)
        try:
            made = await self._written(record, version, ground, rehearsed)
        except (TrainerError, AdapterError, OSError) as problem:
            self.retries.paused(self.parts.clock())
            await asyncio.to_thread(folders.remove, self.parts.home, version)
            return await self._failed(f"version {version} could not be written: {problem}")
        store = self.parts.store
        if await store.orders.head(self.scope) != ground.parent:
            return await self._discard(version, f"{ground.parent} is no longer served")
        waiting = {item.turn for item in await store.ready(limit=self._limit, scope=self.scope)}
        held = await store.effects.samples(rehearsed)
        if not {sample.turn for sample in samples} <= waiting or len(held) < len(rehearsed):
            return await self._discard(version, "some of what it was trained on was forgotten meanwhile")
        measured = {} if took is None else took.metrics(self.parts.costs.means)
        metrics = record.metrics | measured
        await store.commit_step(replace(record, ended_s=self.parts.now(), metrics=metrics, version=made))
        self.retries.succeeded(samples, self.parts.settings.batch_size)
        seconds = self.parts.now() - record.started_s
        self.affordable.succeeded(seconds)
        log.info("made version=%s samples=%d seconds=%.1f", version, len(record.trained), seconds)
        return StepOutcome(version, record.metrics)

    async def _written(
        self, record: StepRecord, version: PolicyVersion, ground: StepBase, rehearsed: tuple[str, ...]
    ) -> VersionRow:
        """The version, on disk under its own name, as the row to be committed."""
        folder = await asyncio.to_thread(folders.fresh_folder, self.parts.home, version)
        adapter = await self.parts.trainer.export(folder, version)
        await asyncio.to_thread(folders.check_digest, replace(adapter, folder=folder))
        manifest = Manifest(
            version=version,
            parent=ground.parent,
            step=record.id,
            turns=record.trained,
            samples=len(record.trained) + len(rehearsed),
            digest=adapter.digest,
            made_s=self.parts.now(),
            metrics=record.metrics,
            settings=self.parts.recipe,
            upon=ground.upon,
            rehearsed=rehearsed,
        )
        final = await to_end(asyncio.to_thread(folders.finish, folder, manifest))
        return VersionRow(
            version=version,
            parent=ground.parent,
            folder=final,
            digest=adapter.digest,
            status=VersionStatus.CANDIDATE,
            why="",
            made_s=manifest.made_s,
            turns=record.trained,
            metrics=dict(record.metrics),
            rehearsed=rehearsed,
            upon=ground.upon,
        )

    async def _no_step(self, samples: Sequence[Sample], rehearsed: Sequence[Sample], report: StepReport) -> StepOutcome:
        """The trainer found nothing to learn, or numbers that are not finite. Neither may be repeated for ever."""
        if "finite" in report.why:
            return await self._failed(report.why, self.retries.not_finite((*samples, *rehearsed), self.parts.clock()))
        log.info("no step samples=%d why=%s", len(samples), report.why)
        named = dict(_reasons(report.dropped))
        in_vain = DropReason.NOT_LEARNABLE if report.why == NO_NEARER else DropReason.NO_SIGNAL
        other = {item.turn: in_vain if self._teaches(item) else DropReason.NO_SIGNAL for item in samples}
        await self._drop([(turn, named.get(turn, reason)) for turn, reason in other.items()])
        return StepOutcome()

    async def _too_dear(self, problem: StepTooCostlyError, samples: Sequence[Sample], work: StepWork) -> StepOutcome:
        """A step took too long or too much memory: its costliest sample is tried alone; if alone, it is set aside."""
        dearest = self.affordable.dearest([sample for sample in samples if self._teaches(sample)])
        is_proven = problem.after_s is not None
        aside = self.retries.too_dear(samples, dearest, self.parts.clock(), is_proven=is_proven)
        if problem.after_s is not None:
            step, ended_s = self.parts.costs.given_up(work, problem.after_s), self.parts.now()
            metrics = step.metrics(self.parts.costs.means)
            record = StepRecord(uuid.uuid4().hex, ended_s - problem.after_s, ended_s, (), (), metrics, None, self.scope)
            await self.parts.store.commit_step(record)
        return await self._failed(str(problem), aside)

    async def _failed(self, why: str, given_up: Sequence[tuple[str, DropReason]] = ()) -> StepOutcome:
        log.warning("no step, its samples are kept: %s", why)
        await self._drop(given_up)
        return StepOutcome(failed=why)

    async def _discard(self, version: PolicyVersion, why: str) -> StepOutcome:
        await asyncio.to_thread(folders.remove, self.parts.home, version)
        log.info("discarded version=%s, its samples wait: %s", version, why)
        return StepOutcome()

    async def _drop(self, dropped: Sequence[tuple[str, DropReason]]) -> None:
        for turn, reason in dropped:
            if await self.parts.store.drop(turn, reason, scope=self.scope):
                log.info("dropped turn=%s scope=%s reason=%s", turn, self.scope, reason)


def _reasons(dropped: Sequence[tuple[str, str]]) -> tuple[tuple[str, DropReason], ...]:
    """The trainer's own words as reasons of the closed list."""
    known = {reason.value: reason for reason in DropReason}
    return tuple((turn, known.get(reason, DropReason.TRAINER_FAILED)) for turn, reason in dropped)
