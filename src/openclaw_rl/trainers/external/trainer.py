"""A trainer that is an external program: a step offers its batch, and ends when an adapter is handed back.

Leases are not stored. A step that is not finished when the server ends leaves no trace, and its samples wait: the next
step offers them with a new lease. A version is made once, because the store commits step and version together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, Adapter, StepProgress, StepReport, digest_of_folder
from openclaw_rl.core.feed import LeasedBatch
from openclaw_rl.core.message import Json
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.to_end import to_end
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import AdapterError, RequestError, TrainerError
from openclaw_rl.trainers.external.checks import check_adapter
from openclaw_rl.trainers.settings import TrainerSettings

log = logging.getLogger(__name__)
FILES = (CONFIG, WEIGHTS)
MOST_METRICS = 32
REMEMBERED = 64  # accepted adapters whose leases are still known, for a client that did not receive the answer
LOOK_S = 1.0  # how often a waiting client checks whether a lease has ended
_METRIC = re.compile(r"[a-z][a-z0-9_]{0,40}")
_MEASURED_HERE = (
    "seconds",
    "updates",
    "updates_undone",
    "gentleness",
)  # metrics by which the costs of local steps are known


@dataclass(slots=True)
class OfferedBatch:
    """The current step. `lease` is empty while nobody has it; a lease whose adapter is being checked has no end."""

    batch: str
    samples: tuple[Sample, ...]
    start: Path | None
    gentleness: int
    taken: asyncio.Future[dict[str, float]]
    since_s: float
    lease: str = ""
    until_s: float = 0.0
    leases: int = 0


@dataclass(slots=True)
class ExternalTrainer:
    """Implements `core.protocols.Trainer` for the server, and `core.feed.TrainingFeed` for the external program.

    What is handed back lies in `received` until its step is over.
    """

    model: Path
    settings: TrainerSettings
    received: Path
    clock: Callable[[], float] = time.monotonic
    _offer: OfferedBatch | None = None
    _offered: asyncio.Event = field(default_factory=asyncio.Event)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _made: Path | None = None  # the adapter of the last step
    _given_back: dict[str, str] = field(default_factory=dict)  # lease -> digest

    @property
    def progress(self) -> StepProgress | None:
        """How long the batch has been on offer; None if there is none."""
        return None if self._offer is None else StepProgress(spent_s=self.clock() - self._offer.since_s)

    async def step(
        self, samples: Sequence[Sample], *, resume: Path | None, under: Path | None = None, gentleness: int = 0
    ) -> StepReport:
        """Offers the batch and waits without limit until an adapter made from it is handed back.

        Raises TrainerError if the external program gives up.
        """
        if under is not None:
            raise TrainerError("an external trainer makes only shared versions", fix="set train.scopes = shared")
        await asyncio.to_thread(self._forget_files)
        taken: asyncio.Future[dict[str, float]] = asyncio.get_running_loop().create_future()
        offer = OfferedBatch(secrets.token_hex(8), tuple(samples), resume, gentleness, taken, self.clock())
        self._offer = offer
        self._offered.set()
        log.info("offered batch=%s samples=%d", offer.batch, len(samples))
        try:
            metrics = await taken
        finally:
            self._offer = None
            self._offered.clear()
        self._made = self.received / offer.lease
        return StepReport(took_step=True, metrics=metrics)

    async def prepare(self) -> None:
        """Nothing: whoever trains has everything ready, or not."""

    async def rebase(self, *, resume: Path, under: Path | None) -> None:
        """Raises TrainerError: only the local trainer bases users' or agents' versions on shared ones."""
        raise TrainerError("an external trainer cannot base one version on another", fix="set train.scopes = shared")

    async def export(self, folder: Path, version: PolicyVersion) -> Adapter:
        """Writes the adapter that was handed back last. Raises TrainerError if there is none."""
        if self._made is None:
            raise TrainerError("there is no handed-back adapter to write")
        return await asyncio.to_thread(_copied, self._made, folder, version)

    async def aclose(self) -> None:
        """Removes adapters that were handed back and never written."""
        await asyncio.to_thread(self._forget_files)

    def standing(self) -> dict[str, Json]:
        """The batch on offer, its samples, and whether it is leased and for how long."""
        offer = self._offer
        if offer is None:
            return {"batch": None}
        is_leased = self._is_leased(offer)
        left = max(0.0, offer.until_s - self.clock())
        return {
            "batch": offer.batch,
            "samples": len(offer.samples),
            "leases": offer.leases,
            "is_leased": is_leased,
            "left_s": left if is_leased and math.isfinite(left) else None,
        }

    async def lease(self, *, wait_s: float) -> LeasedBatch | None:
        """The batch on offer, with a new lease; None if no free one appears within `wait_s`."""
        end_s = self.clock() + wait_s
        while self._offer is None or self._is_leased(self._offer):
            left_s = end_s - self.clock()
            if left_s <= 0:
                return None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, LOOK_S)):
                    await (asyncio.sleep(left_s) if self._offer is not None else self._offered.wait())
        offer, settings = self._offer, self.settings
        if offer.lease:
            log.warning("batch=%s is leased again: lease %s has ended", offer.batch, offer.lease)
        offer.lease, offer.until_s = secrets.token_hex(16), self.clock() + settings.lease_s
        offer.leases += 1
        return LeasedBatch(
            offer.lease, offer.batch, offer.samples, offer.start, offer.gentleness,
            settings.rank, settings.alpha, settings.targets, settings.lease_s,
        )  # fmt: skip

    def extend(self, lease: str) -> float:
        """Restarts the lease's time. Raises RequestError (410)."""
        offer = self._held(lease)
        offer.until_s = max(offer.until_s, self.clock() + self.settings.lease_s)
        return self.settings.lease_s

    def start_file(self, lease: str, name: str) -> Path:
        """A file of the adapter to start from. Raises RequestError (404, 410)."""
        offer = self._held(lease)
        if offer.start is None or name not in FILES:
            raise RequestError(f"the batch has no start file {name}", fix=f"ask for {' or '.join(FILES)}", status=404)
        return offer.start / name

    async def receive(self, lease: str, name: str, offset: int, data: bytes) -> int:
        """Stores a piece of the adapter. Raises RequestError (404, 409, 410)."""
        if name not in FILES:
            raise RequestError(f"an adapter has no file {name}", fix=f"send {' and '.join(FILES)}", status=404)
        async with self._writing:
            self._held(lease)
            path = self._place(lease) / name
            size = await to_end(asyncio.to_thread(_appended, path, offset, data))
        if size != offset + len(data):
            raise RequestError(
                f"{name} has {size} bytes here, not {offset}",
                fix="send the piece that begins there, or start again at 0",
                status=409,
                code="wrong_offset",
            )
        return size

    async def hand_back(self, lease: str, digest: str, metrics: Mapping[str, float]) -> bool:
        """Accepts the adapter that was sent. Returns False for the same again; another one raises RequestError (409).

        Raises RequestError (410) if the lease has ended, and (422) if the adapter cannot be used: then the lease
        continues.
        """
        async with self._writing:
            if lease in self._given_back:
                return self._again(lease, digest)
            offer, found = self._held(lease), _checked(metrics)
            until_s, offer.until_s = offer.until_s, math.inf  # nobody else gets it while it is checked
            try:
                await to_end(asyncio.to_thread(self._check, offer, digest))
            except AdapterError as problem:
                raise RequestError(
                    f"the adapter cannot be used: {problem.problem}", fix=problem.fix, status=422, code="bad_adapter"
                ) from problem
            finally:
                offer.until_s = until_s
            if self._offer is not offer or offer.taken.done():  # stopped meanwhile
                raise _ended(lease)
            self._given_back = {**dict([*self._given_back.items()][1 - REMEMBERED :]), lease: digest}
            offer.taken.set_result(found)
        log.info("handed back batch=%s digest=%s", offer.batch, digest[:12])
        return True

    async def give_up(self, lease: str, why: str) -> None:
        """Fails the step with this reason. Raises RequestError (410)."""
        async with self._writing:
            offer = self._held(lease)
            self._offer = None
            if not offer.taken.done():
                offer.taken.set_exception(TrainerError(f"the external trainer gave up: {why}"))

    def _is_leased(self, offer: OfferedBatch) -> bool:
        return bool(offer.lease) and (self.clock() < offer.until_s or offer.taken.done())

    def _held(self, lease: str) -> OfferedBatch:
        """The batch with this lease. Raises RequestError (409, 410)."""
        if lease in self._given_back:
            raise RequestError(
                f"lease {lease} is over: its adapter was taken", fix="lease the next batch", status=409,
                code="already_handed_back",
            )  # fmt: skip
        offer = self._offer
        if offer is None or offer.lease != lease or not self._is_leased(offer):
            raise _ended(lease)
        return offer

    def _again(self, lease: str, digest: str) -> bool:
        if self._given_back[lease] != digest:
            raise RequestError(
                f"lease {lease} was given another adapter before", fix="lease the next batch", status=409,
                code="already_handed_back",
            )  # fmt: skip
        return False

    def _check(self, offer: OfferedBatch, digest: str) -> None:
        folder, settings = self._place(offer.lease), self.settings
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise AdapterError(f"{missing[0]} was not sent", fix="send it, then hand the adapter back")
        found = digest_of_folder(folder)
        if found != digest:
            raise AdapterError(f"what arrived has the digest {found}, not {digest}", fix="send the files again")
        check_adapter(folder, model=self.model, rank=settings.rank, alpha=settings.alpha, start=offer.start)

    def _place(self, lease: str) -> Path:
        self.received.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.received / lease

    def _forget_files(self) -> None:
        shutil.rmtree(self.received, ignore_errors=True)
        self._made = None


def _ended(lease: str) -> RequestError:
    return RequestError(
        f"lease {lease} has ended: the batch is offered to others, or the server was started again",
        fix="discard what was made with it, and lease again",
        status=410,
        code="lease_ended",
    )


def _checked(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics to keep with the version. Raises RequestError."""
    bad = [name for name, value in metrics.items() if not _METRIC.fullmatch(name) or not math.isfinite(value)]
    if bad or len(metrics) > MOST_METRICS:
        raise RequestError(
            f"metrics {', '.join(bad[:3]) or len(metrics)} cannot be kept",
            fix=f"send at most {MOST_METRICS} finite numbers under names of small letters",
            param="metrics",
        )
    return {name: float(value) for name, value in metrics.items() if name not in _MEASURED_HERE}


def _appended(path: Path, offset: int, data: bytes) -> int:
    """Appends the piece and returns the file's size; if the piece does not begin at the end, only the size.

    A piece that is sent again, since its answer was lost, changes nothing.
    """
    if not offset:
        for other in path.parent.parent.iterdir():  # files of leases that have ended
            if other != path.parent:
                shutil.rmtree(other, ignore_errors=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    size = path.stat().st_size if path.exists() else 0
    if offset and offset != size:
        return size
    with path.open("ab" if offset else "wb") as stream:
        stream.write(data)
    return offset + len(data)


def _copied(made: Path, folder: Path, version: PolicyVersion) -> Adapter:
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(made / name, folder / name)
    return Adapter(folder, digest_of_folder(folder), version)
