"""What attends to what in a pass over trees of sequences: calls of attention, each over some queries and keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from openclaw_rl.trainers.forest import Bank, Flags, Forest, Ids, SequenceTail

MASK_PLACES = 1 << 26  # of one call: 64 MB
TOGETHER = 512  # tokens of neighbouring branches that one call of the separate form may compare with each other


@dataclass(frozen=True, slots=True)
class SpanCall:
    """Queries `first` to `last`, and the runs of keys that some of them see; the last one ends with the queries."""

    first: int
    last: int
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SeenKeys:
    """Which keys of a span the queries of a call see: all, each those up to its own place, or those of the mask."""

    is_causal: bool = False
    mask: Tensor | None = None  # [1, 1, q, k]: 0 where a key is seen, or minus infinity
    blind: Tensor | None = None  # [q]: which queries see none of them; None if each sees some

    @property
    def is_all(self) -> bool:
        """Whether each query sees every key."""
        return not self.is_causal and self.mask is None


@dataclass(slots=True)
class AttentionPlan:
    """What attends to what in one pass. Keys are those of the bank, if there is one, and then the pass's own."""

    positions: Ids  # of the queries, [Q]
    key_positions: Ids  # [K]
    owners: Ids  # node of each query, [Q]
    key_owners: Ids  # [K]
    ancestors: Flags  # [nodes of queries, nodes of keys]
    calls: list[SpanCall]
    is_separate: bool  # whether the spans of a call are computed separately
    bank: Bank | None = None
    kept: dict[int, tuple[Tensor, Tensor]] | None = None  # where keys and values are stored
    masks: dict[tuple[int, int | None], Tensor | None] = field(default_factory=dict)
    sights: dict[tuple[int, int, int | None], SeenKeys | None] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """The number of the bank's keys."""
        return len(self.key_positions) - len(self.positions)

    def held_by(self, layer: int) -> tuple[Tensor, Tensor] | None:
        """The bank's keys and values in a layer, [1, key heads, T, d] each; None if there are none."""
        return self.bank.layers[layer] if self.bank is not None and self.held else None

    def mask(self, number: int, window: int | None, device: torch.device) -> Tensor | None:
        """Which keys each query of a call sees, [1, 1, q, k]; None if each sees all before it and itself."""
        if (number, window) not in self.masks:
            call = self.calls[number]
            if self._is_row(call, call.spans, window):
                self.masks[number, window] = None
            else:
                parts = [self._seen(call, span, window) for span in call.spans]
                self.masks[number, window] = torch.from_numpy(np.concatenate(parts, 1)).to(device)[None, None]
        return self.masks[number, window]

    def sight(self, number: int, part: int, window: int | None) -> SeenKeys | None:
        """What the queries of a call see of its span `part`, on a CPU; None if that is nothing."""
        if (number, part, window) not in self.sights:
            call = self.calls[number]
            if self._is_row(call, call.spans[part : part + 1], window):
                self.sights[number, part, window] = SeenKeys(is_causal=True)
            elif self._sees_all(call, call.spans[part], window):
                self.sights[number, part, window] = SeenKeys()
            else:
                self.sights[number, part, window] = _sight(self._seen(call, call.spans[part], window))
        return self.sights[number, part, window]

    def _sees_all(self, call: SpanCall, span: tuple[int, int], window: int | None) -> bool:
        """Whether each query sees every key of a span, node by node: a long prompt is not compared token by token."""
        at, key_at = self.positions[call.first : call.last], self.key_positions[slice(*span)]
        nodes, key_nodes = np.unique(self.owners[call.first : call.last]), np.unique(self.key_owners[slice(*span)])
        is_earlier = key_at.max() <= at.min() and (window is None or key_at.min() > at.max() - window)
        return bool(is_earlier and self.ancestors[np.ix_(nodes, key_nodes)].all())

    def _is_row(self, call: SpanCall, spans: Sequence[tuple[int, int]], window: int | None) -> bool:
        """Whether queries and keys are the same tokens of one node, and a window is no shorter than they are."""
        same = list(spans) == [(self.held + call.first, self.held + call.last)]
        is_short = window is None or call.last - call.first <= window
        return same and is_short and bool((self.owners[call.first : call.last] == self.owners[call.first]).all())

    def _seen(self, call: SpanCall, span: tuple[int, int], window: int | None) -> Flags:
        at, key_at = self.positions[call.first : call.last, None], self.key_positions[None, slice(*span)]
        seen = self.ancestors[self.owners[call.first : call.last]][:, self.key_owners[slice(*span)]] & (key_at <= at)
        return seen & (key_at > at - window) if window is not None else seen


def _sight(seen: Flags) -> SeenKeys | None:
    if seen.all() or not seen.any():
        return SeenKeys() if seen.all() else None
    mask = torch.zeros(seen.shape).masked_fill_(torch.from_numpy(~seen), -torch.inf)
    is_blind = ~seen.any(1)
    return SeenKeys(mask=mask[None, None], blind=torch.from_numpy(is_blind) if is_blind.any() else None)


def plan_of(forest: Forest, *, is_separate: bool) -> AttentionPlan:
    """A plan of whole trees."""
    calls = list(_branches_of(forest)) if is_separate else _rows_of(forest)
    positions, owners = forest.positions, forest.owners
    return AttentionPlan(positions, positions, owners, owners, forest.ancestors, calls, is_separate)


def _rows_of(forest: Forest) -> list[SpanCall]:
    """Each tree's first node, and then its descendants, some rows at a time."""
    calls: list[SpanCall] = []
    for begin, stem, end in forest.trees:
        calls.append(SpanCall(begin, stem, ((begin, stem),)))
        first = stem
        while first < end:
            last = min(end, first + max(1, MASK_PLACES // (end - begin)))
            calls.append(SpanCall(first, last, ((begin, last),)))
            first = last
    return calls


def _branches_of(forest: Forest) -> Iterator[SpanCall]:
    """Each large node behind its ancestors, and neighbours whose subtrees are small together."""
    nodes, ends = forest.nodes, forest.ends
    index = 0
    while index < len(nodes):
        node, last = nodes[index], index + 1
        first = node.offset
        if ends[index] - first > TOGETHER:
            stop = first + node.size
        else:
            stop, last = ends[index], _after(forest, index)
            while last < len(nodes) and nodes[last].parent == node.parent >= 0 and ends[last] - first <= TOGETHER:
                stop, last = ends[last], _after(forest, last)
        yield SpanCall(first, stop, (*_joined(forest, _above(forest, node.parent)), (first, stop)))
        index = last


def _after(forest: Forest, index: int) -> int:
    """The first node behind the subtree of a node."""
    last = index + 1
    while last < len(forest.nodes) and forest.nodes[last].offset < forest.ends[index]:
        last += 1
    return last


def _above(forest: Forest, index: int) -> list[int]:
    """A node and its ancestors, the first of the tree first; none for -1."""
    found: list[int] = []
    while index >= 0:
        found.insert(0, index)
        index = forest.nodes[index].parent
    return found


def _joined(forest: Forest, nodes: Sequence[int]) -> list[tuple[int, int]]:
    """The places of these nodes, in order, in as few runs as possible."""
    found: list[tuple[int, int]] = []
    for index in nodes:
        since, until = forest.nodes[index].offset, forest.nodes[index].offset + forest.nodes[index].size
        if found and found[-1][1] == since:
            since, _ = found.pop()
        found.append((since, until))
    return found


def plan_behind(bank: Bank, twigs: Sequence[SequenceTail], *, is_separate: bool) -> AttentionPlan:
    """A plan of separate sequences that continue a bank's; of the bank they read only the nodes on their paths."""
    forest = bank.forest
    before, count = len(forest.tokens), len(forest.nodes)
    sizes = [len(twig.tokens) for twig in twigs]
    positions = np.concatenate([np.arange(twig.start, twig.start + len(twig.tokens)) for twig in twigs])
    owners = np.repeat(np.arange(len(twigs)), sizes)
    ancestors = np.zeros((len(twigs), count + len(twigs)), dtype=np.bool_)
    for index, twig in enumerate(twigs):
        ancestors[index, [*twig.path, count + index]] = True
    keys = np.concatenate([forest.positions, positions]) if before else positions
    key_owners = np.concatenate([forest.owners, owners + count]) if before else owners + count
    calls = list(_twigs_alike(forest, twigs) if is_separate else _twigs_together(forest, twigs))
    return AttentionPlan(positions, keys, owners, key_owners, ancestors, calls, is_separate, bank=bank)


def _twigs_together(forest: Forest, twigs: Sequence[SequenceTail]) -> Iterator[SpanCall]:
    """All of them behind all that any of them reads, some rows at a time."""
    before, size = len(forest.tokens), sum(len(twig.tokens) for twig in twigs)
    spans = _joined(forest, sorted({index for twig in twigs for index in twig.path}))
    read = sum(until - since for since, until in spans)
    for first in range(0, size, rows := max(1, MASK_PLACES // (read + size))):
        last = min(size, first + rows)
        yield SpanCall(first, last, (*spans, (before, before + last)))


def _twigs_alike(forest: Forest, twigs: Sequence[SequenceTail]) -> Iterator[SpanCall]:
    """Neighbours that continue the same path, as many as are small together."""
    before, first, last = len(forest.tokens), 0, 0
    for index, twig in enumerate(twigs):
        last += len(twig.tokens)
        further = twigs[index + 1] if index + 1 < len(twigs) else None
        if further and further.path == twig.path and last + len(further.tokens) - first <= TOGETHER:
            continue
        yield SpanCall(first, last, (*_joined(forest, twig.path), (before + first, before + last)))
        first = last
