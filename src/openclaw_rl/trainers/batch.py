"""Turns as sequences to read: those that continue each other become one, and passes stay within a token budget."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from openclaw_rl.trainers.model import Speaker


@dataclass(frozen=True, slots=True)
class Reading:
    """Ids to read, and the indexes among them whose probability is wanted."""

    tokens: tuple[int, ...]
    wanted: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.wanted or self.wanted[0] < 1 or self.wanted[-1] >= len(self.tokens):
            raise ValueError("a reading wants at least one token, and not the first")


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence and the readings it answers, by their index."""

    tokens: tuple[int, ...]
    readings: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """The hidden states of one forward pass that predict wanted tokens: [n, H], reading after reading."""

    hidden: Tensor
    parts: tuple[tuple[int, slice], ...]  # which reading, and its rows of `hidden`


def merged(readings: Sequence[Reading]) -> list[Row]:
    """The fewest sequences found that hold every reading id for id from their first token, longest first.

    A turn lies within the turn that continues it, so a session is read once instead of once per turn. Siblings, which
    differ in a token, never share a row.
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
    return [Row(readings[members[0]].tokens, tuple(members)) for _, members in rows]


def passes(rows: Sequence[Row], max_tokens: int) -> list[list[Row]]:
    """Rows of like length together, each group within `max_tokens` with its padding. One row may exceed it alone."""
    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: -len(row.tokens)):
        if groups and len(groups[-1][0].tokens) * (len(groups[-1]) + 1) <= max_tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def read(model: Speaker, readings: Sequence[Reading], max_tokens: int) -> Iterator[Pass]:
    """Reads everything, a pass at a time; a pass keeps its graph where gradients are on."""
    for group in passes(merged(readings), max_tokens):
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
        yield Pass(hidden, tuple(parts))


def read_once(model: Speaker, readings: Sequence[Reading], max_tokens: int) -> list[Tensor]:
    """The hidden states of each reading, [n, H], without a graph."""
    found: dict[int, Tensor] = {}
    with torch.no_grad():
        for one in read(model, readings, max_tokens):
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
