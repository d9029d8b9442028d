"""Sequences as trees, and a model that reads them: shared prefixes are computed once, forwards and backwards.

With constant prompts their keys and values are computed once, with the weights at that time, and later passes compute
only the rest of each sequence. A small trial when the model is opened shows whether its attention can do this; if not,
it reads sequences separately.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from openclaw_rl.trainers.recompute import Recompute

log = logging.getLogger(__name__)

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]
NAME = "openclaw_rl_trees"
PLAIN = "sdpa"
MASK_PLACES = 1 << 26  # of one call: 64 MB
TRIED = ((5, 6, 7, 8, 9), (5, 6, 7, 10), (5, 6, 7, 10, 8, 6), (9, 8))
CLOSE = 1e-3  # of the largest value, in float32; rounding in half precision is a hundred times coarser
CLOSE_HALF = 5e-2


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
    """Sequences that are read together, by index: in each group at most `most` tokens besides its common prefix.

    A single sequence may exceed that.
    """
    arrays = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
    groups: list[list[int]] = []
    before, root, held = -1, 0, 0
    for index in sorted(range(len(arrays)), key=lambda index: tuple(sequences[index])):
        own = arrays[index]
        shared = common(arrays[before], own) if groups else 0
        if groups and held - min(root, shared) + len(own) - shared <= most:
            groups[-1].append(index)
            root, held = min(root, shared), held + len(own) - shared
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


@dataclass(slots=True)
class AttentionPlan:
    """What attends to what in one pass: calls over rows `first` to `last` of the queries, and keys up to `until`.

    Keys begin at `since`. With a bank, its keys come first and then the pass's own.
    """

    positions: Ids  # of the queries, [Q]
    key_positions: Ids  # [K]
    owners: Ids  # node of each query, [Q]
    key_owners: Ids  # [K]
    ancestors: Flags  # [nodes of queries, nodes of keys]
    calls: list[tuple[int, int, int, int]]
    bank: Bank | None = None
    spans: list[slice] = field(default_factory=list)  # the parts of the bank that are read
    kept: dict[int, tuple[Tensor, Tensor]] | None = None  # where keys and values are stored
    masks: dict[tuple[int, int | None], Tensor | None] = field(default_factory=dict)

    def mask(self, call: int, window: int | None, device: torch.device) -> Tensor | None:
        """Which keys each query of a call sees, [1, 1, q, k]; None if each sees all before it and itself."""
        if (call, window) not in self.masks:
            first, last, since, until = self.calls[call]
            is_plain = first == since and last == until and bool((self.owners[first:last] == self.owners[first]).all())
            seen: Tensor | None = None
            if not is_plain or (window is not None and last - first > window) or self.bank is not None:
                at, key_at = self.positions[first:last, None], self.key_positions[None, since:until]
                held = self.ancestors[self.owners[first:last]][:, self.key_owners[since:until]] & (key_at <= at)
                if window is not None:
                    held &= key_at > at - window
                seen = torch.from_numpy(held).to(device)[None, None]
            self.masks[call, window] = seen
        return self.masks[call, window]


def plan_of(forest: Forest) -> AttentionPlan:
    """Each tree's first node separately, and then its descendants, some rows at a time."""
    calls: list[tuple[int, int, int, int]] = []
    for begin, stem, end in forest.trees:
        calls.append((begin, stem, begin, stem))
        first = stem
        while first < end:
            last = min(end, first + max(1, MASK_PLACES // (end - begin)))
            calls.append((first, last, begin, last))
            first = last
    positions, owners = forest.positions, forest.owners
    return AttentionPlan(positions, positions, owners, owners, forest.ancestors, calls)


@dataclass(frozen=True, slots=True)
class SequenceTail:
    """The rest of a sequence after its constant part: tokens from position `start` on, after `path` of the bank."""

    tokens: tuple[int, ...]
    start: int
    path: tuple[int, ...]


def plan_behind(bank: Bank, twigs: Sequence[SequenceTail]) -> AttentionPlan:
    """A plan of separate sequences that continue a bank's; of the bank they read only the nodes on their paths."""
    forest = bank.forest
    nodes = sorted({index for twig in twigs for index in twig.path})
    place = {index: number for number, index in enumerate(nodes)}
    spans = [
        range(forest.nodes[index].offset, forest.nodes[index].offset + forest.nodes[index].size) for index in nodes
    ]
    sizes = [len(twig.tokens) for twig in twigs]
    positions = np.concatenate([np.arange(twig.start, twig.start + len(twig.tokens)) for twig in twigs])
    owners = np.repeat(np.arange(len(twigs)), sizes)
    ancestors = np.zeros((len(twigs), len(nodes) + len(twigs)), dtype=np.bool_)
    for index, twig in enumerate(twigs):
        ancestors[index, [*(place[node] for node in twig.path), len(nodes) + index]] = True
    before, size = sum(map(len, spans)), len(positions)
    calls = []
    for first in range(0, size, rows := max(1, MASK_PLACES // (before + size))):
        last = min(size, first + rows)
        calls.append((first, last, 0, before + last))
    held = [forest.positions[span.start : span.stop] for span in spans]
    keys = np.concatenate([*held, positions])
    key_owners = np.concatenate([np.repeat(np.arange(len(nodes)), [len(span) for span in spans]), owners + len(nodes)])
    return AttentionPlan(positions, keys, owners, key_owners, ancestors, calls, bank=bank, spans=_joined(spans))


def _joined(spans: Sequence[range]) -> list[slice]:
    """The same tokens in as few slices as possible."""
    found: list[slice] = []
    for span in spans:
        if found and found[-1].stop == span.start:
            found[-1] = slice(found[-1].start, span.stop)
        else:
            found.append(slice(span.start, span.stop))
    return found


class Trees:
    """Reads forests with the layers of one model."""

    def __init__(self, model: PreTrainedModel, recompute: Recompute | None = None) -> None:
        self._model = model
        self._trunk: nn.Module = model.base_model
        self._recompute = recompute

    @classmethod
    def of(cls, model: PreTrainedModel, recompute: Recompute | None = None) -> Trees | None:
        """For a model that computes the same for sequences read as trees; None for any other, which stays as it was.

        The model attends by a plan from then on, also when its layers are computed again in the backward pass.
        """
        own = model.config.get_text_config()._attn_implementation
        if own != PLAIN:
            log.info("sequences are read separately: this model's attention is %s", own)
            return None
        trees = cls(model, recompute)
        try:
            worst = trees._worst()
        except (TypeError, ValueError, RuntimeError, KeyError, AttributeError) as problem:
            log.info("sequences are read separately, since this model cannot read them as trees: %s", problem)
        else:
            if worst <= (CLOSE if model.dtype == torch.float32 else CLOSE_HALF):
                return trees
            log.info("sequences are read separately, since results as trees differ by %.2g", worst)
        model.set_attn_implementation(own)
        return None

    def hidden(self, forest: Forest) -> Tensor:
        """The last layer's output of every token of a forest, [T, H]."""
        return self._read(forest.tokens, plan_of(forest))

    def bank(self, forest: Forest) -> Bank:
        """The keys and values of a forest with the weights as they are now; nothing is kept for a gradient."""
        plan = plan_of(forest)
        plan.kept = {}
        if len(forest.tokens):
            with torch.no_grad():
                self._read(forest.tokens, plan)
        return Bank(forest, plan.kept)

    def behind(self, bank: Bank, twigs: Sequence[SequenceTail]) -> Tensor:
        """The last layer's output of the twigs' tokens, one twig after the other, [Q, H]."""
        tokens = np.concatenate([np.asarray(twig.tokens, dtype=np.int64) for twig in twigs])
        return self._read(tokens, plan_behind(bank, twigs))

    def _read(self, tokens: Ids, plan: AttentionPlan) -> Tensor:
        device = self._model.device
        ids = torch.from_numpy(tokens).to(device)[None]
        positions = torch.from_numpy(plan.positions).to(device)[None]
        held = len(plan.key_positions) - len(plan.positions)
        with nullcontext() if self._recompute is None else self._recompute.over(ids.numel(), held):
            found = self._trunk(input_ids=ids, position_ids=positions, use_cache=False, openclaw_plan=plan)
        hidden: Tensor = found.last_hidden_state
        return hidden[0]

    def _worst(self) -> float:
        """The error of the trial, as a share of the largest value."""
        device, worst, largest = self._model.device, 0.0, 1e-9
        with torch.no_grad():
            apart = [
                self._trunk(input_ids=torch.tensor([one], device=device), use_cache=False).last_hidden_state[0]
                for one in TRIED
            ]
        AttentionInterface.register(NAME, _attend)
        self._model.set_attn_implementation(NAME)
        forest = planted(TRIED)
        bank = self.bank(planted([one[:2] for one in TRIED]))
        twigs = [
            SequenceTail(one[2:], 2, path) for one, path in zip(TRIED, bank.forest.paths, strict=True) if len(one) > 2
        ]
        with torch.no_grad():
            whole, behind = self.hidden(forest), self.behind(bank, twigs)
            at = 0
            for index, one in enumerate(TRIED):
                pairs = [(apart[index], whole[torch.from_numpy(forest.places(index))])]
                if len(one) > 2:
                    pairs.append((apart[index][2:], behind[at : at + len(one) - 2]))
                    at += len(one) - 2
                worst = max(worst, *(float((a - b).abs().max()) for a, b in pairs))
                largest = max(largest, float(apart[index].abs().max()))
        return worst / largest


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    openclaw_plan: AttentionPlan | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **more: object,
) -> tuple[Tensor, None]:
    """Attention of a pass, call by call: [B, heads, Q, d] in, [B, Q, heads, d] out; without a plan each row is one."""
    foreign = sorted(name for name in ("softcap", "s_aux", "position_bias") if more.get(name) is not None)
    if foreign:
        raise ValueError(f"its attention has {', '.join(foreign)}")
    plan, layer = openclaw_plan, int(module.layer_idx)  # type: ignore[arg-type]
    if plan is None:
        plan = plan_of(planted([range(query.shape[2])]))
    if plan.kept is not None:
        plan.kept[layer] = key.detach(), value.detach()
    if plan.bank is not None and plan.spans:
        keys, values = plan.bank.layers[layer]
        key = torch.cat([*(keys[:, :, span] for span in plan.spans), key], 2)
        value = torch.cat([*(values[:, :, span] for span in plan.spans), value], 2)
    usual = AttentionInterface()[PLAIN]
    parts = []
    for number, (first, last, since, until) in enumerate(plan.calls):
        mask = plan.mask(number, sliding_window, query.device)
        held = (query[:, :, first:last], key[:, :, since:until], value[:, :, since:until])
        if mask is not None and last - first <= 2 * key.shape[1] * key.shape[3]:
            parts.append(_folded(*held, mask, scaling))
        else:
            parts.append(usual(module, *held, mask, scaling=scaling, is_causal=mask is None)[0])
    return torch.cat(parts, 1), None


def _folded(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None) -> Tensor:
    """Attention [1, Q, heads, d] in which the heads that share a key head are treated as tokens.

    Transformers copies keys and values for each head, and a backward pass keeps them: [heads, K, d] twice. Folded, it
    keeps them once, and the mask for each of these heads instead: less memory where there are few queries. On a CPU it
    took 0.65 to 0.77 of the time.
    """
    heads, count, shared = query.shape[1], query.shape[2], key.shape[1]
    out = F.scaled_dot_product_attention(
        query.reshape(1, shared, heads // shared * count, query.shape[3]),
        key,
        value,
        attn_mask=mask.repeat(1, 1, heads // shared, 1),
        scale=scaling,
    )
    return out.reshape(1, heads, count, value.shape[3]).transpose(1, 2)
