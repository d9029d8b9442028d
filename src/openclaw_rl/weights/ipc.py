"""Memory of one process that another maps: CUDA IPC, as torch has it.

torch counts, in a file of shared memory, how often such memory is mapped, and frees it when its owner and all others
let go of it. Here an owner keeps its weights until it ends, so that count decides nothing.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

COUNTERS = re.compile(r"/torch_\d+_\d+(_\d+)?")  # torch's names of its files in shared memory
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class StorageHandle:
    """What another process needs in order to map a storage."""

    memory: bytes  # CUDA's handle of the whole allocation
    size_bytes: int
    offset_bytes: int  # of the storage in the allocation
    counter: bytes  # the name of torch's file of counts
    counter_offset: int


class StorageIpc(Protocol):
    """A way to map another process's storages."""

    def place(self, device: torch.device) -> str | None:
        """The name that all processes have for this device; None if memory on it cannot be mapped this way."""

    def settle(self, device: torch.device) -> None:
        """Returns when everything that this process has ordered is written."""

    def give(self, storage: torch.UntypedStorage) -> StorageHandle:
        """The handle of an own storage. Raises RuntimeError."""

    def take(self, handle: StorageHandle, device: torch.device) -> torch.UntypedStorage:
        """Another process's storage. Raises RuntimeError; in the process that owns it, too."""


class CudaIpc:
    """CUDA's own."""

    def place(self, device: torch.device) -> str | None:
        """The GPU's UUID."""
        return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else None

    def settle(self, device: torch.device) -> None:
        """Waits for the GPU, so that others need not wait for an event."""
        torch.cuda.synchronize(device)

    def give(self, storage: torch.UntypedStorage) -> StorageHandle:
        """The handle of an own storage."""
        _, memory, size, offset, counter, at, _, _ = storage._share_cuda_()  # type: ignore[no-untyped-call]
        return StorageHandle(memory, size, offset, counter, at)

    def take(self, handle: StorageHandle, device: torch.device) -> torch.UntypedStorage:
        """Another process's storage."""
        index = torch.cuda.current_device() if device.index is None else device.index
        found: torch.UntypedStorage = torch.UntypedStorage._new_shared_cuda(
            index, handle.memory, handle.size_bytes, handle.offset_bytes, handle.counter, handle.counter_offset,
            bytes(64), False,  # no event to wait for
        )  # fmt: skip
        return found


def forget_counts(handle: StorageHandle) -> None:
    """Removes the file of counts that an owner left behind when it was killed."""
    name = handle.counter.decode(errors="replace")
    if COUNTERS.fullmatch(name):
        with contextlib.suppress(OSError):
            (SHARED_MEMORY / name[1:]).unlink()
