"""Sequences as trees of their common prefixes, in one flat run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]
PREFIXES = 2


@dataclass(frozen=True, slots=True)
class Node:
    """A run of tokens that the same sequences share: the first `offset` of the flat run, at position `start`."""

    offset: int
    start: int
    size: int
    parent: int  # index of the node before it, -1 for the first of a tree


@dataclass(frozen=True)
class Forest:
    """Sequences as trees of their common prefixes: each distinct token appears once, however many sequences share it.

    Replies to one prompt, turns of one session and corrections of one agent share thousands of tokens. In one flat run,
    a token attends only to those before it on its own path, and has the position it has in its sequence.

    The trees follow one another. `paths` are the nodes of each sequence, from its first token to its last.
    """

    tokens: Ids  # [T]
    nodes: tuple[Node, ...]  # depth first: a node follows its parent, and its subtree precedes the parent's next child
    paths: tuple[tuple[int, ...], ...]

    @cached_property
    def positions(self) -> Ids:
        """The position of each token in its sequences, [T]."""
        return np.concatenate([np.arange(node.start, node.start + node.size) for node in self.nodes])

    @cached_property
    def owners(self) -> Ids:
        """The node of each token, [T]."""
        return np.repeat(np.arange(len(self.nodes)), [node.size for node in self.nodes])

    @cached_property
    def ancestors(self) -> Flags:
        """Whether the second node is the first one or an ancestor of it, [N, N]."""
        found = np.eye(len(self.nodes), dtype=np.bool_)
        for index, node in enumerate(self.nodes):
            if node.parent >= 0:
                found[index] |= found[node.parent]
        return found

    @cached_property
    def trees(self) -> tuple[tuple[int, int, int], ...]:
        """For each tree: where it begins in the flat run, where its first node ends, and where it ends."""
        firsts = [node for node in self.nodes if node.parent < 0]
        ends = [node.offset for node in firsts[1:]] + [len(self.tokens)]
        return tuple((node.offset, node.offset + node.size, end) for node, end in zip(firsts, ends, strict=True))

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """For each node, where its subtree ends in the flat run."""
        found = [node.offset + node.size for node in self.nodes]
        for index in reversed(range(len(self.nodes))):
            if (parent := self.nodes[index].parent) >= 0:
                found[parent] = max(found[parent], found[index])
        return tuple(found)

    def places(self, sequence: int) -> Ids:
        """The places of a sequence's tokens in the flat run."""
        held = [self.nodes[index] for index in self.paths[sequence]]
        return np.concatenate([np.arange(node.offset, node.offset + node.size) for node in held])


def planted(sequences: Sequence[Sequence[int]]) -> Forest:
    """The forest of these sequences, none of them empty."""
    arrays = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
    order = sorted(range(len(arrays)), key=lambda index: tuple(sequences[index]))
    nodes: list[Node] = []
    parts: list[Ids] = []
    paths: list[tuple[int, ...]] = [()] * len(arrays)
    size = 0
    # Sequences that agree up to a depth, the node they share and the path to it.
    waiting: list[tuple[list[int], int, int, tuple[int, ...]]] = [(order, 0, -1, ())] if order else []
    while waiting:
        group, depth, parent, path = waiting.pop()
        first, last = arrays[group[0]], arrays[group[-1]]  # sorted: what these two share, all share
        shared = depth + common(first[depth:], last[depth:])
        if shared > depth:
            nodes.append(Node(size, depth, shared - depth, parent))
            parts.append(first[depth:shared])
            size += shared - depth
            parent, path = len(nodes) - 1, (*path, len(nodes) - 1)
        rest = []
        for index in group:
            if len(arrays[index]) == shared:
                paths[index] = path
            else:
                rest.append(index)
        for branch in reversed(_branches(rest, arrays, shared)):
            waiting.append((branch, shared, parent, path))
    return Forest(np.concatenate(parts) if parts else np.zeros(0, np.int64), tuple(nodes), tuple(paths))


def common(first: Ids, second: Ids) -> int:
    """The length of the common prefix of two sequences."""
    size = min(len(first), len(second))
    differs = first[:size] != second[:size]
    at = int(differs.argmax()) if size else 0
    return at if size and bool(differs[at]) else size


def packed(sequences: Sequence[Sequence[int]], most: int) -> list[list[int]]:
    """Sequences that are read together, by index.

    Each group has at most `most` tokens besides its common prefix, or `PREFIXES` times that prefix, which each further
    group would read again. A single sequence may exceed that.
    """
    arrays = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
    groups: list[list[int]] = []
    before, root, held = -1, 0, 0
    for index in sorted(range(len(arrays)), key=lambda index: tuple(sequences[index])):
        own = arrays[index]
        shared = common(arrays[before], own) if groups else 0
        prefix = min(root, shared)
        if groups and held - prefix + len(own) - shared <= max(most, PREFIXES * prefix):
            groups[-1].append(index)
            root, held = prefix, held + len(own) - shared
        else:
            groups.append([index])
            root, held = len(own), len(own)
        before = index
    return groups


def _branches(group: Sequence[int], arrays: Sequence[Ids], depth: int) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for index in group:
        found.setdefault(int(arrays[index][depth]), []).append(index)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Bank:
    """Keys and values of a forest by layer, [1, heads, T, d] each, as they were when its tokens were read."""

    forest: Forest
    layers: dict[int, tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class SequenceTail:
    """The rest of a sequence after its constant part: tokens from position `start` on, after `path` of the bank."""

    tokens: tuple[int, ...]
    start: int
    path: tuple[int, ...]
