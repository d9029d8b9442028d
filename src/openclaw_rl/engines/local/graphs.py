"""Decode steps as CUDA graphs: the kernels of a pass are recorded once and then launched by a single call.

At 4 billion weights a decode step is some 900 kernels, and launching them from Python takes longer than they run. A
graph repeats the same kernels on the same memory, so whatever changes from step to step lies on the device: ids,
positions, places in the cache, adapters' slots. Steps with pieces of prompts are not recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from openclaw_rl.engines.local.adapters import BASE_SLOT, Adapters
from openclaw_rl.engines.local.attention import plan_of_rows
from openclaw_rl.engines.local.cache import Cache
from openclaw_rl.engines.local.model import SLACK, ServedModel
from openclaw_rl.engines.local.rows import Row

log = logging.getLogger(__name__)

WORTH_RECORDING = 4  # steps of one shape: recording costs about as much as one
MOST_GRAPHS = 64
EXACT_UP_TO = 4  # rows; beyond that the width is rounded up to a multiple of 4, and the last row is computed again
FIELDS = 5  # ids, slots, where blocks begin, how large they are, positions


class Recorder(Protocol):
    """Makes work repeatable."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """What repeats the kernels of `work` on the same memory. Raises RuntimeError if they cannot be recorded."""


class CudaRecorder:
    """Records CUDA graphs, all in one pool of memory: they run one after another."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        number = torch.zeros(1, device=device)

        def nothing() -> None:
            number.zero_()

        self._keeper = self.record(nothing)  # a pool ends with its last graph

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Runs nothing: kernels are recorded where they would be launched."""
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            # another thread may copy a version's weights meanwhile, which is no part of the graph
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        current.wait_stream(self._stream)
        return graph.replay


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a graph is recorded for: its rows, and the adapters' slots that it reads."""

    width: int
    first: int
    last: int  # as `first` if no adapter is read
    is_mixed: bool  # whether rows differ in their slots


class DecodeGraphs:
    """The graphs of one model, by shape; recorded when a shape has been met a few times."""

    def __init__(self, served: ServedModel, cache: Cache, adapters: Adapters, recorder: Recorder, *, most: int) -> None:
        self._served = served
        self._cache = cache
        self._adapters = adapters
        self._recorder = recorder
        self._most = most
        with torch.inference_mode():
            self._inputs = torch.zeros(FIELDS * most, dtype=torch.long, device=served.device)
            self._kept = torch.arange(most, device=served.device)
            self._logits = torch.empty(most, served.vocab_size, dtype=served.dtype, device=served.device)
        self._replays: dict[_Shape, Callable[[], None]] = {}
        self._met: dict[_Shape, int] = {}
        self._made_for = 0
        self.is_off = False

    def logits(self, rows: list[Row]) -> Tensor | None:
        """Logits [rows, V] of one token of each row, valid until the next call; None if there is no graph yet."""
        if self.is_off:
            return None
        if self._made_for != self._adapters.layout:  # the adapters' memory was replaced
            self._replays.clear()
            self._made_for = self._adapters.layout
        shape = self._shape(rows)
        replay = self._replays.pop(shape, None)
        if replay is not None:
            self._replays[shape] = replay  # the last used is the last to go
            self._enter(rows, shape.width)
            replay()
            return self._logits[: len(rows)]
        self._met[shape] = self._met.get(shape, 0) + 1
        if self._met[shape] < WORTH_RECORDING:
            return None
        self._met.pop(shape)
        self._enter(rows, shape.width)
        return self._recorded(shape)[: len(rows)]

    def _shape(self, rows: list[Row]) -> _Shape:
        count = len(rows)
        width = count if count <= EXACT_UP_TO else min(-(-count // 4) * 4, self._most)
        slots = {row.slot for row in rows}
        live = slots - {BASE_SLOT}
        if not live:
            return _Shape(width, 0, 0, is_mixed=False)
        return _Shape(width, min(live), max(live) + 1, is_mixed=len(slots) > 1)

    def _enter(self, rows: list[Row], width: int) -> None:
        """Puts what the graph reads where it reads it. The last row fills up: its keys are written twice alike."""
        filled = rows + rows[-1:] * (width - len(rows))
        table = [
            [row.tokens[row.stored] for row in filled],
            [row.slot for row in filled],
            [row.place.base for row in filled],
            [row.place.size for row in filled],
            [row.stored for row in filled],
        ]
        self._inputs[: FIELDS * width].copy_(torch.tensor(table, dtype=torch.long).flatten())

    def _recorded(self, shape: _Shape) -> Tensor:
        """Logits [width, V], computed without a graph; the next steps of this shape have one."""
        logits = self._compute(shape)

        def work() -> None:
            self._logits[: shape.width].copy_(self._compute(shape))

        try:
            replay = self._recorder.record(work)
            replay()
            off_by = float((self._logits[: shape.width] - logits).abs().mean())
        except RuntimeError as error:
            self._give_up(f"{shape} cannot be recorded: {error}")
            return logits
        if not off_by <= SLACK[self._served.dtype] / 10 * float(logits.float().std()):
            self._give_up(f"{shape} computes other logits than without a graph, off by {off_by:.3g}")
            return logits
        while len(self._replays) >= MOST_GRAPHS:
            self._replays.pop(next(iter(self._replays)))
        self._replays[shape] = replay
        return logits

    def _give_up(self, why: str) -> None:
        self.is_off = True
        self._replays.clear()
        log.warning("decode steps run without CUDA graphs from here on: %s", why)

    def _compute(self, shape: _Shape) -> Tensor:
        width = shape.width
        table = self._inputs[: FIELDS * width].view(FIELDS, width)
        now = plan_of_rows(self._cache, table[2:], self._served.dtype)
        self._adapters.choose_on_device(table[1], shape.first, shape.last, is_mixed=shape.is_mixed)
        return self._served.logits(table[0], table[4], self._kept[:width], now)
