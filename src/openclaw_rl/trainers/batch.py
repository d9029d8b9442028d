"""Turns as sequences to read: shared parts are read once, and passes stay within a token budget."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import Cache

from openclaw_rl.trainers.forest import Bank, Ids, SequenceTail, common, packed, planted
from openclaw_rl.trainers.model import Speaker
from openclaw_rl.trainers.prompt_caches import PromptCaches
from openclaw_rl.trainers.ranks import in_step
from openclaw_rl.trainers.trees import Trees

MOST_WASTE = 1.5  # comparisons of a pass, as a multiple of those that are needed
CHEAP = 1 << 20  # this many cost less than a separate pass
NOTHING = (0,)  # the ids of a pass that only serves the other ranks
WITHOUT_GRADIENT = 8  # times as many tokens are read at once if nothing is kept for a backward pass
PIECES = 8  # readings that share a prompt stay together up to one part in this many of a rank's share


def unheard(tokens: int) -> None:
    """Ignores the count."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Ids to read, and the indexes of those whose probability is wanted."""

    tokens: tuple[int, ...]
    wanted: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.wanted or self.wanted[0] < 1 or self.wanted[-1] >= len(self.tokens):
            raise ValueError("a reading needs at least one wanted token, which is not the first")

    @property
    def needed(self) -> tuple[int, ...]:
        """The ids before the last wanted one."""
        return self.tokens[: self.wanted[-1]]

    @property
    def constant(self) -> int:
        """The number of ids before the first one whose output predicts a wanted token."""
        return self.wanted[0] - 1


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One sequence and the readings it answers, by their index."""

    tokens: tuple[int, ...]
    readings: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PassOutput:
    """The hidden states of one forward pass that predict wanted tokens: [n, H], reading after reading."""

    hidden: Tensor
    parts: tuple[tuple[int, slice], ...]  # which reading, and its rows of `hidden`
    tokens: int = 0  # that were computed


class ConstantPrompts:
    """Readings whose prompts are read once, with the weights as they are now, and constant from then on.

    Each round of `passes` computes only the replies. A model that cannot read trees keeps each prompt in a cache, and
    if it cannot do that either, every round reads everything.
    """

    def __init__(
        self, model: Speaker, readings: Sequence[Reading], max_tokens: int, heard: Callable[[int], None] = unheard
    ) -> None:
        self._model, self._readings, self._max_tokens = model, readings, max_tokens
        self._banks: list[tuple[Bank, list[int]]] = []
        self._kept: list[Cache | None] = []
        # A prompt of one token has no ids before the predicting one: then its bank is empty.
        fronts = [one.tokens[: one.constant] for one in readings]
        if model.trees is None:
            if model.caches is not None:
                self._kept = model.caches.kept(fronts, heard)
            return
        for group in in_step(model, packed(fronts, WITHOUT_GRADIENT * max_tokens)):
            if group is None:
                model.trees.bank(planted([NOTHING]))
                continue
            forest = planted([fronts[index] for index in group if fronts[index]])
            self._banks.append((model.trees.bank(forest), group))
            heard(len(forest.tokens))

    def passes(self) -> Iterator[PassOutput]:
        """Every reading, a pass at a time; a pass keeps its graph if gradients are on."""
        trees, caches = self._model.trees, self._model.caches
        if trees is None and caches is not None:
            yield from self._behind(caches)
            return
        if trees is None:
            yield from read(self._model, self._readings, self._max_tokens)
            return
        runs: list[tuple[Bank, list[int], list[SequenceTail]]] = []
        for bank, group in self._banks:
            paths = iter(bank.forest.paths)
            twigs = [self._twig(index, paths) for index in group]
            for first, last in _runs(bank, twigs, self._max_tokens):
                runs.append((bank, group[first:last], twigs[first:last]))
        for run in in_step(self._model, runs):
            yield _empty_pass(self._model) if run is None else self._pass(trees, *run)

    def _behind(self, caches: PromptCaches) -> Iterator[PassOutput]:
        for index, (one, cache) in enumerate(zip(self._readings, self._kept, strict=True)):
            tail = one.needed[one.constant :]
            hidden = caches.behind(cache, tail)
            rows = [position - 1 - one.constant for position in one.wanted]
            yield PassOutput(hidden[rows], ((index, slice(0, len(rows))),), len(tail))

    def _twig(self, index: int, paths: Iterator[tuple[int, ...]]) -> SequenceTail:
        one = self._readings[index]
        return SequenceTail(one.needed[one.constant :], one.constant, next(paths) if one.constant else ())

    def _pass(self, trees: Trees, bank: Bank, group: Sequence[int], twigs: Sequence[SequenceTail]) -> PassOutput:
        parts: list[tuple[int, slice]] = []
        places: list[int] = []
        at = 0
        for index, twig in zip(group, twigs, strict=True):
            wanted = self._readings[index].wanted
            parts.append((index, slice(len(places), len(places) + len(wanted))))
            places += [at + position - 1 - twig.start for position in wanted]
            at += len(twig.tokens)
        hidden = trees.behind(bank, twigs)
        return PassOutput(hidden[torch.tensor(places, device=hidden.device)], tuple(parts))


def _runs(bank: Bank, twigs: Sequence[SequenceTail], most: int) -> Iterator[tuple[int, int]]:
    """Twigs that are read in one pass: neighbours, of at most `most` tokens, that mostly read the same of the bank.

    In a pass every token is compared with everything that any of them reads: different prompts are read separately.
    """
    sizes = [node.size for node in bank.forest.nodes]
    first = 0
    while first < len(twigs):
        nodes = {*twigs[first].path}
        tokens = len(twigs[first].tokens)
        needed = tokens * (tokens + sum(sizes[node] for node in nodes))
        last = first + 1
        while last < len(twigs):
            more, size = nodes | {*twigs[last].path}, len(twigs[last].tokens)
            own = needed + size * (size + sum(sizes[node] for node in twigs[last].path))
            together = (tokens + size) * (tokens + size + sum(sizes[node] for node in more))
            if tokens + size > most or together > max(MOST_WASTE * own, CHEAP):
                break
            nodes, tokens, needed, last = more, tokens + size, own, last + 1
        yield first, last
        first = last


def merged(readings: Sequence[Reading]) -> list[BatchRow]:
    """The fewest sequences found that contain every reading as a prefix, longest first.

    A turn is a prefix of the turn that continues it, so a session is read once instead of once per turn. Siblings,
    which differ in a token, never share a row.
    """
    order = sorted(range(len(readings)), key=lambda index: -len(readings[index].tokens))
    rows: list[tuple[bytes, list[int]]] = []
    for index in order:
        ids = array("q", readings[index].tokens).tobytes()
        for whole, members in rows:
            if whole.startswith(ids):
                members.append(index)
                break
        else:
            rows.append((ids, [index]))
    return [BatchRow(readings[members[0]].tokens, tuple(members)) for _, members in rows]


def passes(rows: Sequence[BatchRow], max_tokens: int) -> list[list[BatchRow]]:
    """Groups of rows of similar length, each within `max_tokens` with its padding. A single row may exceed it."""
    groups: list[list[BatchRow]] = []
    for row in sorted(rows, key=lambda row: -len(row.tokens)):
        if groups and len(groups[-1][0].tokens) * (len(groups[-1]) + 1) <= max_tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def read(model: Speaker, readings: Sequence[Reading], max_tokens: int) -> Iterator[PassOutput]:
    """Reads everything, a pass at a time; a pass keeps its graph if gradients are on."""
    if model.trees is None:
        yield from _read_rows(model, readings, max_tokens)
        return
    for group in in_step(model, packed([one.needed for one in readings], max_tokens)):
        if group is None:
            yield _empty_pass(model)
            continue
        forest = planted([readings[index].needed for index in group])
        parts: list[tuple[int, slice]] = []
        places: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        size = 0
        for number, index in enumerate(group):
            wanted = np.asarray(readings[index].wanted) - 1
            parts.append((index, slice(size, size + len(wanted))))
            places.append(forest.places(number)[wanted])
            size += len(wanted)
        hidden = model.trees.hidden(forest)
        rows = torch.from_numpy(np.concatenate(places)).to(hidden.device)
        yield PassOutput(hidden[rows], tuple(parts), len(forest.tokens))


def _empty_pass(model: Speaker) -> PassOutput:
    """A pass without results, needed by the ranks that compute one now: [1, H]."""
    if model.trees is not None:
        return PassOutput(model.trees.hidden(planted([NOTHING])), ())
    return PassOutput(model.hidden(torch.tensor([NOTHING], device=model.device))[0], ())


def _read_rows(model: Speaker, readings: Sequence[Reading], max_tokens: int) -> Iterator[PassOutput]:
    """The same for a model that reads sequences separately: those that continue each other are read as one."""
    for group in in_step(model, passes(merged(readings), max_tokens)):
        if group is None:
            yield _empty_pass(model)
            continue
        width = len(group[0].tokens)
        ids = torch.tensor([[*row.tokens, *(0,) * (width - len(row.tokens))] for row in group], device=model.device)
        at_row: list[int] = []
        at_column: list[int] = []
        parts: list[tuple[int, slice]] = []
        for number, row in enumerate(group):
            for index in row.readings:
                wanted = readings[index].wanted
                parts.append((index, slice(len(at_row), len(at_row) + len(wanted))))
                at_row += [number] * len(wanted)
                at_column += [position - 1 for position in wanted]
        hidden = model.hidden(ids)[torch.tensor(at_row), torch.tensor(at_column)]
        yield PassOutput(hidden, tuple(parts), ids.numel())


def read_once(
    model: Speaker, readings: Sequence[Reading], max_tokens: int, heard: Callable[[int], None] = unheard
) -> list[Tensor]:
    """The hidden states of each reading, [n, H], without a graph. `heard` receives each pass's number of tokens."""
    found: dict[int, Tensor] = {}
    with torch.no_grad():
        if model.trees is None and model.caches is not None:  # a prompt of many replies is read once
            found_passes = ConstantPrompts(model, readings, max_tokens, heard).passes()
        else:
            found_passes = read(model, readings, WITHOUT_GRADIENT * max_tokens)
        for one in found_passes:
            heard(one.tokens)
            for index, rows in one.parts:
                found[index] = one.hidden[rows]
    return [found[index] for index in range(len(readings))]


def chunks(size: int, model: Speaker, logits_at_once: int) -> Iterator[slice]:
    """Runs of rows whose logits are few enough to exist at once."""
    step = max(16, logits_at_once // model.vocabulary)
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


def token_logp(model: Speaker, hidden: Tensor, ids: Tensor, logits_at_once: int) -> Tensor:
    """log p of each id, [n], from [n, H]; without a graph."""
    parts: list[Tensor] = []
    with torch.no_grad():
        for rows in chunks(len(ids), model, logits_at_once):
            logits = model.logits(hidden[rows])
            parts.append(logits.gather(-1, ids[rows].unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1))
    return torch.cat(parts)


def top_ids(model: Speaker, hidden: Tensor, k: int, logits_at_once: int) -> Tensor:
    """The likeliest ids at each position, [n, K], from [n, H]."""
    with torch.no_grad():
        parts = [
            model.logits(hidden[rows]).topk(min(k, model.vocabulary)).indices
            for rows in chunks(len(hidden), model, logits_at_once)
        ]
    return torch.cat(parts)


def balanced(readings: Sequence[Reading], ranks: int, *, updates: int = 1) -> list[list[int]]:
    """Which readings each rank gets: sequences that continue each other on one rank, and about equally many tokens.

    Returns the readings of each rank, by index and in order; shared tokens count once.

    A turn and the turn that continues it are never separated. Readings that share a prompt stay together if the pieces
    are small enough. The largest piece goes to the rank that has least. If prompts are read once for several updates, a
    reply counts once for each.
    """
    if ranks == 1:
        return [list(range(len(readings)))]
    pieces = _pieces(readings, ranks, updates)
    loads = [0] * ranks
    found: list[list[int]] = [[] for _ in range(ranks)]
    for cost, members in sorted(pieces, key=lambda piece: (-piece[0], piece[1])):
        least = loads.index(min(loads))
        loads[least] += cost
        found[least] += members
    return [sorted(members) for members in found]


def tokens_of(readings: Sequence[Reading]) -> int:
    """How many distinct tokens these read."""
    arrays = [np.asarray(readings[index].needed) for index in _order(readings)]
    befores: list[Ids] = [np.zeros(0, np.int64), *arrays[:-1]]
    return sum(len(own) - common(before, own) for before, own in zip(befores, arrays, strict=True))


def _order(readings: Sequence[Reading]) -> list[int]:
    return sorted(range(len(readings)), key=lambda index: readings[index].needed)


def _pieces(readings: Sequence[Reading], ranks: int, updates: int) -> list[tuple[int, list[int]]]:
    """Groups that stay together, with their costs: neighbours in the order, which share most."""
    order = _order(readings)
    arrays = {index: np.asarray(readings[index].needed, dtype=np.int64) for index in order}
    again = {index: (updates - 1) * (len(arrays[index]) - readings[index].constant) for index in order}
    limit = (tokens_of(readings) + sum(again.values())) / (ranks * PIECES)
    pieces: list[tuple[int, list[int]]] = []
    first = shared_by_all = 0  # of the sequences that must stay together: the shortest one's size, and what all share
    for place, index in enumerate(order):
        shared = common(arrays[order[place - 1]], arrays[index]) if place else 0
        shared_by_all = min(shared_by_all, shared)
        continues = bool(pieces) and shared_by_all >= first
        if not continues:
            first = shared_by_all = len(arrays[index])
        cost = len(arrays[index]) - shared + again[index]
        if continues or (pieces and shared and pieces[-1][0] + cost <= limit):
            pieces[-1] = (pieces[-1][0] + cost, [*pieces[-1][1], index])
        else:
            pieces.append((cost + shared, [index]))
    return pieces
