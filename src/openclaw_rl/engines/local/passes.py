"""The pass of a step: rows and pieces of prompts in, logits out, each row's from the model of its version."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from openclaw_rl.engines.local.adapters import Adapters
from openclaw_rl.engines.local.attention import RowPiece, plan
from openclaw_rl.engines.local.cache import Cache
from openclaw_rl.engines.local.copies import FullCopies
from openclaw_rl.engines.local.graphs import DecodeGraphs
from openclaw_rl.engines.local.model import ServedModel
from openclaw_rl.engines.local.rows import Row


@dataclass(slots=True)
class PromptPiece:
    """One row's piece of prompt in this pass."""

    row: Row
    piece: RowPiece


class Passes:
    """Runs the models of the engine."""

    def __init__(
        self,
        served: ServedModel,
        cache: Cache,
        adapters: Adapters,
        copies: FullCopies,
        *,
        graphs: DecodeGraphs | None,
    ) -> None:
        self._served = served
        self._cache = cache
        self._adapters = adapters
        self._copies = copies
        self._graphs = graphs

    def logits(self, rows: list[Row], readings: list[PromptPiece], kept: list[int]) -> Tensor:
        """Logits [kept, V] of one token of each row, then of the pieces; valid until the next call.

        Afterwards these tokens count as stored. One pass for each model that has rows; `kept` are places among all
        tokens, those of the rows first.
        """
        models = {id(model): model for row in (*rows, *(each.row for each in readings)) for model in [self._model(row)]}
        if len(models) == 1:
            return self._pass(next(iter(models.values())), rows, readings, kept)
        spans = _spans(rows, readings)
        logits: Tensor | None = None
        for model in models.values():
            own_rows = [row for row in rows if self._model(row) is model]
            own_readings = [each for each in readings if self._model(each.row) is model]
            flat: list[int] = []  # the places of this model's tokens among all
            for row in (*own_rows, *(each.row for each in own_readings)):
                flat.extend(spans[row.id])
            place = {at: own for own, at in enumerate(flat)}
            entries = [entry for entry, at in enumerate(kept) if at in place]
            found = self._pass(model, own_rows, own_readings, [place[kept[entry]] for entry in entries])
            if logits is None:
                logits = found.new_empty(len(kept), found.shape[1])
            logits[entries] = found
        assert logits is not None
        return logits

    def _model(self, row: Row) -> ServedModel:
        return self._copies.model_of(row.version) or self._served

    def _pass(self, model: ServedModel, rows: list[Row], readings: list[PromptPiece], kept: list[int]) -> Tensor:
        logits = None
        if self._graphs is not None and model is self._served and not readings:
            logits = self._graphs.logits(rows)
        if logits is None:
            logits = self._computed(model, rows, readings, kept)
        for row in rows:
            row.stored += 1
        for reading in readings:
            reading.row.stored = reading.piece.stop
        return logits

    def _computed(self, model: ServedModel, rows: list[Row], readings: list[PromptPiece], kept: list[int]) -> Tensor:
        device = self._served.device
        tokens = [row.tokens[row.stored] for row in rows]
        spots = [row.stored for row in rows]
        for reading in readings:
            tokens.extend(reading.row.tokens[reading.piece.start : reading.piece.stop])
            spots.extend(range(reading.piece.start, reading.piece.stop))
        table = torch.tensor([tokens, spots], dtype=torch.long).to(device)
        keep = torch.tensor(kept, dtype=torch.long).to(device)
        now = plan(
            self._cache,
            [(row.place, row.stored) for row in rows],
            [reading.piece for reading in readings],
            self._served.dtype,
        )
        counts = [1] * len(rows) + [reading.piece.stop - reading.piece.start for reading in readings]
        slots = [row.slot for row in rows] + [reading.row.slot for reading in readings]
        self._adapters.choose(slots, counts, keep)
        return model.logits(table[0], table[1], keep, now)


def _spans(rows: list[Row], readings: list[PromptPiece]) -> dict[int, range]:
    """The places of each row's tokens in the pass."""
    spans = {row.id: range(at, at + 1) for at, row in enumerate(rows)}
    at = len(rows)
    for reading in readings:
        count = reading.piece.stop - reading.piece.start
        spans[reading.row.id] = range(at, at + count)
        at += count
    return spans
