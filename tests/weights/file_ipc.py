"""Memory of one process that another maps, on a machine without a GPU: torch's storages in files of shared memory."""

from __future__ import annotations

import torch

from openclaw_rl.weights.lending import StorageHandle


class FileIpc:
    """What CUDA IPC does, for storages on the CPU."""

    def place(self, device: torch.device) -> str | None:
        """One name for the CPU of this machine."""
        return "cpu of this machine" if device.type == "cpu" else None

    def settle(self, device: torch.device) -> None:
        """Nothing is written later."""

    def give(self, storage: torch.UntypedStorage) -> StorageHandle:
        """Moves the storage into a file of shared memory."""
        manager, name, size = storage._share_filename_cpu_()
        return StorageHandle(name, size, 0, manager, 0)

    def take(self, handle: StorageHandle, device: torch.device) -> torch.UntypedStorage:
        """The same memory."""
        found: torch.UntypedStorage = torch.UntypedStorage._new_shared_filename_cpu(
            handle.counter, handle.memory, handle.size_bytes
        )
        return found


class RefusedIpc(FileIpc):
    """A system that does not allow it, for those that give or for those that take."""

    def __init__(self, *, may_give: bool) -> None:
        self.may_give = may_give

    def give(self, storage: torch.UntypedStorage) -> StorageHandle:
        """Refuses, or gives."""
        if not self.may_give:
            raise RuntimeError("CUDA error: operation not supported\nmore lines")
        return FileIpc().give(storage)

    def take(self, handle: StorageHandle, device: torch.device) -> torch.UntypedStorage:
        """Refuses."""
        raise RuntimeError("CUDA error: invalid argument\nmore lines")
