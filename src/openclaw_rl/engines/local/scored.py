"""Attention that torch's kernels do not have: scores that are capped (Gemma 2), or a sink for each head (gpt-oss)."""

from __future__ import annotations

import torch
from torch import Tensor

from openclaw_rl.engines.local.cache import AttentionParams

AT_ONCE = 1 << 24  # scores that are held at a time: 64 MB in float32


def attend_scored(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, look: AttentionParams) -> Tensor:
    """Attention [rows, heads, tokens, dim] over keys and values [rows, key heads, keys, dim], score by score.

    The mask is added to the scores, after the cap, and must broadcast to [rows, 1, tokens, keys]. A sink takes its part
    of a head's attention and gives nothing for it.
    """
    rows, heads, count, dim = query.shape
    shared = keys.shape[1]
    grouped = query.float().reshape(rows, shared, heads // shared, count, dim)
    keys, values = keys.float().unsqueeze(2).transpose(-1, -2), values.float().unsqueeze(2)
    scaling = dim**-0.5 if look.scaling is None else look.scaling
    sinks = None if look.sinks is None else look.sinks.float().view(1, shared, heads // shared, 1, 1)
    step = max(1, AT_ONCE // (rows * heads * keys.shape[-1]))
    outs = []
    for first in range(0, count, step):
        scores = grouped[:, :, :, first : first + step] @ keys * scaling
        if look.softcap is not None:
            scores = torch.tanh(scores / look.softcap) * look.softcap
        if mask is not None:
            hidden = mask if mask.dim() == 4 else mask[None, None]
            scores = scores + (hidden if hidden.shape[2] == 1 else hidden[:, :, first : first + step]).unsqueeze(2)
        outs.append(_shares(scores, sinks) @ values)
    out = outs[0] if len(outs) == 1 else torch.cat(outs, 3)
    return out.reshape(rows, heads, count, -1).to(query.dtype)


def _shares(scores: Tensor, sinks: Tensor | None) -> Tensor:
    if sinks is None:
        return scores.softmax(-1)
    top = torch.maximum(scores.amax(-1, keepdim=True), sinks)
    parts = (scores - top).exp()
    return parts / (parts.sum(-1, keepdim=True) + (sinks - top).exp())
