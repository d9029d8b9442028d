"""A trainer that takes steps without learning anything, under the rules of a real one."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, Adapter, StepProgress, StepReport, digest_of_folder
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import TrainerError

LOSS = 0.5


def honest(samples: Sequence[Sample]) -> StepReport:
    """The report of an honest step, which is taken if any sample has a signal."""
    if not any(sample.has_signal for sample in samples):
        return StepReport(took_step=False, metrics={}, why="no sample has a signal")
    return StepReport(took_step=True, metrics={"loss": LOSS})


@dataclass
class ScriptedTrainer:
    """Answers each step with `answer`, and writes weights that record what they were made of, deterministically.

    An entry of a script, or what `answer` raises, may be the TrainerError to raise. `batches` records the turns of each
    step, `resumed`, `under` and `gentleness` its arguments, `rebased` the calls of `rebase`, `prepared` counts those of
    `prepare`.
    """

    answer: Callable[[Sequence[Sample]], StepReport] = honest
    batches: list[list[str]] = field(default_factory=list)
    gentleness: list[int] = field(default_factory=list)
    resumed: list[Path | None] = field(default_factory=list)
    under: list[Path | None] = field(default_factory=list)
    rebased: list[tuple[Path, Path | None]] = field(default_factory=list)
    prepared: int = 0
    before_export: Callable[[], Awaitable[object]] | None = None  # once
    export_error: Exception | None = None
    progress: StepProgress | None = None
    _made_of: str | None = None  # what the present weights were made of; None without weights

    async def prepare(self) -> None:
        """Records it."""
        self.prepared += 1

    async def step(
        self, samples: Sequence[Sample], *, resume: Path | None, under: Path | None = None, gentleness: int = 0
    ) -> StepReport:
        """The next report."""
        self.gentleness.append(gentleness)
        self.batches.append([item.turn for item in samples])
        self.resumed.append(resume)
        self.under.append(under)
        self._made_of = None
        made_of = [_digest(resume), _digest(under), *self.batches[-1]]
        report = self.answer(samples)
        self._made_of = " ".join(made_of) if report.took_step else " ".join(made_of[:2])
        return report

    async def rebase(self, *, resume: Path, under: Path | None) -> None:
        """Records a rebase."""
        self.rebased.append((resume, under))
        self._made_of = f"{_digest(resume)} on {_digest(under)}"

    async def export(self, folder: Path, version: PolicyVersion) -> Adapter:
        """Writes small files in place of an adapter and a trainer's state. Raises TrainerError."""
        if self._made_of is None:
            raise TrainerError("there is no step that could be written")
        if self.before_export is not None:
            await self.before_export()
            self.before_export = None
        return await asyncio.to_thread(self._written, folder, version, self._made_of)

    async def aclose(self) -> None:
        """Drops the present weights."""
        self._made_of = None

    def _written(self, folder: Path, version: PolicyVersion, made_of: str) -> Adapter:
        (folder / "optimizer").mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA"}), "utf-8")
        (folder / WEIGHTS).write_bytes(_safetensors(made_of))
        (folder / "optimizer" / "state.bin").write_bytes(b"state")
        if self.export_error is not None:
            raise self.export_error
        return Adapter(folder, digest_of_folder(folder), version)


def scripted(reports: Sequence[StepReport | TrainerError]) -> Callable[[Sequence[Sample]], StepReport]:
    """The reports in turn, and then those of honest steps."""
    rest = iter(reports)

    def answer(samples: Sequence[Sample]) -> StepReport:
        report = next(rest, None)
        if isinstance(report, TrainerError):
            raise report
        return honest(samples) if report is None else report

    return answer


def _digest(folder: Path | None) -> str:
    if folder is None:
        return "base"
    try:
        return digest_of_folder(folder)
    except OSError as problem:
        raise TrainerError(f"{folder} holds no adapter: {problem}") from problem


def _safetensors(made_of: str) -> bytes:
    """A valid file with one tensor."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [32], "data_offsets": [0, 32]}}).encode()
    return len(header).to_bytes(8, "little") + header + hashlib.sha256(made_of.encode()).digest()
