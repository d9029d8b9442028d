"""Attention of a pass over sequences as trees.

On a CPU a token is compared with the tokens of its own path alone: its branch and each run of earlier tokens are parts
of one attention, computed separately and put together by their normalizers, as blocks are in ring attention
(arXiv 2310.01889). Elsewhere one call compares each token with those of all branches, and masks the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from openclaw_rl.trainers.attention_plan import AttentionPlan, SeenKeys, plan_of
from openclaw_rl.trainers.forest import planted

NAME = "openclaw_rl_trees"
PLAIN = "sdpa"


def is_separate_on(device: torch.device) -> bool:
    """Whether the spans of a call are computed separately: torch names that attention's normalizers on a CPU alone."""
    return device.type == "cpu" and hasattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu")


def attend(
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
    """Attention of a pass by its plan: [1, heads, Q, d] in, [1, Q, heads, d] out. Raises ValueError."""
    foreign = sorted(name for name in ("softcap", "s_aux", "position_bias") if more.get(name) is not None)
    if foreign:
        raise ValueError(f"its attention has {', '.join(foreign)}")
    plan, layer = openclaw_plan, int(module.layer_idx)  # type: ignore[arg-type]
    if plan is None:  # each row of a batch is a sequence of its own
        plan = plan_of(planted([range(query.shape[2])]), is_separate=False)
    if plan.kept is not None:
        plan.kept[layer] = key.detach(), value.detach()
    held = plan.held_by(layer)
    if plan.is_separate and query.shape[-1] == value.shape[-1]:
        out: Tensor = _SeparateSpans.apply(  # type: ignore[no-untyped-call]
            query, key, value, _Facts(plan, held, sliding_window, scaling)
        )
        return out.transpose(1, 2), None
    usual = AttentionInterface()[PLAIN]
    parts = []
    for number, call in enumerate(plan.calls):
        mask = plan.mask(number, sliding_window, query.device)
        taken = (
            query[:, :, call.first : call.last],
            _cut(held and held[0], key, call.spans),
            _cut(held and held[1], value, call.spans),
        )
        if mask is not None and call.last - call.first <= 2 * key.shape[1] * key.shape[3]:
            parts.append(_folded(*taken, mask, scaling))
        else:
            parts.append(usual(module, *taken, mask, scaling=scaling, is_causal=mask is None)[0])
    return torch.cat(parts, 1), None


def _cut(held: Tensor | None, own: Tensor, spans: Sequence[tuple[int, int]]) -> Tensor:
    """The keys or values of spans, of which each is in what the bank holds or in the pass's own."""
    before = 0 if held is None else held.shape[2]
    parts = [
        own[:, :, since - before : until - before] if held is None or since >= before else held[:, :, since:until]
        for since, until in spans
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


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


@dataclass(frozen=True, slots=True)
class _Facts:
    """What attention by spans needs besides its tensors."""

    plan: AttentionPlan
    held: tuple[Tensor, Tensor] | None  # keys and values of the bank
    window: int | None
    scaling: float | None

    def spans(self, number: int, key: Tensor, value: Tensor) -> Iterator[_Span]:
        """The spans of a call of which anything is seen; first the last one, in which each query sees itself."""
        spans = self.plan.calls[number].spans
        for part in reversed(range(len(spans))):
            if (sight := self.plan.sight(number, part, self.window)) is not None:
                keys = _cut(self.held and self.held[0], key, [spans[part]])
                values = _cut(self.held and self.held[1], value, [spans[part]])
                since = spans[part][0] - self.plan.held
                yield _Span(keys, values, sight, self.scaling, since if since >= 0 else None)


@dataclass(frozen=True, slots=True)
class _Span:
    """A run of keys and values, [1, key heads, k, d] each, and what the queries of a call see of it."""

    keys: Tensor
    values: Tensor
    sight: SeenKeys
    scaling: float | None
    since: int | None  # its place among the pass's own tokens; None if it is the bank's, which is constant

    def of(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Attention over it, [1, heads, q, d], and the logarithms of its normalizers, [1, heads, q]."""
        attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        own, *pair = self._alike(query)
        facts = {"attn_mask": self.sight.mask, "scale": self.scaling}
        out, size = attention(own, *pair, 0.0, self.sight.is_causal, **facts)
        size = size.reshape(query.shape[:3])
        if self.sight.blind is not None:
            size = size.masked_fill(self.sight.blind, -torch.inf)  # torch says 0
        return out.reshape(query.shape), size

    def gradients(self, back: Tensor, query: Tensor, out: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Its share in the gradient of the queries, and the gradients of its keys and values.

        `out` and `total`, [1, heads, q], are outputs and logarithms of normalizers of the whole attention.
        """
        attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        own, *pair = self._alike(query)
        rows = back.reshape(own.shape), own, *pair, out.reshape(own.shape), total.reshape(own.shape[:3])
        facts = {"attn_mask": self.sight.mask, "scale": self.scaling}
        found = attention(*rows, 0.0, self.sight.is_causal, **facts)
        keys, values = (each.unflatten(1, (self.keys.shape[1], -1)).sum(2) for each in found[1:])
        return found[0].reshape(query.shape), keys, values

    def _alike(self, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values with equally many heads.

        If every key is seen, queries of the heads that share a key head are tokens of one; else keys are repeated.
        """
        shared = self.keys.shape[1]
        if self.sight.is_all:
            return query.reshape(1, shared, -1, query.shape[3]), self.keys, self.values
        times = query.shape[1] // shared
        return query, self.keys.repeat_interleave(times, 1), self.values.repeat_interleave(times, 1)


class _SeparateSpans(torch.autograd.Function):
    """Attention call by call and span by span: [1, heads, Q, d] in and out.

    The softmax over all spans is that over each, weighed by its share of the normalizers. The gradient of a span needs
    only outputs and normalizers of the whole. Nothing but these, queries, keys and values is kept for it.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, facts: _Facts) -> Tensor:
        """The bank's keys and values are constant."""
        out, total = torch.empty_like(query), torch.empty(query.shape[:3], dtype=torch.float32)
        for number, call in enumerate(facts.plan.calls):
            rows = slice(call.first, call.last)
            first, *others = (span.of(query[:, :, rows]) for span in facts.spans(number, key, value))
            whole, size = first
            for found, own in others:
                both = torch.logaddexp(size, own)
                whole = whole * (size - both).exp().unsqueeze(-1) + found * (own - both).exp().unsqueeze(-1)
                size = both
            out[:, :, rows], total[:, :, rows] = whole, size
        ctx.save_for_backward(query, key, value, out, total)
        ctx.facts = facts
        return out

    @staticmethod
    def backward(ctx: Any, back: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Gradients of queries, keys and values."""
        query, key, value, out, total = ctx.saved_tensors
        facts: _Facts = ctx.facts
        back = back.contiguous()
        # Many spans are added up: in half precision each sum would be rounded.
        queries, keys, values = (torch.zeros(one.shape, dtype=torch.float32) for one in (query, key, value))
        for number, call in enumerate(facts.plan.calls):
            rows = slice(call.first, call.last)
            taken = [each[:, :, rows] for each in (back, query, out, total)]
            for span in facts.spans(number, key, value):
                found = span.gradients(*taken)
                queries[:, :, rows] += found[0]
                if span.since is not None:
                    held = slice(span.since, span.since + span.keys.shape[2])
                    keys[:, :, held] += found[1]
                    values[:, :, held] += found[2]
        return queries.to(query.dtype), keys.to(key.dtype), values.to(value.dtype), None
