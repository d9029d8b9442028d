"""Attention of a piece of prompt behind a long past, on a CPU: the past without a mask, what is new causally, joined.

With a mask torch's kernel reads the mask's numbers for each head and computes what it hides. Without one all pieces of
a prompt of 10,000 tokens took 0.89 of the CPU time with 256 tokens a piece and 0.76 with 512 (float32, heads of 64),
in bfloat16 0.95 (heads of 128, 4,000 tokens). Short pieces behind little took 1.1 times as much, and keep the mask.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

WORTH_IT = 1 << 19  # tokens times tokens before them


def is_worth_it(query: Tensor, values: Tensor, past: int) -> bool:
    """Whether [1, heads, tokens, dim] behind so many tokens is computed so."""
    return (
        query.device.type == "cpu"
        and past * query.shape[2] >= WORTH_IT
        and query.shape[3] == values.shape[3]
        and _works()
    )


def attend_in_two(query: Tensor, keys: Tensor, values: Tensor, past: int, scaling: float | None) -> Tensor:
    """Attention [1, heads, tokens, dim] of the last tokens of keys and values [1, key heads, all, dim]."""
    heads, count, dim = query.shape[1:]
    shared = keys.shape[1]
    # the query heads that share a key head are taken as so many tokens: all of them see the whole past
    grouped = query.reshape(1, shared, heads // shared * count, dim)
    before, before_sum = _kernel(grouped, keys[:, :, :past], values[:, :, :past], scaling, is_causal=False)
    own_keys, own_values = (one[:, :, past:].repeat_interleave(heads // shared, 1) for one in (keys, values))
    own, own_sum = _kernel(query, own_keys, own_values, scaling, is_causal=True)
    before, before_sum = before.reshape(own.shape), before_sum.reshape(own_sum.shape)
    # each is divided by the sum of its own exponentials, of which the logarithms are given
    return torch.lerp(before, own, torch.sigmoid(own_sum - before_sum)[..., None].to(own.dtype))


def _kernel(
    query: Tensor, keys: Tensor, values: Tensor, scaling: float | None, *, is_causal: bool
) -> tuple[Tensor, Tensor]:
    out, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, 0.0, is_causal, attn_mask=None, scale=scaling
    )
    return out, logsumexp.reshape(out.shape[:3])


@cache
def _works() -> bool:
    """Whether torch has the kernel under its own name, and it gives the sums: the name is not public."""
    query = (torch.arange(2 * 3 * 8, dtype=torch.float32).view(1, 2, 3, 8) % 7) / 7
    keys = (torch.arange(7 * 8, dtype=torch.float32).view(1, 1, 7, 8) % 5) / 5
    hidden = torch.arange(7) > torch.arange(4, 7)[:, None]
    want = torch.nn.functional.scaled_dot_product_attention(query, keys, keys, attn_mask=~hidden, enable_gqa=True)
    try:
        return torch.allclose(attend_in_two(query, keys, keys, 4, None), want, rtol=0, atol=1e-6)
    except (AttributeError, RuntimeError, TypeError):
        return False
