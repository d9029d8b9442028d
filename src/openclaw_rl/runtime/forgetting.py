"""Forgetting by the running server: it also clears its memory, without disturbing requests.

Learning is stopped while rows, bytes and memory are erased; then the versions that had learned from it are
made again by the training stage, while serving continues. docs/decisions/0015-forgetting-while-serving.md
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from openclaw_rl.core.message import Json
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import EngineError, OpenClawRLError, RequestError
from openclaw_rl.remake.forget_finish import certified, finish_beside, plan_text, read_plan
from openclaw_rl.remake.forget_plan import plan_of, summary
from openclaw_rl.runtime.installation import Installation
from openclaw_rl.store.forget.book import Forgetting, Phase
from openclaw_rl.store.forget.selection import ForgetTarget
from openclaw_rl.store.rows import VersionStatus

log = logging.getLogger(__name__)
ANSWERED_WITHIN_S = 120.0  # longer answers continue, and are cleared when they end
QUIET_WITHIN_S = 5.0  # how long to wait for a moment at which nobody needs the store
POLL_S = 0.5
RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class QueuedForgetting:
    """Something to be forgotten; `begun` gives its id when its rows are gone."""

    what: ForgetTarget
    has_records: bool
    begun: asyncio.Future[str]


@dataclass(slots=True)
class Forgetter:
    """Forgets one thing at a time. `learns` says whether the training stage runs here."""

    parts: Installation
    learns: bool
    _asked: asyncio.Queue[QueuedForgetting] = field(default_factory=lambda: asyncio.Queue(maxsize=1))
    _problem: str = ""  # why the engine could not clear its cache

    async def preview(self, what: ForgetTarget) -> dict[str, int]:
        """Counts of what would be erased. Raises ConfigError if nothing of that name is there."""
        found = await self.parts.store.forgettings.preview(what)
        return {} if found.is_nothing else summary(found)

    async def begin(self, what: ForgetTarget, has_records: bool) -> str:
        """The id of the forgetting, when its rows are gone. It is finished even if the caller goes away.

        Raises RequestError if an earlier one is not done, ConfigError if nothing of that name is there.
        """
        asked = QueuedForgetting(what, has_records, asyncio.get_running_loop().create_future())
        if await self.parts.store.forgettings.unfinished() is not None or self._asked.full():
            raise RequestError(
                "another forgetting is still under way, or its versions are being rebuilt",
                fix="ask again when it is done: GET /v1/rl/forget shows how far it has come"
                if self.learns
                else "this server was started with --no-learn and rebuilds no versions: stop it and "
                "run `openclaw-rl forget`",
                status=409,
                code="conflict",
            )
        self._asked.put_nowait(asked)
        return await asyncio.shield(asked.begun)

    async def standing(self) -> list[Mapping[str, Json]]:
        """The progress of each forgetting, oldest first."""
        return [self._told(held) for held in await self.parts.store.forgettings.all()]

    async def run(self) -> None:
        """Carries out requests, after unfinished earlier ones. Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._finish_open(group)
                asked = await self._next()
                if asked is not None:
                    await self._forget(asked, group)

    async def _next(self) -> QueuedForgetting | None:
        """The next request; None if a certificate may be complete meanwhile."""
        is_open = await self._certify()
        try:
            async with asyncio.timeout(POLL_S if is_open else None):
                return await self._asked.get()
        except TimeoutError:
            return None

    async def _forget(self, asked: QueuedForgetting, group: asyncio.TaskGroup) -> None:
        name, now = uuid.uuid4().hex[:12], time.time()
        async with self.parts.learning.stopped():
            try:
                await self.parts.training.start()  # a stopped step leaves nothing
                await self.parts.store.forgettings.begin(
                    asked.what,
                    name=name,
                    at_s=now,
                    planned=lambda sql, found: plan_text(
                        plan_of(sql, asked.what, found, name=name, at_s=now, has_records=asked.has_records)
                    ),
                )
            except BaseException as problem:
                if not asked.begun.done():
                    asked.begun.set_exception(problem)
                if isinstance(problem, OpenClawRLError):
                    log.warning("a forgetting could not begin: %s", problem)  # the caller may be gone
                    return
                raise
            log.info("erased the rows of forgetting=%s", name)
            if not asked.begun.done():
                asked.begun.set_result(name)
            await self._erase(name, group)

    async def _finish_open(self, group: asyncio.TaskGroup) -> None:
        """Finishes what was begun: here the interrupted part, and in the training stage the missing versions."""
        while (held := await self.parts.store.forgettings.unfinished()) is not None:
            if held.phase is not Phase.REBUILDING:
                async with self.parts.learning.stopped():
                    await self._erase(held.id, group)
            elif not self.learns:
                return
            else:
                await asyncio.sleep(POLL_S)

    async def _erase(self, name: str, group: asyncio.TaskGroup) -> None:
        """Everything except the weights: served versions, memory, folders, records, the store's file."""
        parts = self.parts
        held = next(item for item in await parts.store.forgettings.all() if item.id == name)
        gone = read_plan(held).gone
        await parts.trainer.aclose()  # it has the samples of its last step in memory
        await self._serve_what_is_left()
        left = {row.version for row in await parts.store.versions() if row.status is not VersionStatus.REFUSED}
        await parts.served.leave(lambda version: _is_gone(version, left), is_unused=False)
        self._let_go(gone)
        answered = group.create_task(self._answered(name))
        await asyncio.wait((answered,), timeout=ANSWERED_WITHIN_S)
        await parts.served.leave(lambda version: _is_gone(version, left), is_unused=True)
        self._let_go(gone)  # what finished requests had looked up
        await self._prompts_let_go()
        if parts.judge_model is not None:
            await parts.judge_model.let_go()
        await parts.activity.quiet_within(QUIET_WITHIN_S)
        await finish_beside(parts.store, parts.config.home)

    async def _answered(self, name: str) -> None:
        """Waits until all present requests are answered; nothing of it can be stored after that."""
        await self.parts.activity.outlived()
        self.parts.store.forgettings.answered(name)

    async def _serve_what_is_left(self) -> None:
        """From the next request on, serves what the store says is served; versions that saw it get no new requests."""
        while True:
            try:
                await self.parts.publishing.start()
            except (EngineError, RequestError) as problem:  # it is restarting, or has no room now
                log.warning("the version before what is forgotten cannot be loaded yet: %s", problem)
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _prompts_let_go(self) -> None:
        """Returns when the engine has cleared its cache; a remote server may refuse that, or be busy."""
        while True:
            try:
                await self.parts.engine.flush()
            except EngineError as problem:
                if str(problem) != self._problem:
                    log.warning("the engine is asked again to let go of what it has read: %s", problem)
                self._problem = str(problem)
                await asyncio.sleep(RETRY_S)
            else:
                self._problem = ""
                return

    def _let_go(self, gone: tuple[str, ...]) -> None:
        parts = self.parts
        parts.collect.let_go(frozenset(gone))
        parts.renderer.let_go()
        parts.learning.let_go()

    async def _certify(self) -> bool:
        """Completes certificates whose versions have left the gate; returns whether some are still there."""
        is_open = False
        for held in await self.parts.store.forgettings.all():
            certificate = read_plan(held).certificate
            if held.phase is Phase.DONE and certificate.at_gate and self.learns:
                waiting = {str(row.version) for row in await self.parts.store.candidates()}
                if waiting.isdisjoint(certificate.at_gate):
                    await certified(self.parts.store, self.parts.config.home, certificate)
                else:
                    is_open = True
        return is_open

    def _told(self, held: Forgetting) -> dict[str, Json]:
        plan = read_plan(held)
        phase = held.phase.value if held.phase in (Phase.REBUILDING, Phase.DONE) else "erasing"
        problem = self._problem if phase == "erasing" else ""
        if held.phase is Phase.DONE and plan.certificate.at_gate and self.learns:
            phase = "at_gate"
        return {
            "id": held.id,
            "phase": phase,
            "made": len(plan.made),
            "of": len(plan.past) or len(plan.certificate.rebuilt),
            "problem": self.parts.remaking.problem if held.phase is Phase.REBUILDING else problem,
            "is_made_here": self.learns,
            "certificate": msgspec.to_builtins(plan.certificate),
        }


def _is_gone(version: PolicyVersion, left: set[PolicyVersion]) -> bool:
    return not version.is_base and version not in left
