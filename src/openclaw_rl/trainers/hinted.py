"""What a step reads before its first update: the base model without hints, and the teacher given each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from openclaw_rl.algo.hint_choice import HintGranularity, chosen_hint
from openclaw_rl.algo.method import HintSelection
from openclaw_rl.trainers.batch import read_once, token_logp, top_ids
from openclaw_rl.trainers.full import FullModel
from openclaw_rl.trainers.lessons import Lesson
from openclaw_rl.trainers.model import CausalModel, Speaker
from openclaw_rl.trainers.ranks import ALONE
from openclaw_rl.trainers.settings import TrainerSettings


class TeacherReader:
    """Reads what does not change within a step. `teacher` is a model of its own, where the teacher is one."""

    def __init__(self, model: CausalModel | FullModel, settings: TrainerSettings, teacher: Speaker | None) -> None:
        self._model, self._settings, self._teacher = model, settings, teacher

    @property
    def head(self) -> Speaker:
        """Whose head the teacher's hidden states are read with."""
        return self._teacher or self._model.teacher

    def read(
        self,
        taught: Sequence[Lesson],
        ids: Sequence[Tensor],
        *,
        ema: Mapping[str, Tensor],
        heard: Callable[[int], None],
    ) -> tuple[Sequence[Tensor | None], list[Tensor | None]]:
        """Of each lesson the base's log-probabilities without a hint, [n], and the teacher's hidden states, [n, H].

        The former are None where there is no anchor, the latter without a hint. `ema` are the teacher's weights where
        it is a moving average, else empty.
        """
        reference, behind = self._fixed(taught, ids, ema, heard)
        return reference, self._chosen(taught, ids, behind)

    def _fixed(
        self, taught: Sequence[Lesson], ids: Sequence[Tensor], ema: Mapping[str, Tensor], heard: Callable[[int], None]
    ) -> tuple[Sequence[Tensor | None], list[list[Tensor]]]:
        """The base's log-probabilities without a hint, for the anchor, and the teacher's hidden states given each hint.

        Where the base is the teacher, both are read at once: they share all that stands in front of the hints.
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
        """Of several hints the one that objects most to a corrected reply, or that student and teacher agree on most.

        The judge's tries may say opposite things of one correction. The hint that the reply follows already is not what
        it was corrected for, and a teacher behind it would confirm the reply; see `algo.hint_choice.chosen_hint`.
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
        """Of a teacher's hidden states behind several hints those that make the reply least likely; first of equals."""
        speaker = self.head
        told = [token_logp(speaker, rows, ids, self._settings.logits_per_chunk).sum() for rows in behind]
        return behind[int(torch.stack(told).argmin())]
