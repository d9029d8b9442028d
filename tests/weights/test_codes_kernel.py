"""The kernel of few rows and 8-bit codes: compiled on a GPU, else run by Triton's interpreter (`make test-kernels`)."""

import os

import pytest
import torch

from openclaw_rl.weights.forms import in_low_bits

pytest.importorskip("triton")
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (torch.cuda.is_available() or IS_INTERPRETED), reason="needs a CUDA device"),
]
SLACK = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


@pytest.mark.parametrize("dtype", SLACK)
@pytest.mark.parametrize("count", [1, 3, 16, 17, 64])
@pytest.mark.parametrize(("outputs", "into"), [(64, 256), (50, 320), (16, 64)])
def test_the_kernel_computes_what_torch_does(dtype: torch.dtype, count: int, outputs: int, into: int) -> None:
    from openclaw_rl.weights.codes_kernel import times

    if IS_INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter has no products in bfloat16")
    device = "cpu" if IS_INTERPRETED else "cuda"
    own = torch.Generator(device).manual_seed(count)
    low = in_low_bits(torch.randn(outputs, into, generator=own, device=device).to(dtype), 8)
    rows = torch.randn(count, 2 * into, generator=own, device=device).to(dtype)[:, :into]
    bias = torch.randn(outputs, generator=own, device=device).to(dtype)
    for added in (None, bias):
        want = rows.double() @ low.plain(dtype).double().t() + (0 if added is None else added.double())
        got = times(rows, low.codes, low.scales, added).double()
        assert float((got - want).norm() / want.norm()) < SLACK[dtype]


def test_the_check_at_the_start_passes() -> None:
    from openclaw_rl.weights import codes_kernel

    for dtype in (torch.float32,) if IS_INTERPRETED else SLACK:
        codes_kernel.check(torch.device("cpu" if IS_INTERPRETED else "cuda"), dtype, 64)
