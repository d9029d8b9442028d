"""The engine as the rest of the program sees it: an asyncio object in front of a child process with the model.

If the child dies it is started again, and every request continues from the tokens it has: readers of a stream notice
only a pause.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.completion import SampledToken, Scores
from openclaw_rl.core.engine import EngineInfo, EngineStats
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Grammar, Sampling
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.limits import check_prompt, check_score, check_version
from openclaw_rl.engines.local import wire
from openclaw_rl.engines.local.link import ChildLink, Questions, Stream, StreamResumer
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.errors import AdapterError, ConfigError, EngineError, ModelError, RequestError
from openclaw_rl.weights.mapped_files import cache_folder, remove_unused

log = logging.getLogger(__name__)
RESTART_WINDOW_S = 600.0
CLOSE_S = 5.0
FLUSHED_POLL_S = 0.02


class LocalEngine:
    """An `Engine` on this machine; made by `start`."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._link: ChildLink | None = None
        self._info: EngineInfo | None = None
        self._starting: asyncio.Future[EngineInfo] | None = None
        self._reviving: asyncio.Task[None] | None = None
        self._is_up = False
        self._is_closing = False
        self._broken: EngineError | None = None
        self._restarts: list[float] = []
        self._next_id = 0
        self._seeds = random.Random(settings.seed)
        self._streams: dict[int, Stream] = {}
        self._resuming = StreamResumer(self._send, self._unload_leaving)
        self._scores: dict[int, tuple[wire.ScoreJob, asyncio.Future[Scores]]] = {}
        self._loads: dict[int, tuple[wire.Load, asyncio.Future[None]]] = {}
        self._questions = Questions(self._send)
        self._adapters: dict[PolicyVersion, Adapter] = {}
        self._leaving: set[PolicyVersion] = set()
        # scores wait here; streams never do
        self._score_places = asyncio.Semaphore(settings.max_rows)

    @classmethod
    async def start(cls, settings: EngineSettings) -> LocalEngine:
        """An engine that serves. Raises ModelError or ConfigError if the model cannot be served."""
        engine = cls(settings)
        await engine._open()
        return engine

    async def aclose(self) -> None:
        """Ends the child. Streams that are still open end with EngineError."""
        self._is_closing = True
        if self._reviving is not None:
            self._reviving.cancel()
            await asyncio.gather(self._reviving, return_exceptions=True)
        self._fail_all(EngineError("the engine was closed"))
        if self._link is not None:
            await self._link.close(timeout_s=CLOSE_S)
        await asyncio.to_thread(remove_unused, cache_folder())

    @property
    def info(self) -> EngineInfo:
        """Facts of the served model."""
        if self._info is None:
            raise EngineError("the engine has not started")
        return self._info

    @property
    def pid(self) -> int:
        """The child's process id."""
        return 0 if self._link is None else self._link.pid

    @property
    def is_up(self) -> bool:
        """Whether a child runs and accepts requests; they wait while it is restarted."""
        return self._is_up

    @property
    def is_dead(self) -> bool:
        """Whether the child died once too often and is not started again."""
        return self._broken is not None

    # -- Engine
    async def generate(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> AsyncIterator[SampledToken]:
        """Sampled tokens as they come; see core.protocols.Engine. Ends only at `sampling.stop_ids` or by length."""
        stream = self._open_stream(prompt, sampling, version)
        try:
            while True:
                for item in await stream.items():
                    yield item
                    if item.finish is not None:
                        return
        finally:
            self._close_stream(stream)

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        """Log-probabilities of the prompt's own ids from `start` on."""
        check_score(prompt, start, self.info)
        async with self._score_places:
            self._check_version(version)
            job = wire.ScoreJob(self._new_id(), prompt.tokens, start, version, top_k)
            future: asyncio.Future[Scores] = asyncio.get_running_loop().create_future()
            self._scores[job.id] = (job, future)
            self._send(job)
            try:
                return await future
            finally:
                del self._scores[job.id]
                if not future.done() or future.cancelled():
                    self._send(wire.Cancel(job.id))
                self._forget_unused(version)

    async def load(self, adapter: Adapter) -> None:
        """Loads a version. Raises AdapterError, or EngineError if there is no room; then nothing has changed."""
        if adapter.version.is_base:
            raise AdapterError(
                f"version {adapter.version} is the base model", fix="number adapters from 1 on; 0 needs no loading"
            )
        if self._broken is not None:
            raise self._broken
        await self._load(adapter)
        self._adapters[adapter.version] = adapter
        self._leaving.discard(adapter.version)

    async def unload(self, version: PolicyVersion) -> None:
        """Accepts no new requests on the version; its slot is free when the last one ends."""
        if version in self._adapters and version not in self._leaving:
            self._leaving.add(version)
            self._send(wire.Unload(version))
            self._forget_unused(version)

    async def flush(self) -> None:
        """Drops cached prefixes, those of running requests when they end; returns once what is dropped is wiped."""
        self._send(wire.Flush())
        with suppress(EngineError):
            stats = await self.stats()
            while stats.unwiped_tokens:
                await asyncio.sleep(FLUSHED_POLL_S)
                stats = await self.stats()

    async def stats(self) -> EngineStats:
        """The child's counters. Raises EngineError if it is gone."""
        if self._broken is not None or not self._is_up:
            raise self._broken or EngineError("the engine is starting again", fix="ask again in a moment")
        return replace(await self._questions.stats(self._new_id()), restarts=len(self._restarts))

    async def check_grammar(self, grammar: Grammar) -> None:
        """Returns once answers can be constrained to it. Raises RequestError if they cannot."""
        if self._broken is not None:
            raise self._broken
        if self._is_up:  # else it is compiled when the request is submitted
            await self._questions.compile(self._new_id(), grammar)

    # -- requests
    def _open_stream(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> Stream:
        check_prompt(prompt, self.info)
        self._check_version(version)
        if len(self._streams) >= self._settings.max_rows + self._settings.max_waiting:
            raise RequestError(
                f"{len(self._streams)} requests are running or waiting",
                fix="try again in a second",
                status=429,
                code="queue_full",
            )
        seed = self._seeds.getrandbits(63) if sampling.seed is None else sampling.seed
        stream = Stream(self._new_id(), prompt.tokens, sampling, version, seed)
        self._streams[stream.id] = stream
        if self._is_up and self._reviving is None:
            self._send(stream.submit())
        return stream

    def _close_stream(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)
        if not stream.has_ended:
            stream.has_ended = True
            if stream.is_submitted:
                self._send(wire.Cancel(stream.id))
        self._resuming.went_on(stream)
        self._forget_unused(stream.version)

    def _check_version(self, version: PolicyVersion) -> None:
        if self._broken is not None:
            raise self._broken
        if self._is_closing:
            raise EngineError("the engine was closed")
        check_version(version, self._adapters, self._leaving)

    def _forget_unused(self, version: PolicyVersion) -> None:
        """Keeps a version that is being unloaded for a restart as long as a request runs on it."""
        if version in self._leaving:
            users = [stream.version for stream in self._streams.values() if not stream.has_ended]
            users += [job.version for job, _ in self._scores.values()]
            if version not in users:
                self._leaving.discard(version)
                self._adapters.pop(version, None)

    async def _load(self, adapter: Adapter) -> None:
        load = wire.Load(self._new_id(), adapter)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loads[load.id] = (load, future)
        self._send(load)
        try:
            await future
        finally:
            del self._loads[load.id]

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _send(self, command: wire.Command) -> None:
        """Sends to the child. Nothing is sent while it is restarted: all open requests are sent afterwards."""
        if self._is_up and self._link is not None:
            self._link.send(command)

    # -- the child
    async def _open(self) -> None:
        """Starts a child and waits until it serves."""
        self._starting = asyncio.get_running_loop().create_future()
        self._link = await ChildLink.open(self._on_message, self._on_gone, threads=self._settings.threads)
        self._link.send(wire.Start(self._settings))
        try:
            self._info = await self._starting
        except BaseException:
            await self._link.close(timeout_s=CLOSE_S)
            raise
        finally:
            self._starting = None
        self._is_up = True

    def _on_message(self, message: object) -> None:
        match message:
            case wire.StepOutput():
                self._on_step(message)
            case wire.LoadResult(request, problem, fix, is_full):
                _, future = self._loads.get(request, (None, None))
                if future is not None and not future.done():
                    if problem:
                        future.set_exception((EngineError if is_full else AdapterError)(problem, fix=fix))
                    else:
                        future.set_result(None)
            case wire.Stats() | wire.CompileResult():
                self._questions.answered(message)
            case wire.Ready(info):
                if self._starting is not None:
                    self._starting.set_result(info)
            case wire.StartFailure(problem, fix, is_model):
                if self._starting is not None:
                    kind = ModelError if is_model else ConfigError
                    self._starting.set_exception(kind(problem, fix=fix))

    def _on_step(self, step: wire.StepOutput) -> None:
        """Hands the step's tokens to their streams; a few microseconds a token, without a task in between."""
        streams, top, ended, cached = self._streams, step.top, step.ended, step.cached
        masked = step.masked
        for spot, request in enumerate(step.rows):
            stream = streams.get(request)
            if stream is not None:
                stream.add(
                    SampledToken(
                        step.tokens[spot],
                        step.logp_sampled[spot],
                        step.logp[spot],
                        stream.version,
                        top.get(spot, ()),
                        ended.get(spot),
                        0 if stream.tokens else cached.get(spot, 0),
                        *masked.get(spot, ()),
                    )
                )
                self._resuming.went_on(stream)
        for request, scores in step.scored:
            _, future = self._scores.get(request, (None, None))
            if future is not None and not future.done():
                future.set_result(scores)
        for request, problem in step.failed:
            self._fail(request, EngineError(problem))

    def _fail(self, request: int, error: EngineError) -> None:
        stream = self._streams.get(request)
        if stream is not None:
            stream.fail(error)
            self._resuming.went_on(stream)
        _, future = self._scores.get(request, (None, None))
        if future is not None and not future.done():
            future.set_exception(error)

    def _fail_all(self, error: EngineError) -> None:
        for request in (*self._streams, *self._scores):
            self._fail(request, error)
        for _, load in self._loads.values():
            if not load.done():
                load.set_exception(error)
        self._questions.fail(error)

    def _on_gone(self, link: ChildLink) -> None:
        """The child ended: on request, during its start, or by dying."""
        self._is_up = False
        self._fail_suspects()
        gone = EngineError("the engine's process ended while it started", fix="read its messages above")
        if self._starting is not None and not self._starting.done():
            self._starting.set_exception(gone)
        elif link is self._link and self._info is not None and not self._is_closing and self._reviving is None:
            self._questions.fail(EngineError("the engine is starting again", fix="ask again in a moment"))
            self._reviving = asyncio.get_running_loop().create_task(self._revive())  # aclose awaits it

    def _fail_suspects(self) -> None:
        """A request that ends the process each time it is submitted must not end it again."""
        self._resuming.clear()
        for stream in self._streams.values():
            if not stream.outlived():
                log.error("request=%d is given up: the engine's process ends each time it runs", stream.id)
                stream.fail(
                    EngineError(
                        "the engine's process ended again and again while it worked on this request",
                        fix="read its messages in the server's log, and change the request before you send it again",
                    )
                )

    async def _revive(self) -> None:
        """Restarts the child until it serves or has died too often; then open requests continue."""
        while True:
            now = time.monotonic()
            self._restarts = [at for at in self._restarts if now - at < RESTART_WINDOW_S]
            if len(self._restarts) >= self._settings.max_restarts:
                self._give_up(f"the engine's process died {len(self._restarts) + 1} times in ten minutes")
                return
            self._restarts.append(now)
            log.warning("engine process ended, restart=%d streams=%d", len(self._restarts), len(self._streams))
            try:
                await self._open()
                await self._resume_or_lose()
            except (ModelError, ConfigError) as error:
                self._give_up(str(error))
                return
            except EngineError:
                continue
            if self._is_up:
                self._reviving = None
                self._submit_again()
                return

    async def _resume_or_lose(self) -> None:
        """Resumes, unless this child dies meanwhile and could not answer any more."""
        assert self._link is not None
        resuming = asyncio.ensure_future(self._resume())
        try:
            await asyncio.wait((resuming, self._link.gone), return_when=asyncio.FIRST_COMPLETED)
            if resuming.done():
                resuming.result()
        finally:
            resuming.cancel()
            await asyncio.gather(resuming, return_exceptions=True)

    def _submit_again(self) -> None:
        """Submits open requests from their last tokens; versions being unloaded are unloaded once all of them run."""
        for job, _ in self._scores.values():
            self._send(job)
        self._resuming.begin(self._streams.values())

    def _unload_leaving(self) -> None:
        for version in self._leaving:
            self._send(wire.Unload(version))

    def _give_up(self, problem: str) -> None:
        self._broken = EngineError(problem, fix="read the engine's messages, remove the cause and start again")
        self._fail_all(self._broken)

    async def _resume(self) -> None:
        """Reloads the versions that were loaded."""
        for load, _ in list(self._loads.values()):
            self._send(load)
        for version, adapter in list(self._adapters.items()):
            try:
                await self._load(adapter)
            except AdapterError as error:
                log.error("cannot load version=%s again: %s", version, error)
                del self._adapters[version]
