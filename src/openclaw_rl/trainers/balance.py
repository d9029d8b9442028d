"""Which lessons each rank reads: sequences that continue each other on one rank, and about as many tokens on each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from openclaw_rl.trainers.batch import Reading
from openclaw_rl.trainers.forest import Ids, common

PIECES = 8  # what belongs together loosely is kept together up to such a part of a rank's share


def balanced(readings: Sequence[Reading], ranks: int, *, updates: int = 1) -> list[list[int]]:
    """The readings of each rank, by their index and in their order; what several share is counted once.

    A turn and the turn that continues it are never parted. What shares a prompt stays together where that leaves pieces
    small enough. The largest piece goes to the rank that has least. Where prompts are read once for several updates, a
    reply counts for each of them.
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
    """What stays together, and what it costs: neighbours in their order, which share most."""
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
