"""The exchange with a remote trainer: a leased batch, and the feed that leases it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from openclaw_rl.core.message import Json
from openclaw_rl.core.sample import Sample


@dataclass(frozen=True, slots=True)
class LeasedBatch:
    """The samples of one step, and the required form of the adapter made from them.

    `batch` stays the same when the step is leased again, `lease` does not. `start` is the folder of the adapter to
    begin from, None for a new one. The lease ends after `lease_s` unless it is extended.
    """

    lease: str
    batch: str
    samples: tuple[Sample, ...]
    start: Path | None
    gentleness: int
    rank: int
    alpha: float
    targets: str
    lease_s: float


class TrainingFeed(Protocol):
    """Leases batches to a remote trainer. Calls that name a lease raise RequestError (410) when it has ended."""

    def standing(self) -> Mapping[str, Json]:
        """Whether a batch is offered, and whether it is leased."""

    async def lease(self, *, wait_s: float) -> LeasedBatch | None:
        """The batch on offer, leased to the caller only; None if there is none within `wait_s`."""

    def extend(self, lease: str) -> float:
        """Renews the lease; returns the seconds it now has."""

    def start_file(self, lease: str, name: str) -> Path:
        """A file of the adapter to begin from."""

    async def receive(self, lease: str, name: str, offset: int, data: bytes) -> int:
        """Stores a piece of a file of the adapter made; returns the file's size.

        Offset 0 restarts the file. Raises RequestError (409) for another offset than the file's size.
        """

    async def hand_back(self, lease: str, digest: str, metrics: Mapping[str, float]) -> bool:
        """Takes the adapter; False if it was taken before. Raises RequestError (422) if it cannot be used."""

    async def give_up(self, lease: str, why: str) -> None:
        """Fails the step: its samples are kept and offered again, in smaller batches."""
