"""One server among several: whether it answers, what is loaded on it, and its process if this program starts it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from openclaw_rl.core.adapter import Adapter, files_of
from openclaw_rl.core.host import Host
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.remote.dialect import Dialect, Launch, ServerFacts
from openclaw_rl.engines.remote.http import ServerGoneError, ServerHttp, ServerRefusal
from openclaw_rl.engines.remote.model import adapted_modules
from openclaw_rl.engines.remote.this_machine import ThisMachine
from openclaw_rl.engines.settings import RemoteSettings
from openclaw_rl.errors import AdapterError, EngineError

log = logging.getLogger(__name__)
POLL_S = 0.5
ENDING_S = 1.0  # a server that closed a connection may need this long until its process is gone
KEY_REFUSED = {401, 403}
LOST = 404  # the answer for an adapter that a server does not have


@dataclass(slots=True, eq=False)
class Replica:
    """A server. `on_up` is awaited each time it comes up, before it gets requests; `adapters` must be loaded on it."""

    dialect: Dialect
    http: ServerHttp
    settings: RemoteSettings
    adapters: dict[PolicyVersion, Adapter]
    launch: Launch | None = None
    host: Host = field(default_factory=ThisMachine)
    is_up: bool = False
    running: int = 0
    restarts: int = 0
    facts: ServerFacts | None = None
    loaded: dict[PolicyVersion, Adapter] = field(default_factory=dict)
    _has_begun: bool = False  # whether the host was given a process
    _keeper: asyncio.Task[None] | None = None
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def mark(self) -> str:
        """A name that stays the same when it comes back at another address: sessions are placed by it."""
        return self.http.url if self.launch is None else self.launch.key

    @property
    def pid(self) -> int:
        """The process's id; 0 if no process of this machine was started for it."""
        return self.host.pid

    async def start(self) -> None:
        """Returns once it serves. Raises EngineError if it does not within `start_s`, or its process ends."""
        try:
            await self._come_up()
        except BaseException:
            await self._end()
            raise
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def aclose(self) -> None:
        """Closes the connection, and ends the process if there is one."""
        self.is_up = False
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._end()
        await self.http.aclose()

    def is_down(self) -> None:
        """Called when it does not answer; it is checked until it does."""
        if self.is_up:
            log.warning("%s does not answer; it is asked again every %g s", self.http.url, self.settings.check_s)
        self.is_up = False
        self._wanted.set()

    async def load(self, adapter: Adapter) -> None:
        """Loads a version. Raises AdapterError if the server refuses it, ServerGoneError if it is gone."""
        async with self._loading:
            name = name_of(adapter)
            held = self.loaded.get(adapter.version)
            if held is not None and name_of(held) == name:
                return
            try:
                await self.dialect.load(self.http, name, await self._sent(adapter.folder))
            except ServerRefusal as problem:
                raise refused(adapter, self.http.url, problem) from problem
            self.loaded[adapter.version] = adapter

    async def unload(self, version: PolicyVersion) -> None:
        """Unloads a version; a server that is gone has none."""
        adapter = self.loaded.pop(version, None)
        if adapter is not None and self.is_up:
            with contextlib.suppress(EngineError):
                await self.dialect.unload(self.http, name_of(adapter))
                await self.host.forget(adapter.folder)

    async def _sent(self, folder: Path) -> Path:
        try:
            return await self.host.folder(folder, names=files_of(folder))
        except EngineError as problem:
            raise ServerGoneError(problem.problem, fix=problem.fix) from problem

    async def _come_up(self) -> None:
        if self.launch is not None and (not self._has_begun or self.host.has_ended):
            await self._launch(self.launch)
        until = time.monotonic() + self.settings.start_s
        while True:
            try:
                self.facts = await self.dialect.facts(self.http)
                break
            except (ServerGoneError, ServerRefusal) as problem:
                self._check_process()
                if isinstance(problem, ServerRefusal) and problem.status in KEY_REFUSED:
                    raise refused_key(self.http.url) from problem
                if self.launch is None or time.monotonic() > until:
                    raise EngineError(
                        f"no {self.dialect.name} server answers at {self.http.url}: {problem.problem}",
                        fix="start it, or correct engine.remote.urls",
                    ) from problem
            await asyncio.sleep(POLL_S)
        self.loaded.clear()
        for adapter in list(self.adapters.values()):
            await self.load(adapter)
        self.is_up = True

    async def _keep(self) -> None:
        """Brings it up again each time it goes down."""
        while True:
            waiting: list[asyncio.Task[object]] = [asyncio.ensure_future(self._wanted.wait())]
            if self._has_begun:
                waiting.append(asyncio.ensure_future(self.host.wait()))
            _, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            self.is_up = False
            self.restarts += 1
            if self._has_begun and not self.host.has_ended:  # it may be ending just now
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ENDING_S):
                        await self.host.wait()
            try:
                await self._come_up()
                log.info("%s is back with %d versions", self.http.url, len(self.loaded))
                self._wanted.clear()
            except (EngineError, AdapterError) as problem:
                log.warning("%s", problem)
                await self._end()  # a server that was started here and does not come up is started again
                await asyncio.sleep(self.settings.check_s)
                self._wanted.set()

    async def _end(self) -> None:
        self._has_begun = False
        await self.host.end()

    async def _launch(self, launch: Launch) -> None:
        self._has_begun = False
        address, port = await self.host.open()
        model = await self.host.folder(launch.model, is_kept=True)
        command, added = self.dialect.command(replace(launch, address=address, port=port, model=model))
        log.info("starting %s at %s port %d", self.dialect.name, address, port)
        self.http.url = f"http://{address}:{port}"
        await self.host.start(command, {"PYTHONPATH": "", **added})  # this program's path is not that server's
        self._has_begun = True

    def _check_process(self) -> None:
        if self._has_begun and self.host.has_ended:
            raise EngineError(
                f"the {self.dialect.name} server ended with {self.host.has_ended} while it started",
                fix=f"read its messages above; is {self.dialect.name} installed in engine.remote.python?",
            )


def name_of(adapter: Adapter) -> str:
    """A version's name on a server: other weights with the same number get another name, and so another cache."""
    return f"{adapter.version}-{adapter.digest[:12]}"


def refused_key(url: str) -> EngineError:
    """The error for a server that answers 401 or 403."""
    return EngineError(f"{url} refuses the key", fix="set engine.remote.api_key to the one it was started with")


def refused(adapter: Adapter, url: str, problem: ServerRefusal) -> AdapterError:
    """The error for a server's refusal of an adapter, with the option that fixes it."""
    reply = problem.problem
    fix = "read the server's messages"
    if "rank" in reply.lower():
        fix = "start it with a larger --max-lora-rank, or set trainer.rank to less"
    elif problem.status == LOST and "Not Found" in reply:
        fix = "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
    elif "enable" in reply.lower() and "lora" in reply.lower():
        fix = "start it with --enable-lora"
    elif any(words in reply.lower() for words in ("no adapter found", "not exist", "repo id")):
        fix = f"let the server read {adapter.folder}: the same path must lead to the same files there"
    return AdapterError(f"{url} does not take version {adapter.version}: {reply}", fix=fix)


def launched(
    dialect: Dialect,
    settings: RemoteSettings,
    adapters: dict[PolicyVersion, Adapter],
    launch: Launch,
    host: Host | None = None,
) -> Replica:
    """A replica that is started for the user, on this machine or on `host`, with a key that nobody else knows."""
    http = ServerHttp("http://starting", launch.key, silent_s=settings.silent_s)
    return Replica(dialect, http, settings, adapters, launch, host or ThisMachine())


def new_launch(settings: RemoteSettings, model: Path, *, rank: int, versions: int, seed: int | None = None) -> Launch:
    """How the next server is started."""
    python = settings.python or sys.executable
    key, modules = secrets.token_hex(16), adapted_modules(model)
    return Launch(settings, python, model, key, rank, versions, seed, modules)
