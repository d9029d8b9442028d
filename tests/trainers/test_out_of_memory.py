"""A lack of memory is known for what it is, however torch words it."""

from __future__ import annotations

import pytest
import torch

from openclaw_rl.trainers.worker import is_out_of_memory


def test_what_torch_says_of_a_lack_of_memory_is_known_for_it() -> None:
    with pytest.raises(RuntimeError) as told:
        torch.empty(2**50, dtype=torch.float64)
    assert is_out_of_memory(told.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("the memory of an elephant"))
