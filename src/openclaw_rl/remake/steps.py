"""Takes past steps again: on one machine, the same samples in order from the same weights give the same bits."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from openclaw_rl.core.adapter import CONFIG, GENTLENESS, Adapter
from openclaw_rl.core.manifest import Manifest, read_manifest
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import ConfigError, TrainerError
from openclaw_rl.home.models import model_folder
from openclaw_rl.store.rows import VersionRow
from openclaw_rl.trainers.process import TrainerProcess
from openclaw_rl.trainers.settings import TrainerSettings

log = logging.getLogger(__name__)
REPLAYED = "replayed"  # a manifest's settings contain the batches of a complete replay under this name
Batch = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PastStep:
    """What made a version: from `parent`, or with `is_fresh` from new weights, over these batches of turns.

    `had` counts the turns before any were left out; without turns the version is its parent rebased onto `upon`. Those
    `rehearsed` were consumed by earlier steps. `trainer` are the settings then as JSON, None if they are not
    known; `model` is the base model's name.
    """

    version: PolicyVersion
    parent: PolicyVersion
    upon: PolicyVersion | None
    batches: tuple[Batch, ...]
    had: int
    is_fresh: bool
    digest: str
    trainer: str | None
    model: str
    rehearsed: tuple[str, ...] = ()
    gentleness: int = 0


@dataclass(frozen=True, slots=True)
class StartWeights:
    """The weights a step starts from, and those it is based on; None for none."""

    resume: Path | None
    under: Path | None


@dataclass(frozen=True, slots=True)
class RetakeResult:
    """The result: the adapter, the turns consumed, the last step's metrics, and the turns rehearsed."""

    adapter: Adapter
    turns: tuple[str, ...]
    metrics: dict[str, float]
    rehearsed: tuple[str, ...] = ()


def past_step(row: VersionRow, without: Collection[str] = ()) -> PastStep:
    """How a version was made, with some turns left out. Facts missing in its folder are None or empty."""
    manifest = _manifest(row)
    settings = {} if manifest is None else dict(manifest.settings)
    replayed = settings.get(REPLAYED)
    batches = msgspec.convert(replayed, tuple[Batch, ...]) if replayed is not None else (row.read,)
    kept = tuple(tuple(turn for turn in batch if turn not in without) for batch in batches)
    trainer = settings.get("trainer")
    return PastStep(
        version=row.version,
        parent=row.parent or PolicyVersion(row.version.scope, 0),
        upon=row.upon,
        batches=tuple(batch for batch in kept if batch),
        had=sum(len(batch) for batch in batches),
        is_fresh=replayed is not None,
        digest=row.digest,
        trainer=json.dumps(trainer) if isinstance(trainer, dict) else None,
        model=_model_of(row.folder),
        rehearsed=tuple(turn for turn in row.rehearsed if turn not in without),
        gentleness=int(row.metrics.get(GENTLENESS, 0.0)),
    )


@dataclass(slots=True)
class StepReplayer:
    """Takes steps again in a separate process, in order.

    `given` are the trainer's settings for versions that do not record theirs; `change` overrides settings.
    """

    model: Path
    given: TrainerSettings
    scratch: Path  # a folder for intermediate versions; removed at the end
    change: Callable[[TrainerSettings], TrainerSettings] = lambda settings: settings
    is_same_model: bool = True
    _trainer: TrainerProcess | None = None
    _settings: TrainerSettings | None = None
    _made: int = field(default=0)

    async def take(
        self,
        past: PastStep,
        batches: Sequence[Sequence[Sample]],
        ground: StartWeights,
        out: Path,
        version: PolicyVersion,
    ) -> RetakeResult | None:
        """Writes the version into `out`, an empty folder; None if nothing was learned. Raises TrainerError."""
        trainer = await self._trainer_for(past)
        if past.had == 0:
            if ground.resume is None:
                return None
            await trainer.rebase(resume=ground.resume, under=ground.under)
            return RetakeResult(await trainer.export(out, version), (), {})
        here = None if past.is_fresh else ground.resume
        used: dict[str, None] = {}
        metrics: dict[str, float] = {}
        last: Adapter | None = None
        for batch in batches:
            report = await trainer.step(batch, resume=here, under=ground.under, gentleness=past.gentleness)
            if not report.took_step and "finite" in report.why:
                raise TrainerError(f"a step of version {past.version} cannot be taken again: {report.why}")
            if not report.took_step:
                continue
            unused = {turn for turn, _ in report.dropped}
            used |= dict.fromkeys(sample.turn for sample in batch if sample.turn not in unused)
            self._made += 1
            before, last = last, await trainer.export(self.scratch / str(self._made), version)
            if before is not None:
                await asyncio.to_thread(shutil.rmtree, before.folder)
            here, metrics = last.folder, report.metrics | _gently(past)
        if last is None:
            return None
        await asyncio.to_thread(last.folder.rename, out)
        again = tuple(turn for turn in used if turn in past.rehearsed)
        turns = tuple(turn for turn in used if turn not in past.rehearsed)
        return RetakeResult(replace(last, folder=out), turns, metrics, again)

    def settings_text(self) -> str:
        """The settings of the last step, as JSON."""
        return msgspec.json.encode(self._settings).decode()

    async def aclose(self) -> None:
        """Ends the process and removes intermediate versions."""
        if self._trainer is not None:
            await self._trainer.aclose()
        await asyncio.to_thread(shutil.rmtree, self.scratch, ignore_errors=True)

    async def _trainer_for(self, past: PastStep) -> TrainerProcess:
        if self.is_same_model and past.model and past.model != self.model.name:
            raise ConfigError(
                f"version {past.version} was trained on the model {past.model}, but {self.model.name} was given",
                fix="give the model it was trained on, with --model",
            )
        try:
            own = self.given if past.trainer is None else msgspec.json.decode(past.trainer, type=TrainerSettings)
        except msgspec.ValidationError as problem:
            raise ConfigError(f"version {past.version} was trained with settings unknown here: {problem}") from problem
        settings = await asyncio.to_thread(_with_teacher, self.change(own))
        if self._trainer is None or settings != self._settings:
            if self._trainer is not None:
                await self._trainer.aclose()
            self._trainer, self._settings = TrainerProcess(self.model, settings), settings
        await asyncio.to_thread(self.scratch.mkdir, parents=True, exist_ok=True)
        return self._trainer


def folder_in(rows: Sequence[VersionRow], version: PolicyVersion | None) -> Path | None:
    """A version's folder; None for the base model."""
    return next((row.folder for row in rows if row.version == version), None)


def _with_teacher(settings: TrainerSettings) -> TrainerSettings:
    name = settings.method.teacher_model
    return (
        replace(settings, method=replace(settings.method, teacher_model=str(model_folder(name)))) if name else settings
    )


def _manifest(row: VersionRow) -> Manifest | None:
    if row.folder is None:
        return None
    try:
        return read_manifest(row.folder)
    except (OSError, ValueError) as problem:
        log.warning("version %s does not tell how it was made: %s", row.version, problem)
        return None


def _model_of(folder: Path | None) -> str:
    """The base model's name in the adapter's configuration; empty if there is none."""
    try:
        held = json.loads((folder / CONFIG).read_text("utf-8")) if folder is not None else {}
    except (OSError, ValueError):
        return ""
    return str(held.get("base_model_name_or_path") or "") if isinstance(held, dict) else ""


def _gently(past: PastStep) -> dict[str, float]:
    """The metrics of a version made again, so that it can be replayed in turn."""
    return {GENTLENESS: float(past.gentleness)} if past.gentleness else {}
