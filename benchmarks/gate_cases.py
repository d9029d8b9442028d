"""Bad versions for the gate's benchmark: damaged and random weights, poisoned batches, too high a rate, slow drifts."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, digest_of_folder
from openclaw_rl.core.hint import Hint
from openclaw_rl.core.ledger import State
from openclaw_rl.core.manifest import Manifest, version_folder, write_manifest
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.runtime.installation import Installation
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.trainers.process import TrainerProcess
from openclaw_rl.trainers.settings import TrainerSettings

OPPOSITE = "Use a structured markdown format with a header, numbered bold steps and a boxed answer."
BATCH, STEPS = 8, 4  # of a poisoned batch, and how often it is learned from before the version is made
Change = Callable[[dict[str, Tensor]], None]


@dataclass(frozen=True, slots=True)
class Ground:
    """The good version that bad ones are made from."""

    parts: Installation
    row: VersionRow

    @property
    def folder(self) -> Path:
        """Where it lies."""
        assert self.row.folder is not None
        return self.row.folder

    async def enter(self, name: str, fill: Callable[[Path], None], *, harm: Callable[[Path], None] | None = None,
                    parent: PolicyVersion | None = None) -> VersionRow:  # fmt: skip
        """A version at the gate whose files `fill` writes; `harm` is done to them after they were committed."""
        store, home = self.parts.store, self.parts.config.home
        number = max(row.version.number for row in await store.versions()) + 1
        version, since = PolicyVersion(SHARED, number), parent or self.row.version
        folder = version_folder(home, version)
        folder.mkdir(parents=True)
        fill(folder)
        digest = digest_of_folder(folder)
        write_manifest(folder, Manifest(version, since, name, (), 0, digest, 1.0))
        row = VersionRow(version, since, folder, digest, VersionStatus.CANDIDATE, "", 1.0)
        await store.commit_step(StepRecord(f"{name} {version}", 1.0, 2.0, (), (), {}, row))
        if harm is not None:
            harm(folder)
        self.parts.publishing.candidate_made.set()
        return row

    def changed(self, change: Change) -> Callable[[Path], None]:
        """Writes the good version's files with other weights."""

        def fill(folder: Path) -> None:
            shutil.copy(self.folder / CONFIG, folder / CONFIG)
            weights = load_file(self.folder / WEIGHTS)
            change(weights)
            save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})

        return fill

    async def trained(
        self, samples: Sequence[Sample], *, steps: int, settings: TrainerSettings
    ) -> Callable[[Path], None]:
        """Steps from the good version over these samples, with a trainer of their own; writes what came of it."""
        trainer = TrainerProcess(self.parts.folder, settings)
        made = Path(tempfile.mkdtemp(prefix="openclaw-rl-poison-"))
        resume = self.folder
        try:
            for number in range(steps):
                await trainer.step(samples, resume=resume)
                resume = made / str(number)
                resume.mkdir()
                await trainer.export(resume, PolicyVersion(SHARED, 900 + number))
        finally:
            await trainer.aclose()

        def fill(folder: Path) -> None:
            for name in (CONFIG, WEIGHTS):
                shutil.copy(resume / name, folder / name)
            shutil.rmtree(made)

        return fill

    async def hinted(self) -> list[Sample]:
        """The newest samples that the good version learned from."""
        rows = await self.parts.store.rows(limit=50, state=State.TRAINED)
        return (await self.parts.store.effects.samples([row.turn.id for row in rows]))[:BATCH]

    async def turned_around(self) -> list[Sample]:
        """Good replies, with the opposite of what their user wants as the hint."""
        rows = await self.parts.store.rows(limit=200)
        liked = [row.turn for row in rows if row.verdict is not None and row.verdict.score == 1][:BATCH]
        return [
            Sample(
                turn=turn.id,
                session=turn.session,
                user=turn.user,
                prompt=turn.prompt.tokens,
                response=turn.completion.tokens,
                logp=turn.completion.logp,
                mask=(True,) * len(turn.completion.tokens),
                version=turn.completion.version,
                score=-1.0,
                hints=(HintPrompt(OPPOSITE, self.parts.renderer.hinted(turn, Hint(OPPOSITE)).tokens),),
            )
            for turn in liked
        ]


def noise(size: float) -> Change:
    """All weights random."""

    def change(weights: dict[str, Tensor]) -> None:
        source = torch.Generator().manual_seed(0)
        for name, tensor in weights.items():
            weights[name] = size * torch.randn(tensor.shape, generator=source)

    return change


def shaken(size: float) -> Change:
    """Random numbers added to all weights, always in the same direction."""

    def change(weights: dict[str, Tensor]) -> None:
        source = torch.Generator().manual_seed(1)
        for name, tensor in weights.items():
            weights[name] = tensor + size * torch.randn(tensor.shape, generator=source)

    return change


def faded(share: float) -> Change:
    """What was learned, down to a share of it."""

    def change(weights: dict[str, Tensor]) -> None:
        for name, tensor in weights.items():
            if "lora_B" in name:
                weights[name] = share * tensor

    return change


def not_finite(weights: dict[str, Tensor]) -> None:
    """One weight is no number."""
    name = next(iter(weights))
    weights[name].view(-1)[0] = float("nan")


def untouched(weights: dict[str, Tensor]) -> None:
    """The weights stay as they are; their file is damaged afterwards."""


def truncate(folder: Path) -> None:
    """The weights lose their end."""
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])


def flip(folder: Path) -> None:
    """One bit in the middle of the weights is another."""
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[len(data) // 2] ^= 0x40
    (folder / WEIGHTS).write_bytes(bytes(data))


def random_hints(samples: Sequence[Sample], vocabulary: int) -> list[Sample]:
    """The samples with random tokens in place of what the hints said."""
    source = random.Random(0)
    return [
        replace(
            sample,
            score=-1.0,
            hints=(HintPrompt("noise", tuple(source.randrange(vocabulary) for _ in sample.hints[0].tokens)),),
        )
        for sample in samples
        if sample.hints
    ]
