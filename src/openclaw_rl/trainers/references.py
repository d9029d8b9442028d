"""What a step reads before its first update: the base model, the teacher given each hint, and the sampling policy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from openclaw_rl.algo.hint_choice import HintGranularity, chosen_hint
from openclaw_rl.algo.method import HintSelection, SelectedTokens
from openclaw_rl.algo.methods.hybrid import Subset, members
from openclaw_rl.core.manifest import version_folder
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import AdapterError
from openclaw_rl.trainers import checkpoint
from openclaw_rl.trainers.batch import chunks, read_once, token_logp, top_ids
from openclaw_rl.trainers.full import FullModel
from openclaw_rl.trainers.lessons import Lesson
from openclaw_rl.trainers.model import CausalModel, Speaker
from openclaw_rl.trainers.ranks import ALONE
from openclaw_rl.trainers.settings import TrainerSettings

log = logging.getLogger(__name__)


class TeacherReader:
    """Reads what does not change within a step. `teacher` is the teacher if that is a separate model, else None."""

    def __init__(self, model: CausalModel | FullModel, settings: TrainerSettings, teacher: Speaker | None) -> None:
        self._model, self._settings, self._teacher = model, settings, teacher

    @property
    def head(self) -> Speaker:
        """The model whose head turns the teacher's hidden states into logits."""
        return self._teacher or self._model.teacher

    def read(
        self,
        taught: Sequence[Lesson],
        ids: Sequence[Tensor],
        *,
        ema: Mapping[str, Tensor],
        heard: Callable[[int], None],
    ) -> tuple[Sequence[Tensor | None], list[Tensor | None]]:
        """For each lesson the base's log-probabilities without a hint, [n], and the teacher's hidden states, [n, H].

        The former are None without an anchor, the latter without a hint. `ema` are the teacher's weights if it is a
        moving average, else empty.
        """
        reference, behind = self._fixed(taught, ids, ema, heard)
        return reference, self._chosen(taught, ids, behind)

    def _fixed(
        self, taught: Sequence[Lesson], ids: Sequence[Tensor], ema: Mapping[str, Tensor], heard: Callable[[int], None]
    ) -> tuple[Sequence[Tensor | None], list[list[Tensor]]]:
        """The base's log-probabilities without a hint, for the anchor, and the teacher's hidden states given each hint.

        If the base is the teacher, both are read at once: they share everything before the hints.
        """
        pairs = [(index, hint) for index, one in enumerate(taught) for hint in one.hints]
        hinted = [taught[index].reading(hint.tokens) for index, hint in pairs]
        plain = [one.reading() for one in taught] if self._settings.method.kl_beta > 0 else []
        at_once, budget = self._settings.logits_per_chunk, self._settings.max_tokens_per_pass
        is_base = self._teacher is None and not ema
        reference: Sequence[Tensor | None] = [None] * len(taught)
        hidden: list[Tensor] = []
        together = self._model.shared_by or ALONE
        has_hints = together.any(bool(hinted))
        if self._settings.method.kl_beta > 0 or (is_base and has_hints):
            with self._model.base() as base:
                found = read_once(base, [*plain, *(hinted if is_base else [])], budget, heard)
                bare, hidden = found[: len(plain)], found[len(plain) :]
                if plain:
                    reference = [token_logp(base, rows, own, at_once) for rows, own in zip(bare, ids, strict=True)]
        if has_hints and not is_base:
            with self._teaching(ema) as teacher:
                hidden = read_once(teacher, hinted, budget, heard)
        behind: list[list[Tensor]] = [[] for _ in taught]
        for (index, _), rows in zip(pairs, hidden, strict=True):
            behind[index].append(rows)
        return reference, behind

    @contextmanager
    def _teaching(self, ema: Mapping[str, Tensor]) -> Iterator[Speaker]:
        if self._teacher is not None:
            yield self._teacher
        elif ema:
            with self._model.speaking_as(ema):
                yield self._model
        else:
            with self._model.base() as base:
                yield base

    def _chosen(
        self, taught: Sequence[Lesson], ids: Sequence[Tensor], behind: Sequence[Sequence[Tensor]]
    ) -> list[Tensor | None]:
        """Of several hints the one that objects most to a corrected reply, or on which student and teacher agree most.

        The judge's votes may contain opposite hints for one correction. A hint that the reply follows already is not
        the reason for the correction, and a teacher given it would confirm the reply; see
        `algo.hint_choice.chosen_hint`.
        """
        found = [rows[0] if rows else None for rows in behind]
        by = self._settings.method.selection
        agreeing: list[int] = []
        for index, rows in enumerate(behind):
            if len(rows) > 1 and by is HintSelection.CONTRARY and taught[index].is_corrected:
                found[index] = self._most_contrary(rows, ids[index])
            elif len(rows) > 1:
                agreeing.append(index)
        if not (self._model.shared_by or ALONE).any(bool(agreeing)):
            return found
        k, at_once = self._settings.method.compared, self._settings.logits_per_chunk
        own = [taught[index].reading() for index in agreeing]
        students = read_once(self._model, own, self._settings.max_tokens_per_pass)
        for index, student in zip(agreeing, students, strict=True):
            teacher_top = torch.stack([top_ids(self.head, rows, k, at_once) for rows in behind[index]])
            choice = chosen_hint(
                top_ids(self._model, student, k, at_once),
                teacher_top,
                by=HintGranularity.TOKEN if by is HintSelection.TOKEN else HintGranularity.SEQUENCE,
            )
            found[index] = torch.stack(list(behind[index]))[choice, torch.arange(len(choice), device=choice.device)]
        return found

    def _most_contrary(self, behind: Sequence[Tensor], ids: Tensor) -> Tensor:
        """Of a teacher's hidden states given several hints those that make the reply least likely; first of equals."""
        speaker = self.head
        totals = [token_logp(speaker, rows, ids, self._settings.logits_per_chunk).sum() for rows in behind]
        return behind[int(torch.stack(totals).argmin())]


class SamplingPolicies:
    """The selected form's tokens, and their probabilities under the version that sampled the reply.

        w_v = softmax of log pi_old(v),  A_v = clip(log pi_T(v) - log pi_old(v)) * w_v,  ratio pi(v) / pi_old(v)

    pi_old is the version that sampled. The engine recorded only the sampled token, so that version is read again: the
    base model is always available, any other if its folder is still next to the one that the step starts from.

    `missing` counts lessons whose version was not available in the last step.

    Those have no importance weights: the version that the step starts from replaces it, and their ratios begin at 1.
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
        """The tokens of each lesson in the selected form; None for other forms, and if the policy itself is enough.

        It is if the step has one update (`is_once`) and either starts from the version that sampled (`is_own`) or that
        version is not available. `teachers` are hidden states, [n, H], and `beside` a version's folder.
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
        together = self._model.shared_by or ALONE  # each rank reads every version that one of them needs
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
        """The compared ids of each lesson and which of them count, by the policy that the step starts from."""
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
        """The model of a version; for None the policy as it is. Yields None if the version is not available."""
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
        """A version's weights, including those it is based on; a LoRA's B is on the scale of the trained ones."""
        if isinstance(self._model, FullModel):
            shapes = {name: tuple(one.shape) for name, one in self._model.named()}
            return dict(checkpoint.read(folder, shapes).weights)
        scale = self._settings.alpha / self._settings.rank
        weights = dict(checkpoint.read_under(folder, scale=scale).weights)
        if weights.keys() != {name for name, _ in self._model.named()}:
            raise AdapterError(f"the adapter in {folder} adapts other layers than are trained")
        return weights
