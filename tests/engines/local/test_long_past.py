"""Attention behind a long past, in two parts, against torch's own under a mask."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close

from openclaw_rl.engines.local.attention import attend_in_two, is_worth_it


def drawn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize(
    ("dtype", "close"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)]
)  # values up to 4, rounded twice
@pytest.mark.parametrize("shared", [1, 2, 4])
@pytest.mark.parametrize(("past", "count"), [(1, 1), (5, 3), (700, 65), (64, 600)])
def test_it_is_attention_under_a_causal_mask(
    dtype: torch.dtype, close: float, shared: int, past: int, count: int
) -> None:
    query = drawn(1, count, 4, 16, dtype=dtype).transpose(1, 2)
    held = [drawn(1, shared, past + count + more, 16, dtype=dtype)[:, :, : past + count] for more in (8, 9)]
    seen = torch.arange(past + count) <= torch.arange(past, past + count)[:, None]
    for scaling in (None, 0.1):
        want = scaled_dot_product_attention(
            query.double(), *(one.double() for one in held), attn_mask=seen, scale=scaling, enable_gqa=True
        )
        own = attend_in_two(query, held[0], held[1], past, scaling)
        assert_close(own.double(), want, rtol=0, atol=close)


def test_only_where_it_is_faster_and_values_are_as_wide_as_keys() -> None:
    query = torch.zeros(1, 4, 256, 16)
    keys, values = torch.zeros(1, 2, 9, 16), torch.zeros(1, 2, 9, 8)
    assert is_worth_it(query, keys, 2048) and not is_worth_it(query, keys, 2047)
    assert not is_worth_it(query, values, 8000)
