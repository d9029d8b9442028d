"""The selected form's tokens, and what the version that sampled a reply gave each of them.

    w_v = softmax of log pi_old(v),  A_v = clip(log pi_T(v) - log pi_old(v)) * w_v,  ratio pi(v) / pi_old(v)

pi_old is the version that sampled. What the engine recorded holds the sampled token alone, so that version is read
again: the base model is always at hand, any other where its folder still lies beside the one the step starts from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from openclaw_rl.algo.method import SelectedTokens
from openclaw_rl.algo.methods.hybrid import Subset, members
from openclaw_rl.core.manifest import version_folder
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import AdapterError
from openclaw_rl.trainers import checkpoint
from openclaw_rl.trainers.batch import chunks, read_once, top_ids
from openclaw_rl.trainers.full import FullModel
from openclaw_rl.trainers.lessons import Lesson
from openclaw_rl.trainers.model import CausalModel, Speaker
from openclaw_rl.trainers.ranks import ALONE
from openclaw_rl.trainers.settings import TrainerSettings

log = logging.getLogger(__name__)


class SamplingPolicies:
    """Reads the versions that sampled. `missing` counts lessons whose version could not be had in the last step.

    Those have no importance weights: what the step starts from stands in for it, and their ratios begin at 1.
    """

    def __init__(self, model: CausalModel | FullModel, settings: TrainerSettings, teacher: Speaker) -> None:
        self._model, self._settings, self._teacher = model, settings, teacher
        self.missing = 0

    def selected(
        self,
        taught: Sequence[Lesson],
        teachers: Sequence[Tensor | None],
        *,
        is_own: Callable[[Sample], bool],
        beside: Path | None,
        is_once: bool,
    ) -> list[SelectedTokens | None]:
        """Of each lesson in the selected form; None for any other, and where the policy at its first update tells.

        That is so where the step has one update (`is_once`) and starts from the version that sampled (`is_own`), or has
        to do without that version. `teachers` are hidden states, [n, H], and `beside` a version's folder.
        """
        self.missing = 0
        method, found = self._settings.method, list[SelectedTokens | None]([None] * len(taught))
        if not method.form.reads_sampler or not method.weights.distill:
            return found
        by_version: dict[PolicyVersion | None, list[int]] = {}
        for index, one in enumerate(taught):
            if teachers[index] is not None and not one.is_taught:
                version = None if is_own(one.sample) else one.sample.version
                by_version.setdefault(version, []).append(index)
        together = self._model.shared_by or ALONE  # each of them reads every version that one of them needs
        for version in dict.fromkeys(together.gathered(list(by_version))):
            places = by_version.get(version, [])
            if version is None and is_once:
                continue
            sets = self._compared(taught, teachers, places)
            with self._speaking_as(version, beside) as speaker:
                if speaker is None:
                    self.missing += len(places)
                    if is_once:
                        continue
                read = self._logp(speaker or self._model, [taught[place] for place in places], sets)
            for place, (ids, counts), logp_old in zip(places, sets, read, strict=True):
                found[place] = SelectedTokens(ids, counts, logp_old)
        return found

    def _compared(
        self, taught: Sequence[Lesson], teachers: Sequence[Tensor | None], places: Sequence[int]
    ) -> list[tuple[Tensor, Tensor]]:
        """The ids of each lesson and which count, as the policy is where the step starts."""
        method, at_once = self._settings.method, self._settings.logits_per_chunk
        readings = [taught[place].reading() for place in places]
        students = read_once(self._model, readings, self._settings.max_tokens_per_pass)
        found: list[tuple[Tensor, Tensor]] = []
        for place, student in zip(places, students, strict=True):
            teacher = teachers[place]
            assert teacher is not None
            tops = (
                top_ids(speaker, rows, method.compared, at_once)
                for speaker, rows in ((self._model, student), (self._teacher, teacher))
            )
            found.append(members(*tops, subset=Subset(method.subset)))
        return found

    def _logp(self, speaker: Speaker, taught: Sequence[Lesson], sets: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """log p of the compared ids, [n, K] for each lesson."""
        settings = self._settings
        hidden = read_once(speaker, [one.reading() for one in taught], settings.max_tokens_per_pass)
        found: list[Tensor] = []
        with torch.no_grad():
            for rows, (ids, _) in zip(hidden, sets, strict=True):
                parts = [
                    speaker.logits(rows[part]).log_softmax(-1).gather(-1, ids[part])
                    for part in chunks(len(rows), speaker, settings.logits_per_chunk)
                ]
                found.append(torch.cat(parts))
        return found

    @contextmanager
    def _speaking_as(self, version: PolicyVersion | None, beside: Path | None) -> Iterator[Speaker | None]:
        """A version; for None the policy as it is. Gives None where the version cannot be had."""
        if version is None:
            yield self._model
            return
        if version.is_base:
            with self._model.base() as base:
                yield base
            return
        try:
            if beside is None:
                raise AdapterError(f"the folder of version {version} is not known")
            weights = self._weights(beside.with_name(version_folder(Path(), version).name))
        except AdapterError as problem:
            log.warning("no importance weights for what version=%s sampled: %s", version, problem)
            yield None
            return
        with self._model.speaking_through(weights):
            yield self._model

    def _weights(self, folder: Path) -> dict[str, Tensor]:
        """A version's weights, whatever it stands on joined in; a LoRA's B on the scale of those that train."""
        if isinstance(self._model, FullModel):
            shapes = {name: tuple(one.shape) for name, one in self._model.named()}
            return dict(checkpoint.read(folder, shapes).weights)
        scale = self._settings.alpha / self._settings.rank
        weights = dict(checkpoint.read_under(folder, scale=scale).weights)
        if weights.keys() != {name for name, _ in self._model.named()}:
            raise AdapterError(f"the adapter in {folder} adapts other layers than are trained")
        return weights
