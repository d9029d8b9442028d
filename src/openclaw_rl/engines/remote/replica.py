"""One server among several: whether it answers, what is loaded on it, and its process where it was started here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.remote.dialect import Dialect, Launch, ServerFacts
from openclaw_rl.engines.remote.http import ServerGoneError, ServerHttp, ServerRefusal
from openclaw_rl.engines.remote.model import adapted_modules
from openclaw_rl.engines.settings import RemoteSettings
from openclaw_rl.errors import AdapterError, EngineError

log = logging.getLogger(__name__)
POLL_S = 0.5
END_S = 10.0
ENDING_S = 1.0  # a server that closed a connection may need so long until its process is gone
KEY_REFUSED = {401, 403}
LOST = 404  # what is answered for an adapter that a server does not have


@dataclass(slots=True, eq=False)
class Replica:
    """A server. `on_up` is awaited each time it came up, before it is given requests; `adapters` are to be on it."""

    dialect: Dialect
    http: ServerHttp
    settings: RemoteSettings
    adapters: dict[PolicyVersion, Adapter]
    launch: Launch | None = None
    is_up: bool = False
    running: int = 0
    restarts: int = 0
    facts: ServerFacts | None = None
    loaded: dict[PolicyVersion, str] = field(default_factory=dict)
    _process: asyncio.subprocess.Process | None = None
    _keeper: asyncio.Task[None] | None = None
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def pid(self) -> int:
        """The process's id; 0 where it runs elsewhere."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Returns once it serves. Raises EngineError where it does not within `start_s`, or its process ends."""
        try:
            await self._come_up()
        except BaseException:
            await self._end()
            raise
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def aclose(self) -> None:
        """Closes the connection, and ends the process where there is one."""
        self.is_up = False
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._end()
        await self.http.aclose()

    def is_down(self) -> None:
        """Whoever finds that it does not answer says so; it is looked after until it does."""
        if self.is_up:
            log.warning("%s does not answer; it is asked again every %g s", self.http.url, self.settings.check_s)
        self.is_up = False
        self._wanted.set()

    async def load(self, adapter: Adapter) -> None:
        """Makes a version ready. Raises AdapterError where the server refuses it, ServerGoneError where it is gone."""
        async with self._loading:
            name = name_of(adapter)
            if self.loaded.get(adapter.version) == name:
                return
            try:
                await self.dialect.load(self.http, name, adapter.folder)
            except ServerRefusal as problem:
                raise refused(adapter, self.http.url, problem) from problem
            self.loaded[adapter.version] = name

    async def unload(self, version: PolicyVersion) -> None:
        """Forgets a version; a server that is gone has forgotten it."""
        name = self.loaded.pop(version, None)
        if name is not None and self.is_up:
            with contextlib.suppress(EngineError):
                await self.dialect.unload(self.http, name)

    async def _come_up(self) -> None:
        if self.launch is not None and (self._process is None or self._process.returncode is not None):
            await self._end()  # what computed for a server that was killed outlives it, with its memory
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
        """Brings it up again each time it went down."""
        while True:
            waiting: list[asyncio.Task[object]] = [asyncio.ensure_future(self._wanted.wait())]
            if self._process is not None:
                waiting.append(asyncio.ensure_future(self._process.wait()))
            _, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            self.is_up = False
            self.restarts += 1
            if self._process is not None and self._process.returncode is None:  # it may be ending just now
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ENDING_S):
                        await self._process.wait()
            try:
                await self._come_up()
                log.info("%s is back, %d versions on it", self.http.url, len(self.loaded))
                self._wanted.clear()
            except (EngineError, AdapterError) as problem:
                log.warning("%s", problem)
                await self._end()  # one that was started here and does not come up is started again
                await asyncio.sleep(self.settings.check_s)
                self._wanted.set()

    async def _launch(self, launch: Launch) -> None:
        command, added = self.dialect.command(launch)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | added
        log.info("starting %s on port %d", self.dialect.name, launch.port)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, env=environment, stdout=sys.stderr, stderr=sys.stderr, start_new_session=True
            )
        except OSError as problem:
            raise EngineError(
                f"{launch.python} cannot be started: {problem}", fix="correct engine.remote.python"
            ) from problem

    def _check_process(self) -> None:
        if self._process is not None and self._process.returncode is not None:
            raise EngineError(
                f"the {self.dialect.name} server ended with {self._process.returncode} while it started",
                fix=f"read its messages above; is {self.dialect.name} installed in engine.remote.python?",
            )

    async def _end(self) -> None:
        """Ends the process with all its children, which share its session."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(END_S):
                        await process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def name_of(adapter: Adapter) -> str:
    """What a server calls a version: other weights under the same number have another name, and so another cache."""
    return f"{adapter.version}-{adapter.digest[:12]}"


def refused_key(url: str) -> EngineError:
    """What a server means that answers 401 or 403."""
    return EngineError(f"{url} refuses the key", fix="set engine.remote.api_key to the one it was started with")


def refused(adapter: Adapter, url: str, problem: ServerRefusal) -> AdapterError:
    """What a server's refusal of an adapter means, with the option that mends it."""
    said = problem.problem
    fix = "read the server's messages"
    if "rank" in said.lower():
        fix = "start it with a larger --max-lora-rank, or set trainer.rank to less"
    elif problem.status == LOST and "Not Found" in said:
        fix = "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
    elif "enable" in said.lower() and "lora" in said.lower():
        fix = "start it with --enable-lora"
    elif any(words in said.lower() for words in ("no adapter found", "not exist", "repo id")):
        fix = f"let the server read {adapter.folder}: the same path must lead to the same files there"
    return AdapterError(f"{url} does not take version {adapter.version}: {said}", fix=fix)


def free_port() -> int:
    """A port of the loopback interface that nobody uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def launched(
    dialect: Dialect, settings: RemoteSettings, adapters: dict[PolicyVersion, Adapter], launch: Launch
) -> Replica:
    """A replica that is started here, with a key that nobody else knows."""
    http = ServerHttp(f"http://127.0.0.1:{launch.port}", launch.key, silent_s=settings.silent_s)
    return Replica(dialect, http, settings, adapters, launch)


def new_launch(settings: RemoteSettings, model: Path, *, rank: int, versions: int, seed: int | None = None) -> Launch:
    """How the next server is started."""
    python = settings.python or sys.executable
    key, modules = secrets.token_hex(16), adapted_modules(model)
    return Launch(settings, python, model, free_port(), key, rank, versions, seed, modules)
