"""The kernel of decoding rows: compiled on a GPU, else run by Triton's interpreter (`make test-kernels`)."""

import os

import pytest
import torch
from test_graphs import rows_by_torch

from openclaw_rl.engines.local.cache import AttentionParams, Geometry

pytest.importorskip("triton")
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (torch.cuda.is_available() or IS_INTERPRETED), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*"),  # numpy about the logarithm of 0
]
SLACK = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


@pytest.mark.parametrize("dtype", SLACK)
@pytest.mark.parametrize(
    ("shared", "dims", "window"), [(2, (128, 128), None), (4, (64, 64), 100), (1, (256, 80), None), (2, (8, 24), 16)]
)
def test_the_kernel_computes_what_torch_does(
    dtype: torch.dtype, shared: int, dims: tuple[int, int], window: int | None
) -> None:
    from openclaw_rl.engines.local.ragged import attend_rows

    if IS_INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter has no products in bfloat16")
    device = "cpu" if IS_INTERPRETED else "cuda"
    own = torch.Generator(device).manual_seed(0)
    lengths, size = [1, 63, 64, 65, 500], 512
    lengths += [] if IS_INTERPRETED else [8192]
    size = size if IS_INTERPRETED else 8192
    bases = [size * at for at in (3, 0, 5, 1, 4, 2)][: len(lengths)]
    keys, values = (torch.randn(6 * size * shared, dim, generator=own, device=device).to(dtype) for dim in dims)
    query = torch.randn(len(lengths), 4 * shared + 2, dims[0], generator=own, device=device).to(dtype)[:, : 4 * shared]
    for held in (keys, values):  # what no row has written may be anything
        held.view(6, shared, size, -1)[3, :, 1:] = float("nan")
    blocks = torch.tensor([bases, [size] * len(lengths)], device=device)
    spans = torch.tensor(lengths, device=device)
    look = AttentionParams(0.11, window)
    want = rows_by_torch(query.double(), keys.double(), values.double(), blocks, spans, key_heads=shared, look=look)
    got = attend_rows(query, keys, values, blocks, spans, key_heads=shared, look=look).double()
    assert float((got - want).norm() / want.norm()) < SLACK[dtype]


def test_the_check_at_the_start_passes() -> None:
    from openclaw_rl.engines.local import ragged

    if IS_INTERPRETED:
        ragged.check(torch.device("cpu"), torch.float32, Geometry(2, 8, 24))
        return
    for dtype in SLACK:
        ragged.check(torch.device("cuda"), dtype, Geometry(8, 128, 128))
