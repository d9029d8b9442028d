"""Products of few rows with 8-bit codes on a GPU, as a Triton kernel: a weight is read once, as one byte.

A decode step mostly waits for the weights. With torch's operations codes are read, written as numbers, scaled, and
read again: nine bytes a weight. Here each program reads the codes of some outputs and scales them as it multiplies.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LEAST_ROWS = 16  # of a product of the tensor cores
WIDE = 32  # outputs of a program
DEEP = 256  # inputs that it reads at once, or fewer
WARPS, STAGES = 4, 3
STAGE_BYTES = 28 << 10  # of shared memory that it reads at once: consumer cards have 99 KiB for all stages


# rows [count, into] by their stride; codes [outputs, into]; scales [outputs], the largest weight of each;
# bias [outputs] if there is one; out [count, outputs]
# fmt: off
@triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
def _product(  # type: ignore[no-untyped-def] # noqa: PLR0917  # a kernel has no keywords at its call
    rows, codes, scales, bias, out, count, into, outputs, rows_row,
    has_bias: tl.constexpr, room: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr,
):
    # fmt: on
    own, row, along = tl.program_id(0) * wide + tl.arange(0, wide), tl.arange(0, room), tl.arange(0, deep)
    is_own, is_row = own < outputs, row < count
    largest = tl.load(scales + own, mask=is_own, other=0.0)
    scale = tl.div_rn(largest, 127.0).to(rows.dtype.element_ty)
    total = tl.zeros([wide, room], tl.float32)
    for at in range(0, into, deep):
        spot = at + along
        is_spot = spot < into
        code = tl.load(codes + own[:, None] * into + spot[None, :], mask=is_own[:, None] & is_spot[None, :], other=0)
        read = tl.load(
            rows + row[None, :] * rows_row + spot[:, None], mask=is_row[None, :] & is_spot[:, None], other=0.0
        )
        weight = code.to(scale.dtype) * scale[:, None]  # rounded as the trainer reads it back
        total = tl.dot(weight, read, total, input_precision="ieee")
    if has_bias:
        total += tl.load(bias + own, mask=is_own, other=0.0).to(tl.float32)[:, None]
    tl.store(
        out + row[None, :] * outputs + own[:, None],
        total.to(out.dtype.element_ty),
        mask=is_row[None, :] & is_own[:, None],
    )


def times(rows: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """Rows [n, in] times the weights of 8-bit codes [out, in] and scales [out], plus the bias: [n, out]."""
    count, into = rows.shape
    outputs = len(codes)
    out = torch.empty(count, outputs, dtype=rows.dtype, device=rows.device)
    room = max(LEAST_ROWS, triton.next_power_of_2(count))
    deep = DEEP
    while deep * (WIDE + room * rows.itemsize) > STAGE_BYTES:
        deep //= 2
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    _product[(triton.cdiv(outputs, WIDE),)](
        rows,
        codes,
        scales,
        scales if bias is None else bias,
        out,
        count,
        into,
        outputs,
        rows.stride(0),
        has_bias=bias is not None,
        room=room,
        wide=WIDE,
        deep=deep,
        num_warps=WARPS,
        num_stages=STAGES,
    )
    return out


def check(device: torch.device, dtype: torch.dtype, most_rows: int) -> None:
    """Raises RuntimeError if the kernel computes something else on this device than torch does.

    It is compiled here for each number of rows, with a bias and without, so that no step waits for that.
    """
    own = torch.Generator(device).manual_seed(0)
    codes = torch.randint(-127, 128, (256, 320), generator=own, device=device, dtype=torch.int8)
    scales = torch.rand(256, generator=own, device=device) + 0.1
    plain = codes.to(dtype) * (scales / 127).to(dtype)[:, None]
    bias = torch.randn(256, generator=own, device=device).to(dtype)
    count = LEAST_ROWS
    while count <= most_rows:
        rows = torch.randn(count, 320, generator=own, device=device).to(dtype)
        want = rows.double() @ plain.double().t()
        for added in (None, bias):
            off = times(rows, codes, scales, added).double() - want - (0 if added is None else added.double())
            off_by = float(off.norm() / want.norm())
            if not off_by < (1e-4 if dtype == torch.float32 else 2e-2):
                raise RuntimeError(f"a product with 8-bit codes is off by {off_by:.2g} for {count} rows")
        count *= 2
