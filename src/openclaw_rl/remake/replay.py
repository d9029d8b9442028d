"""Replay: past steps taken again, unchanged to check that they give the same bits, or with changes."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from openclaw_rl.config import Config
from openclaw_rl.core.hint import Hint
from openclaw_rl.core.manifest import Manifest, version_folder
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import ConfigError, StoreError
from openclaw_rl.home.folder import address_of
from openclaw_rl.home.models import model_folder
from openclaw_rl.home.reach import opened
from openclaw_rl.remake.carry_over import CarryOver
from openclaw_rl.remake.forget_finish import finish_erasing
from openclaw_rl.remake.restore import WeightRestorer
from openclaw_rl.remake.steps import REPLAYED, Batch, PastStep, RetakeResult, StartWeights, StepReplayer, past_step
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.store.tables.versions import lineage
from openclaw_rl.train import folders
from openclaw_rl.trainers.settings import Method, TrainerSettings


@dataclass(frozen=True, slots=True)
class ReplayChanges:
    """The changes for a replay; empty to get the same bits."""

    method: Method | None = None
    rank: int | None = None

    def of(self, settings: TrainerSettings) -> TrainerSettings:
        """The settings with these changes. LoRA's scale, alpha over rank, stays as it was."""
        if self.method is not None:
            own = replace(settings.method, name=self.method, w_rl=None, w_opd=None, w_distill=None, distill=None)
            settings = replace(settings, method=own)
        if self.rank is not None:
            settings = replace(settings, rank=self.rank, alpha=settings.alpha / settings.rank * self.rank)
        return settings


@dataclass(frozen=True, slots=True)
class ReplayedVersion:
    """A version taken again. `is_equal` is None if it was changed on purpose."""

    version: str
    samples: int
    missing: int  # samples of its step that no longer exist
    digest: str | None
    is_equal: bool | None


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The result of a replay."""

    version: str
    model: str
    steps: tuple[ReplayedVersion, ...]
    digest_equal: bool | None
    carried_over: int | None = None  # samples, if the model is another one
    left_out: dict[str, int] = field(default_factory=dict)  # why, and how many
    folder: str | None = None
    made: str | None = None


@dataclass(slots=True)
class _Replay:
    """A running replay."""

    store: Store
    taking: StepReplayer
    rows: list[VersionRow]
    scratch: Path
    carry: CarryOver | None
    steps: list[ReplayedVersion] = field(default_factory=list)

    async def exactly(self, target: PolicyVersion) -> RetakeResult | None:
        """Takes all steps that the target is based on, in order; folders are kept while another step needs them."""
        past = [past_step(row) for row in lineage(self.rows, [target])]
        stands: dict[PolicyVersion, Path | None] = {}
        last: RetakeResult | None = None
        for index, step in enumerate(past):
            under = stands.get(step.upon) if step.upon is not None else None
            ground = StartWeights(stands.get(step.parent), under)
            last = await self._taken(step, ground, is_exact=True)
            stands[step.version] = ground.resume if last is None else last.adapter.folder
            needed = {version for later in past[index + 1 :] for version in (later.parent, later.upon)}
            kept = {stands[version] for version in (*needed, step.version) if version in stands}
            for folder in {folder for folder in stands.values() if folder is not None} - kept:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return last

    async def anew(self, target: PolicyVersion) -> tuple[RetakeResult | None, tuple[Batch, ...]]:
        """All batches of the target's scope on new weights; a user's or agent's scope on top of the shared one's."""
        below: RetakeResult | None = None
        line = lineage(self.rows, [target])
        if target.scope != SHARED:
            shared = [row.version for row in line if row.version.scope == SHARED]
            below = (await self.anew(shared[-1]))[0] if shared else None
        past = [past_step(row) for row in line if row.version.scope == target.scope]
        batches = tuple(batch for step in past for batch in step.batches)
        had = sum(step.had for step in past)
        whole = replace(past[-1], batches=batches, had=had, is_fresh=True, rehearsed=())
        return await self._taken(
            whole, StartWeights(None, None if below is None else below.adapter.folder), is_exact=False
        ), batches

    async def _taken(self, step: PastStep, ground: StartWeights, *, is_exact: bool) -> RetakeResult | None:
        out = self.scratch / "versions" / str(step.version)
        await asyncio.to_thread(out.mkdir, parents=True)
        batches = [await self._samples(batch) for batch in step.batches]
        taken = await self.taking.take(step, [one for one in batches if one], ground, out, step.version)
        digest = None if taken is None else taken.adapter.digest
        self.steps.append(
            ReplayedVersion(
                str(step.version),
                0 if taken is None else len(taken.turns) + len(taken.rehearsed),
                step.had - sum(len(batch) for batch in batches),
                digest,
                digest == step.digest if is_exact else None,
            )
        )
        return taken

    async def _samples(self, batch: Batch) -> list[Sample]:
        found = await self.store.effects.samples(batch)
        if self.carry is None:
            return found
        made = [self.carry.sample(sample, await self.store.turn(sample.turn)) for sample in found]
        return [sample for sample in made if sample is not None]


def _check_alone(home: Path) -> None:
    address = address_of(home)
    if address is not None:
        raise StoreError(
            f"a server runs on {home} (process {address.pid}) and holds its store",
            fix="stop it, run this again, and start it after that; or replay in a copy of the folder",
        )


async def replay(
    config: Config,
    *,
    version: PolicyVersion | None = None,
    change: ReplayChanges | None = None,
    out: Path | None = None,
    into: Path | None = None,
    as_version: bool = False,
    is_model_given: bool = False,
) -> ReplayReport:
    """Takes the steps of a version (by default the one training continues from) again, on a folder no server runs on.

    Without changes the digests are the same, on the same machine. With `is_model_given`, and if the model is
    not the version's, its samples are carried over. `out` gets the adapter; with `as_version` it
    becomes a candidate that waits at the gate, and with `into` the first one of a new installation. Raises ConfigError,
    StoreError, TrainerError.
    """
    _check_alone(config.home)
    await asyncio.to_thread(finish_erasing, config.home)
    model = await asyncio.to_thread(model_folder, config.model)
    async with opened(config.home) as store:
        rows = await store.versions()
        target = version or await store.orders.head(SHARED)
        line = lineage(rows, [target])
        _check(
            line, target, [path for path in (out, into) if path is not None], is_shared=as_version or into is not None
        )
        names = {past_step(row).model for row in line} - {""}
        is_other, others = is_model_given and bool(names) and names != {model.name}, ", ".join(sorted(names))
        if is_other and as_version:
            raise ConfigError(
                f"a version for {model.name} cannot be kept together with those for {others}: the token ids differ",
                fix="give a new home folder with --into, and serve that with the new model",
            )
        carry = (
            CarryOver(ChatRenderer(await asyncio.to_thread(read_template, model), config.render)) if is_other else None
        )
        scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="replay.tmp-", dir=config.home))
        taking = StepReplayer(model, config.trainer, scratch / "steps", is_same_model=not is_other)
        if is_other or change is not None:
            taking.change = lambda own: (change or ReplayChanges()).of(config.trainer if is_other else own)
        try:
            one = _Replay(store, taking, rows, scratch, carry)
            batches: tuple[Batch, ...] = tuple(batch for row in line for batch in past_step(row).batches)
            if is_other or change is not None:
                made, batches = await one.anew(target)
            else:
                made = await one.exactly(target)
            report = _report(target, model, one)
            if made is not None and out is not None:
                await asyncio.to_thread(shutil.copytree, made.adapter.folder, out, dirs_exist_ok=True)
                report = replace(report, folder=str(out))
            if made is not None and as_version:
                report = replace(report, made=str(await _entered(store, config.home, made, batches, taking)))
            if made is not None and into is not None:
                report = replace(report, made=str(await _moved(store, into, made, batches, taking)), folder=str(into))
            return report
        finally:
            await taking.aclose()
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)


async def restore(config: Config, version: PolicyVersion) -> ReplayReport:
    """Makes the pruned weights of a version again, on a folder without a running server.

    They are put back if their digest is the original one, as `digest_equal` says. Raises ConfigError for a version
    that was not pruned; StoreError, TrainerError.
    """
    _check_alone(config.home)
    await asyncio.to_thread(finish_erasing, config.home)
    model = await asyncio.to_thread(model_folder, config.model)
    async with opened(config.home) as store:
        row = await store.version(version)
        if row is None or row.pruned_s is None:
            problem = f"there is no version {version}" if row is None else f"the weights of {version} were not removed"
            raise ConfigError(problem, fix="`openclaw-rl versions --all` lists all, and which have no weights")
        scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="replay.tmp-", dir=config.home))
        taking = StepReplayer(model, config.trainer, scratch / "steps")
        restoring = WeightRestorer(store, config.home, taking, scratch / "versions")
        try:
            is_back = await restoring.restore(version)
            if is_back:
                await store.keeping.restored(version)
        finally:
            await taking.aclose()
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
    steps = [
        ReplayedVersion(str(one.version), one.samples, one.missing, one.digest, one.is_equal) for one in restoring.steps
    ]
    folder = str(version_folder(config.home, version)) if is_back else None
    return ReplayReport(str(version), model.name, tuple(steps), is_back, folder=folder)


def _check(line: Sequence[VersionRow], target: PolicyVersion, folders: Sequence[Path], *, is_shared: bool) -> None:
    if not line:
        raise ConfigError(f"no training step made version {target}", fix="`openclaw-rl versions` lists those that do")
    for folder in folders:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty", fix="give a new folder")
    if is_shared and target.scope != SHARED:
        raise ConfigError(
            f"{target} is a user's or agent's own version, based on a shared one", fix="replay the shared version"
        )


def _report(target: PolicyVersion, model: Path, one: _Replay) -> ReplayReport:
    equal = [step.is_equal for step in one.steps]
    return ReplayReport(
        version=str(target),
        model=model.name,
        steps=tuple(one.steps),
        digest_equal=None if None in equal else all(equal),
        carried_over=None if one.carry is None else one.carry.carried,
        left_out={} if one.carry is None else dict(one.carry.left),
    )


async def _moved(
    old: Store, into: Path, made: RetakeResult, batches: tuple[Batch, ...], taking: StepReplayer
) -> PolicyVersion:
    """A new installation with the adapter as its first candidate, and with the hints that are in use in the old one."""
    async with opened(into) as store:
        for hint in await old.hints.everyone():
            if hint.is_in_use:
                await store.hints.adopt(
                    hint.user, Hint(hint.text, hint.source), at_s=hint.changed_s, why="carried over"
                )
        return await _entered(store, into, made, batches, taking)


async def _entered(
    store: Store, home: Path, made: RetakeResult, batches: tuple[Batch, ...], taking: StepReplayer
) -> PolicyVersion:
    """The adapter as a candidate of an installation."""
    rows = await store.versions_of(SHARED)
    last = max(row.version.number for row in rows)
    version = PolicyVersion(SHARED, await asyncio.to_thread(folders.next_number, home, SHARED, last))
    parent = await store.orders.head(SHARED)
    folder = await asyncio.to_thread(folders.fresh_folder, home, version)
    await asyncio.to_thread(shutil.copytree, made.adapter.folder, folder, dirs_exist_ok=True)
    kept = set(made.turns)
    step, now = uuid.uuid4().hex, time.time()
    manifest = Manifest(
        version=version,
        parent=parent,
        step=step,
        turns=made.turns,
        samples=len(made.turns),
        digest=made.adapter.digest,
        made_s=now,
        metrics=made.metrics,
        settings={
            "trainer": json.loads(taking.settings_text()),
            REPLAYED: [[turn for turn in batch if turn in kept] for batch in batches],
        },
    )
    final = await asyncio.to_thread(folders.finish, folder, manifest)
    assert final == version_folder(home, version)
    row = VersionRow(
        version, parent, final, manifest.digest, VersionStatus.CANDIDATE, "", now, made.turns, dict(made.metrics)
    )
    await store.commit_step(StepRecord(step, now, now, (), (), made.metrics, row))
    return version
