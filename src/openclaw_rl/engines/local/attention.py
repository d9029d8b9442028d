"""Attention over the cache: the plan of a pass, made once a step, and the function transformers calls in each layer.

A pass is one flat run of tokens [1, rows + chunks]: one token of each running row, then pieces of prompts. Rows are
sorted by their place; neighbours of similar length share one call. On a GPU one kernel of our own (ragged.py) serves
all rows; where it does not work, rows that are not neighbours are gathered, since a call costs more than what it reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openclaw_rl.engines.local.cache import AttentionParams, Block, Cache, Geometry, RowsKernel
from openclaw_rl.engines.local.scored import attend_scored
from openclaw_rl.errors import ModelError

NAME = "openclaw_rl"
WORTH_IT = 1 << 19  # tokens times tokens before them, from which on the past is read separately
OTHER_MODEL = (
    "choose a model of plain full or sliding-window attention, such as Qwen3, Llama 3, Gemma 3 or Mistral, "
    "or let vLLM or SGLang serve this one (engine.kind)"
)
CALL_COST = 256  # a separate call costs as much as attending to this many tokens of padding
CALL_COST_GPU = 1 << 15  # 0.2 ms, in which keys and values of this many tokens are copied and read
GATHERED = 1 << 16  # tokens that are gathered at once: 268 MB of 8 heads of 128 in bfloat16


@dataclass(frozen=True, slots=True)
class RowPiece:
    """The tokens `start` up to `stop` of a row that this pass computes."""

    block: Block
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows that share a call: entries `first` up to `last` of the pass. Neighbours, unless they are `gathered`."""

    first: int
    last: int
    base: int
    size: int
    longest: int
    shortest: int
    gathered: bool = False


@dataclass(slots=True)
class AttentionPass:
    """One forward's view of the cache."""

    cache: Cache
    rows: int
    runs: list[_Run]
    pieces: list[tuple[int, RowPiece]]  # where it begins in the pass
    index: dict[int, Tensor]  # by number of heads: where keys are written
    blocks: Tensor  # [2, rows]: where their blocks begin, and how large they are
    lengths: Tensor  # of the rows, this pass's token included
    dtype: torch.dtype
    spots: dict[tuple[int, int, int], Tensor] = field(default_factory=dict)  # where gathered keys are
    masks: dict[tuple[int, int, int], Tensor | None] = field(default_factory=dict)


@dataclass(slots=True)
class AttentionProbe:
    """Replaces a pass once, to record the shapes and parameters of a model's attention layers."""

    layers: dict[int, Geometry] = field(default_factory=dict)
    looks: dict[int, AttentionParams] = field(default_factory=dict)


def plan(cache: Cache, rows: list[tuple[Block, int]], pieces: list[RowPiece], dtype: torch.dtype) -> AttentionPass:
    """A pass over rows, given as (block, position of the new token) and sorted by block, and then pieces."""
    device = next(iter(cache.keys.values())).device
    bases = [block.base for block, _ in rows]
    sizes = [block.size for block, _ in rows]
    spots = [position for _, position in rows]
    begins: list[tuple[int, RowPiece]] = []
    at = len(rows)
    for piece in pieces:
        begins.append((at, piece))
        at += piece.stop - piece.start
    table = torch.tensor([bases, sizes, spots], dtype=torch.long)
    if pieces:
        columns = [table]
        for piece in pieces:
            span = torch.arange(piece.start, piece.stop)
            columns.append(
                torch.stack([span.new_full(span.shape, v) for v in (piece.block.base, piece.block.size)] + [span])
            )
        table = torch.cat(columns, dim=1)
    table = table.to(device)
    own = table[:, : len(rows)]
    runs = [] if cache.rows_kernel is not None else _runs(rows, gathers=gathers(device))
    return AttentionPass(cache, len(rows), runs, begins, _index(cache, table), own[:2], own[2] + 1, dtype)


def plan_of_rows(cache: Cache, table: Tensor, dtype: torch.dtype) -> AttentionPass:
    """A pass over rows alone, for the cache's kernel of rows: where blocks begin, their sizes, positions [3, rows]."""
    return AttentionPass(cache, table.shape[1], [], [], _index(cache, table), table[:2], table[2] + 1, dtype)


def _index(cache: Cache, table: Tensor) -> dict[int, Tensor]:
    """Where the keys of tokens are written: for blocks' begins, sizes and positions [3, tokens], by number of heads."""
    index = {}
    for heads in cache.head_counts:
        offsets = torch.arange(heads, device=table.device)
        index[heads] = ((table[0] * heads + table[2])[:, None] + table[1][:, None] * offsets).flatten()
    return index


def gathers(device: torch.device) -> bool:
    """Whether rows that are not neighbours are gathered."""
    return device.type == "cuda"


def _runs(rows: list[tuple[Block, int]], *, gathers: bool) -> list[_Run]:
    """Greedy: a row joins its neighbour's call if the padding costs less than a separate call."""
    runs: list[_Run] = []
    cost = CALL_COST_GPU if gathers else CALL_COST
    for entry, (block, position) in enumerate(rows):
        length = position + 1
        if runs:
            run = runs[-1]
            count = run.last - run.first
            longest = max(run.longest, length)
            padding = (longest - run.longest) * count + (longest - length)
            is_next = block.size == run.size and block.base == run.base + count * run.size and not run.gathered
            if padding <= cost and (is_next or (gathers and (count + 1) * longest <= GATHERED)):
                shortest = min(run.shortest, length)
                runs[-1] = _Run(run.first, entry + 1, run.base, run.size, longest, shortest, not is_next)
                continue
        runs.append(_Run(entry, entry + 1, block.base, block.size, length, length))
    return runs


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One layer's call: queries [tokens, heads, dim] and the attention's parameters."""

    layer: int
    query: Tensor
    look: AttentionParams


def attend(
    module: nn.Module,
    query: Tensor,  # [1, heads, tokens, dim]
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    openclaw_pass: AttentionPass | AttentionProbe | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """The attention output [1, tokens, heads, dim] for the pass in `openclaw_pass`; transformers calls it so."""
    layer = module.layer_idx
    if openclaw_pass is None or not isinstance(layer, int):
        raise ModelError(
            "the model does not pass the local engine's arguments on to its attention",
            fix=OTHER_MODEL,
        )
    look = AttentionParams(scaling, sliding_window, softcap, s_aux)
    if isinstance(openclaw_pass, AttentionProbe):
        openclaw_pass.layers[layer] = Geometry(key.shape[1], key.shape[3], value.shape[3])
        openclaw_pass.looks[layer] = look
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
        return out.transpose(1, 2), None
    call = AttentionCall(layer, query[0].transpose(0, 1), look)
    return attend_cached(openclaw_pass, call, key[0].transpose(0, 1), value[0].transpose(0, 1))[None], None


def attend_cached(now: AttentionPass, call: AttentionCall, key: Tensor, value: Tensor) -> Tensor:
    """Writes keys and values [tokens, heads, dim], attends, and returns the same."""
    now.cache.write(
        call.layer, now.index[key.shape[1]], key.reshape(-1, key.shape[2]), value.reshape(-1, value.shape[2])
    )
    outs = [_attend_run(now, run, call) for run in now.runs]
    if now.cache.rows_kernel is not None and now.rows:
        outs.append(_attend_rows(now, now.cache.rows_kernel, call))
    outs += [_attend_piece(now, begin, piece, call) for begin, piece in now.pieces]
    return outs[0] if len(outs) == 1 else torch.cat(outs)


def _attend_rows(now: AttentionPass, kernel: RowsKernel, call: AttentionCall) -> Tensor:
    keys, values = now.cache.keys[call.layer], now.cache.values[call.layer]
    heads = now.cache.layers[call.layer].heads
    query = call.query[: now.rows]
    return kernel(query, keys, values, now.blocks, now.lengths, key_heads=heads, look=call.look)


def _attend_run(now: AttentionPass, run: _Run, call: AttentionCall) -> Tensor:
    count, window = run.last - run.first, call.look.window
    first = 0 if window is None else max(0, run.shortest - window)
    keys, values = _keys_and_values(now, run, call.layer, first)
    grouped, mask = call.query[run.first : run.last], _run_mask(now, run, first, window)
    if not call.look.is_plain:
        return attend_scored(grouped.unsqueeze(2), keys, values, mask, call.look)[:, :, 0]
    # the query heads that share a key head are treated as positions: all of them see every key
    out = F.scaled_dot_product_attention(
        grouped.reshape(count, keys.shape[1], -1, grouped.shape[2]),
        keys,
        values,
        attn_mask=mask,
        scale=call.look.scaling,
    )
    return out.reshape(count, grouped.shape[1], -1)


def _keys_and_values(now: AttentionPass, run: _Run, layer: int, first: int) -> tuple[Tensor, Tensor]:
    """Keys and values [rows, heads, keys, dim] from position `first` on; a view, unless they are gathered."""
    if not run.gathered:
        keys, values = now.cache.view(layer, run.base, run.last - run.first, run.size)
        return keys[:, :, first : run.longest], values[:, :, first : run.longest]
    heads = now.cache.layers[layer].heads
    key = (run.first, heads, first)
    if key not in now.spots:
        device = now.lengths.device
        bases, sizes = now.blocks[:, run.first : run.last, None, None]
        last = now.lengths[run.first : run.last, None, None] - 1  # later keys are masked, and may be anything
        at = torch.arange(first, run.longest, device=device).minimum(last)
        now.spots[key] = (bases * heads + torch.arange(heads, device=device)[:, None] * sizes + at).flatten()
    shape = (run.last - run.first, heads, run.longest - first, -1)
    keys, values = (held[layer].index_select(0, now.spots[key]) for held in (now.cache.keys, now.cache.values))
    return keys.view(shape), values.view(shape)


def _run_mask(now: AttentionPass, run: _Run, first: int, window: int | None) -> Tensor | None:
    if run.shortest == run.longest:
        return None
    key = (run.first, -1, window or 0)
    if key not in now.masks:
        lengths = now.lengths[run.first : run.last, None]
        spots = torch.arange(first, run.longest, device=lengths.device)
        hidden = spots >= lengths
        if window is not None:
            hidden |= spots < lengths - window
        mask = torch.zeros(hidden.shape, dtype=now.dtype, device=lengths.device)
        now.masks[key] = mask.masked_fill_(hidden, float("-inf"))[:, None, None]
    return now.masks[key]


def _attend_piece(now: AttentionPass, begin: int, piece: RowPiece, call: AttentionCall) -> Tensor:
    count, window = piece.stop - piece.start, call.look.window
    keys, values = now.cache.view(call.layer, piece.block.base, 1, piece.block.size)
    first = 0 if window is None else max(0, piece.start + 1 - window)
    query = call.query[None, begin : begin + count].transpose(1, 2)
    keys, values = keys[:, :, first : piece.stop], values[:, :, first : piece.stop]
    is_plain = piece.start == 0 and (window is None or piece.stop <= window)
    is_shared = query.shape[1] != keys.shape[1]
    if not call.look.is_plain:
        out = attend_scored(query, keys, values, _piece_mask(now, piece, first, window), call.look)
    elif is_shared and not is_plain and query.is_cuda:
        out = folded(query, keys, values, _piece_mask(now, piece, first, window), call.look.scaling)
    elif window is None and is_worth_it(query, values, piece.start):
        out = attend_in_two(query, keys, values, piece.start, call.look.scaling)
    else:
        out = F.scaled_dot_product_attention(
            query,
            keys,
            values,
            attn_mask=None if is_plain else _piece_mask(now, piece, first, window),
            is_causal=is_plain,
            scale=call.look.scaling,
            enable_gqa=is_shared,
        )
    return out[0].transpose(0, 1)


def folded(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scaling: float | None) -> Tensor:
    """Attention [1, heads, tokens, dim] of query heads that share key heads, under a mask [tokens, keys].

    Those that share one are treated as tokens: on a GPU the kernels that keep no scores in memory take a mask or shared
    heads, but not both. Without such a kernel the scores of 1,024 tokens after 40,000 take 5 GB at 32 heads.
    """
    heads, count, shared = query.shape[1], query.shape[2], keys.shape[1]
    out = F.scaled_dot_product_attention(
        query.reshape(1, shared, heads // shared * count, query.shape[3]),
        keys,
        values,
        attn_mask=mask.repeat(heads // shared, 1),
        scale=scaling,
    )
    return out.reshape(1, heads, count, values.shape[3])


def _piece_mask(now: AttentionPass, piece: RowPiece, first: int, window: int | None) -> Tensor:
    key = (piece.block.base, piece.start, window or 0)
    mask = now.masks.get(key)
    if mask is None:
        device = now.lengths.device
        own = torch.arange(piece.start, piece.stop, device=device)[:, None]
        spots = torch.arange(first, piece.stop, device=device)
        hidden = spots > own
        if window is not None:
            hidden |= spots <= own - window
        mask = torch.zeros(hidden.shape, dtype=now.dtype, device=device).masked_fill_(hidden, float("-inf"))
        now.masks[key] = mask
    return mask


def is_worth_it(query: Tensor, values: Tensor, past: int) -> bool:
    """Whether [1, heads, tokens, dim] after this many tokens is computed by `attend_in_two`."""
    return (
        query.device.type == "cpu"
        and past * query.shape[2] >= WORTH_IT
        and query.shape[3] == values.shape[3]
        and _works()
    )


def attend_in_two(query: Tensor, keys: Tensor, values: Tensor, past: int, scaling: float | None) -> Tensor:
    """Attention [1, heads, tokens, dim] of the last tokens of keys and values [1, key heads, all, dim], on a CPU.

    The past is read without a mask, new tokens causally, and both are joined. With a mask torch's kernel reads the
    mask's numbers for each head and computes what it hides. Without one all pieces of a prompt of 10,000 tokens took
    0.89 of the CPU time with 256 tokens a piece and 0.76 with 512 (float32, heads of 64), in bfloat16 0.95 (heads of
    128, 4,000 tokens). Short pieces after few tokens took 1.1 times as much, and keep the mask.
    """
    heads, count, dim = query.shape[1:]
    shared = keys.shape[1]
    # the query heads that share a key head are treated as tokens: all of them see the whole past
    grouped = query.reshape(1, shared, heads // shared * count, dim)
    before, before_sum = _kernel(grouped, keys[:, :, :past], values[:, :, :past], scaling, is_causal=False)
    own_keys, own_values = (one[:, :, past:].repeat_interleave(heads // shared, 1) for one in (keys, values))
    own, own_sum = _kernel(query, own_keys, own_values, scaling, is_causal=True)
    before, before_sum = before.reshape(own.shape), before_sum.reshape(own_sum.shape)
    # each is divided by the sum of its own exponentials, whose logarithms the kernel returns
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
    """Whether torch has the kernel under this name, which is not public, and it returns the sums."""
    query = (torch.arange(2 * 3 * 8, dtype=torch.float32).view(1, 2, 3, 8) % 7) / 7
    keys = (torch.arange(7 * 8, dtype=torch.float32).view(1, 1, 7, 8) % 5) / 5
    hidden = torch.arange(7) > torch.arange(4, 7)[:, None]
    want = torch.nn.functional.scaled_dot_product_attention(query, keys, keys, attn_mask=~hidden, enable_gqa=True)
    try:
        return torch.allclose(attend_in_two(query, keys, keys, 4, None), want, rtol=0, atol=1e-6)
    except (AttributeError, RuntimeError, TypeError):
        return False
