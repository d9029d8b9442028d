"""Base weights once in a GPU's memory: the engine's process lends its own, and the trainer's reads them there.

The lender describes its weights in a file of the user's cache folder, and holds a lock on it for as long as the memory
is valid. The system releases the lock however the process ends, so a file without a lock says that its lender is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import torch
from torch import Tensor

from openclaw_rl.errors import TrainerError, first_line
from openclaw_rl.weights.parts import WeightPart, is_equal, label, parts_of

log = logging.getLogger(__name__)
COUNTERS = re.compile(r"/torch_\d+_\d+(_\d+)?")  # torch's names of its files in shared memory
SHARED_MEMORY = Path("/dev/shm")
LEAST = 32 << 20  # bytes of weights below which sharing is not worth the while
ENDED = "the process whose base weights the trainer reads on the GPU has ended"
WAIT = "wait: the next step starts the trainer again, with the new engine's weights or its own"


@dataclass(frozen=True, slots=True)
class LentTensor:
    """Where a tensor is."""

    storage: int  # its place in the list of storages
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # in numbers, from the start of the storage


@dataclass(frozen=True, slots=True)
class LoanTerms:
    """The content of the file: everything that is lent, by the model's own names."""

    storages: list[StorageHandle]
    tensors: dict[str, LentTensor]


def loan_folder(cache: Path) -> Path:
    """The folder of the files, in the cache folder."""
    return cache / "gpu"


@contextmanager
def lent(
    parts: Mapping[str, WeightPart], folder: Path, *, ipc: StorageIpc | None = None, least: int = LEAST
) -> Iterator[Path | None]:
    """Lends these weights to other processes within the context; gives the file, or None if they are not lent.

    The tensors may not be replaced meanwhile, and are not freed. They have to be on one device.
    """
    ipc = ipc or CudaIpc()
    remove_dead(folder)
    tensors = {name: part.tensor() for name, part in parts.items()}
    device = next((one.device for one in tensors.values()), torch.device("cpu"))
    place = ipc.place(device)
    file, handle = None, None
    if place is not None and sum(one.nbytes for one in tensors.values()) >= least:
        try:
            terms = _terms(tensors, ipc)
            ipc.settle(device)
            file = folder / f"{label(parts, place)}-{secrets.token_hex(4)}.json"
            handle = _write(file, msgspec.json.encode(terms))
        except (OSError, RuntimeError) as error:
            log.warning("the base weights on the GPU are not shared with the trainer: %s", first_line(error))
    try:
        yield None if handle is None else file
    finally:
        if handle is not None and file is not None:
            file.unlink(missing_ok=True)
            os.close(handle)


class Loans:
    """What this process reads of other processes' weights, and whether those processes still live."""

    def __init__(self, folder: Path, *, ipc: StorageIpc | None = None) -> None:
        self._folder = folder
        self._ipc: StorageIpc = ipc or CudaIpc()
        self._held: list[int] = []  # open files, whose locks are their lenders'

    @property
    def count(self) -> int:
        """How many processes' weights are read here."""
        return len(self._held)

    def reach(self, device: torch.device) -> bool:
        """Whether memory on this device can be borrowed at all."""
        return self._ipc.place(device) is not None

    def borrow(self, model: torch.nn.Module, device: torch.device) -> int:
        """The bytes of this model's weights that are another process's from now on; the other weights do not change.

        The model is frozen, in its final number format, and best on the CPU: of each tensor that differs from what is
        lent the model keeps its own. So what it computes does not depend on whether anything was lent.
        """
        place = self._ipc.place(device)
        if place is None:
            return 0
        remove_dead(self._folder)
        parts = parts_of(model)
        for file in sorted(self._folder.glob(f"{label(parts, place)}-*.json")):
            try:
                found = self._from(file, parts, device)
            except (OSError, RuntimeError, IndexError, msgspec.MsgspecError) as error:
                log.warning("the engine's weights are not shared, the trainer has its own: %s", first_line(error))
                continue
            if found:
                return found
        return 0

    def check(self) -> None:
        """Raises TrainerError if a process whose weights are read here has ended: their bytes may be anything now."""
        if not all(is_locked(handle) for handle in self._held):
            raise TrainerError(ENDED, fix=WAIT)

    def close(self) -> None:
        """Watches the lenders no more. The weights may not be used after this."""
        while self._held:
            os.close(self._held.pop())

    def _from(self, file: Path, parts: Mapping[str, WeightPart], device: torch.device) -> int:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        shared = 0
        try:
            if os.fstat(handle).st_uid == os.getuid() and is_locked(handle):
                equal = list(self._equal(_terms_in(handle), parts, device))
                if is_locked(handle):  # what was compared was still the lender's
                    for part, there in equal:
                        part.put(there)
                        shared += there.nbytes
        finally:
            if not shared:
                os.close(handle)
        if shared:
            self._held.append(handle)
        return shared

    def _equal(
        self, terms: LoanTerms, parts: Mapping[str, WeightPart], device: torch.device
    ) -> Iterator[tuple[WeightPart, Tensor]]:
        storages: dict[int, torch.UntypedStorage] = {}
        for name, part in parts.items():
            own, one = part.tensor(), terms.tensors.get(name)
            if one is None or one.shape != tuple(own.shape) or one.dtype != str(own.dtype):
                continue
            if one.storage not in storages:
                storages[one.storage] = self._ipc.take(terms.storages[one.storage], device)
            empty = torch.empty(0, dtype=own.dtype, device=device)
            there = empty.set_(storages[one.storage], one.offset, one.shape, one.stride)
            if is_equal(own, there):
                yield part, there


def is_locked(handle: int) -> bool:
    """Whether the lender of this open file still lives."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(handle, fcntl.LOCK_UN)
    return False


def remove_dead(folder: Path) -> None:
    """Removes what killed lenders left behind; what cannot be removed stays for the next time."""
    for file in folder.glob("*.json"):
        with contextlib.suppress(OSError):  # removed by another process just now
            handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if not is_locked(handle):
                    with contextlib.suppress(msgspec.MsgspecError):
                        for storage in _terms_in(handle).storages:
                            forget_counts(storage)
                    file.unlink()
            finally:
                os.close(handle)


def _terms(tensors: Mapping[str, Tensor], ipc: StorageIpc) -> LoanTerms:
    storages: list[StorageHandle] = []
    places: dict[int, int] = {}  # of storages in the list: layers that are computed as one share one
    found: dict[str, LentTensor] = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        if storage._cdata not in places:
            places[storage._cdata] = len(storages)
            storages.append(ipc.give(storage))
        place = places[storage._cdata]
        found[name] = LentTensor(
            place, str(tensor.dtype), tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        )
    return LoanTerms(storages, found)


def _terms_in(handle: int) -> LoanTerms:
    size = os.fstat(handle).st_size
    return msgspec.json.decode(os.pread(handle, size, 0), type=LoanTerms)


def _write(file: Path, content: bytes) -> int:
    """An open file with this content, locked until it is closed, that gets its name when it is complete."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=file.parent, suffix=".new")  # for this user alone
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with os.fdopen(handle, "wb", closefd=False) as target:
            target.write(content)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        os.close(handle)
        raise
    return handle


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
    """CUDA's own, as torch has it.

    torch counts, in a file of shared memory, how often such memory is mapped, and frees it when its owner and all
    others let go of it. Here an owner keeps its weights until it ends, so that count decides nothing.
    """

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
