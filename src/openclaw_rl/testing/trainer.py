"""A trainer that takes steps without learning anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, Adapter, StepReport, digest_of_folder
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import TrainerError


class ScriptedTrainer:
    """Reports the steps in turn and then, or from the start, what honest steps would report.

    Without a script a step is taken where any sample has a signal. An entry may be the TrainerError to raise.
    `steps` holds the batches. An export's files tell what was consumed; their weights are no weights.
    """

    def __init__(self, reports: Sequence[StepReport | TrainerError] = ()) -> None:
        self._reports = iter(reports)
        self.steps: list[tuple[Sample, ...]] = []

    def step(self, samples: Sequence[Sample], *, gentleness: int = 0) -> StepReport:
        """The next report."""
        self.steps.append(tuple(samples))
        report = next(self._reports, None)
        if isinstance(report, TrainerError):
            raise report
        if report is not None:
            return report
        if not any(sample.has_signal for sample in samples):
            return StepReport(took_step=False, metrics={}, why="no sample has a signal")
        return StepReport(took_step=True, metrics={"train_samples": float(len(samples))})

    def export(self, folder: Path, version: PolicyVersion) -> Adapter:
        """Writes two small files in the places of an adapter's."""
        folder.mkdir(parents=True)
        (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA", "version": str(version)}), "utf-8")
        (folder / WEIGHTS).write_text("\n".join(sample.turn for batch in self.steps for sample in batch), "utf-8")
        return Adapter(folder, digest_of_folder(folder), version)
