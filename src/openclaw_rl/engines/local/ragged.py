"""Attention of decoding rows on a GPU, as a Triton kernel: each row reads its own block, as far as it is long.

Torch's kernels want rows of one length at equal distances. Here lengths and places are read on the device, so that
one call serves all rows of a step, and a recorded CUDA graph stays valid while they change. The keys of a row are
divided among several programs (Flash-Decoding, https://crfm.stanford.edu/2023/10/12/flashdecoding.html), whose
results are joined by the logarithms of their sums.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from openclaw_rl.engines.local.cache import AttentionParams, Geometry

SPLITS = 16  # programs that share the keys of a row and head; those of a short row find nothing to do and end
KEYS = 32  # that a program reads at once
LEAST_ROWS = 16  # of a product of the tensor cores
WARPS = 2


@triton.jit  # type: ignore[untyped-decorator]
def _loaded(start, offsets, is_row, along, dim: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows of `dim` numbers, each at its offset from `start`; 0 beyond them."""
    return tl.load(start + offsets[:, None] + along[None, :], mask=is_row[:, None] & (along < dim)[None, :], other=0.0)


# query [rows, heads, key dim] by its strides; blocks [2, rows] by their stride; parts [rows, heads, splits, dim];
# sums [rows, heads, splits], logarithms of the sums of exponentials; group: the query heads that share a key head
# fmt: off
@triton.jit(do_not_specialize=["blocks_row"])  # type: ignore[untyped-decorator]
def _partial(  # type: ignore[no-untyped-def] # noqa: PLR0917  # a kernel has no keywords at its call
    query, keys, values, blocks, lengths, parts, sums, scale, blocks_row, query_row, query_head,
    window: tl.constexpr, group: tl.constexpr, key_dim: tl.constexpr, value_dim: tl.constexpr,
    group_room: tl.constexpr, key_room: tl.constexpr, value_room: tl.constexpr,
    splits: tl.constexpr, at_once: tl.constexpr,
):
    # fmt: on
    row, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    shared = tl.num_programs(1)
    length = tl.load(lengths + row).to(tl.int32)
    first = 0
    if window > 0:
        first = tl.maximum(length - window, 0)
    each = tl.cdiv(tl.cdiv(length - first, splits), at_once) * at_once
    start = first + split * each
    stop = tl.minimum(start + each, length)
    own = tl.arange(0, group_room)
    heads = head * group + own
    is_head = own < group
    spot = (row * shared * group + heads) * splits + split
    origin = tl.load(blocks + row) * shared + head * tl.load(blocks + blocks_row + row)
    along_key, along_value = tl.arange(0, key_room), tl.arange(0, value_room)
    asked = _loaded(query + row * query_row, heads * query_head, is_head, along_key, key_dim)
    top = tl.full([group_room], float("-inf"), tl.float32)
    total = tl.zeros([group_room], tl.float32)
    held = tl.zeros([group_room, value_room], tl.float32)
    for at in range(start, stop, at_once):
        spots = at + tl.arange(0, at_once)
        is_key = spots < stop
        read = origin + spots
        key = _loaded(keys, read * key_dim, is_key, along_key, key_dim)
        scores = tl.dot(asked, tl.trans(key), input_precision="ieee") * scale
        scores = tl.where(is_key[None, :], scores, float("-inf"))
        highest = tl.maximum(top, tl.max(scores, 1))
        shrink = tl.exp(top - highest)
        weights = tl.exp(scores - highest[:, None])
        value = _loaded(values, read * value_dim, is_key, along_value, value_dim)
        total = total * shrink + tl.sum(weights, 1)
        held = held * shrink[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        top = highest
    # without a key both are -inf, and the part is not read
    tl.store(sums + spot, top + tl.log(total), mask=is_head)
    tl.store(
        parts + spot[:, None] * value_dim + along_value[None, :],
        held / total[:, None],
        mask=(own < tl.where(start < stop, group, 0))[:, None] & (along_value < value_dim)[None, :],
    )


@triton.jit  # type: ignore[untyped-decorator]
def _join(  # type: ignore[no-untyped-def] # noqa: PLR0917
    parts,
    sums,
    out,  # [rows, heads, value dim]
    value_dim: tl.constexpr,
    value_room: tl.constexpr,
    splits: tl.constexpr,
):
    spot = tl.program_id(0)
    split, along = tl.arange(0, splits), tl.arange(0, value_room)
    logs = tl.load(sums + spot * splits + split)
    shares = tl.exp(logs - tl.max(logs, 0))
    shares = shares / tl.sum(shares, 0)
    part = tl.load(
        parts + (spot * splits + split)[:, None] * value_dim + along[None, :],
        mask=(logs > float("-inf"))[:, None] & (along < value_dim)[None, :],
        other=0.0,
    )
    joined = tl.sum(part * shares[:, None], 0)
    tl.store(out + spot * value_dim + along, joined.to(out.dtype.element_ty), mask=along < value_dim)


def attend_rows(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    blocks: Tensor,
    lengths: Tensor,
    *,
    key_heads: int,
    look: AttentionParams,
) -> Tensor:
    """Attention [rows, heads, value dim] of queries [rows, heads, key dim], as `RowsKernel` describes."""
    rows, heads, key_dim = query.shape
    value_dim, group = values.shape[1], heads // key_heads
    parts = torch.empty(rows, heads, SPLITS, value_dim, dtype=torch.float32, device=query.device)
    sums = torch.empty(rows, heads, SPLITS, dtype=torch.float32, device=query.device)
    _partial[(rows, key_heads, SPLITS)](
        query,
        keys,
        values,
        blocks,
        lengths,
        parts,
        sums,
        key_dim**-0.5 if look.scaling is None else look.scaling,
        blocks.stride(0),
        query.stride(0),
        query.stride(1),
        window=look.window or 0,
        group=group,
        key_dim=key_dim,
        value_dim=value_dim,
        group_room=max(LEAST_ROWS, triton.next_power_of_2(group)),
        key_room=max(LEAST_ROWS, triton.next_power_of_2(key_dim)),
        value_room=max(LEAST_ROWS, triton.next_power_of_2(value_dim)),
        splits=SPLITS,
        at_once=KEYS,
        num_warps=WARPS,
    )
    out = torch.empty(rows, heads, value_dim, dtype=query.dtype, device=query.device)
    _join[(rows * heads,)](
        parts,
        sums,
        out,
        value_dim=value_dim,
        value_room=triton.next_power_of_2(value_dim),
        splits=SPLITS,
    )
    return out


def check(device: torch.device, dtype: torch.dtype, layer: Geometry) -> None:
    """Raises RuntimeError if the kernels compute something else on this device than torch does, for such a layer."""
    own = torch.Generator(device).manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=own, device=device).to(dtype)

    lengths, size = (1, 70, 1500), 2048
    keys, values = (drawn(3 * size * layer.heads, dim) for dim in (layer.key_dim, layer.value_dim))
    query = drawn(3, 4 * layer.heads, layer.key_dim)
    blocks = torch.tensor([[2 * size, 0, size], [size] * 3], device=device)
    spans, look = torch.tensor(lengths, device=device), AttentionParams(None, None)
    got = attend_rows(query, keys, values, blocks, spans, key_heads=layer.heads, look=look)
    for row, (base, length) in enumerate(zip(blocks[0].tolist(), lengths, strict=True)):
        key, value = (
            held[base * layer.heads : (base + size) * layer.heads].view(layer.heads, size, -1)[:, :length].float()
            for held in (keys, values)
        )
        want = F.scaled_dot_product_attention(query[row].float().view(layer.heads, 4, -1), key, value)
        off_by = float((got[row].float().view_as(want) - want).norm() / want.norm())
        if not off_by < (1e-4 if dtype == torch.float32 else 2e-2):
            raise RuntimeError(f"attention of rows is off by {off_by:.2g} at {length} tokens")
