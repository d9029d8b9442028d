"""The engine's child process: `python -m openclaw_rl.engines.local.host`, controlled over stdin and stdout.

It sends one message a step. Commands are read between steps; when stdin closes, the parent is gone and the child ends.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import pickle
import select
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, BinaryIO

from openclaw_rl.core import pipe
from openclaw_rl.core.adapter import is_full
from openclaw_rl.core.logs import set_up_logging
from openclaw_rl.core.memory import give_back, map_large
from openclaw_rl.core.sampling import Grammar
from openclaw_rl.engines.local.wire import (
    AskStats,
    Cancel,
    Compile,
    CompileResult,
    Flush,
    Load,
    LoadResult,
    Ready,
    ScoreJob,
    Start,
    StartFailure,
    Stats,
    StepOutput,
    Submit,
    Unload,
)
from openclaw_rl.errors import AdapterError, ConfigError, EngineError, ModelError, RequestError

if TYPE_CHECKING:
    from openclaw_rl.engines.local.adapters import AdapterWeights
    from openclaw_rl.engines.local.core import Core
    from openclaw_rl.engines.local.masks import GrammarSource, Guided
    from openclaw_rl.engines.local.model import ServedModel
    from openclaw_rl.engines.settings import EngineSettings

log = logging.getLogger(__name__)

CHUNK = 1 << 20
SWITCH_S = 0.0005  # reading an adapter during the steps must give the interpreter back at once
MOST_WAITING = 64  # grammar checks at once; the client limits the requests that wait


def main() -> None:
    """Runs until stdin closes."""
    set_up_logging(text="engine: %(message)s")
    out = os.fdopen(os.dup(1), "wb")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes our stdin
    os.dup2(2, 1)  # whatever a library prints must not get between the frames
    start = pipe.read(sys.stdin.buffer)
    if not isinstance(start, Start):
        return
    with contextlib.suppress(OSError):
        os.nice(start.settings.nice)
    core = _open(start, out)
    if core is None:
        return
    sys.setswitchinterval(SWITCH_S)
    try:
        _serve(core, out, start.settings)
    except BrokenPipeError:
        os._exit(0)


def _open(start: Start, out: BinaryIO) -> Core | None:
    try:
        from openclaw_rl.engines.local.build import open_core

        core = open_core(start.settings, is_apart=True)
        gc.collect()
        give_back()
        map_large(core.served.parameters)
    except (ModelError, ConfigError) as error:
        pipe.write(out, StartFailure(error.problem, error.fix, isinstance(error, ModelError)))
        return None
    except ModuleNotFoundError as error:
        fix = "install the local engine's libraries: pip install 'openclaw-rl[local]'"
        pipe.write(out, StartFailure(f"the local engine needs {error.name}", fix, is_model=False))
        return None
    return core


def _serve(core: Core, out: BinaryIO, settings: EngineSettings) -> None:
    """Serves; a trainer on the same GPU reads the base weights here, so they are lent before anyone is told."""
    from openclaw_rl.engines.local.build import info_of
    from openclaw_rl.weights.lending import lent, loan_folder
    from openclaw_rl.weights.mapped_files import cache_folder

    with lent(core.served.base, loan_folder(cache_folder())) as file:
        if file is not None:
            log.info("lends its base weights to a trainer on this GPU")
        pipe.write(out, Ready(info_of(core)))
        EngineHost(core, out, settings).run()


class EngineHost:
    """Drives a core with commands from a pipe."""

    def __init__(self, core: Core, out: BinaryIO, settings: EngineSettings) -> None:
        from openclaw_rl.engines.local.adapters import read_adapter
        from openclaw_rl.engines.local.copies import read_copy

        self._core = core
        self._settings = settings
        self._read = read_adapter
        self._read_copy = read_copy
        self._out = out
        self._buffer = bytearray()
        self._readers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="adapters")
        self._loads: list[tuple[Load, Future[AdapterWeights | ServedModel], bool]] = []
        self._woken, self._wake = os.pipe()
        self._compiling = GrammarCompiler(core.grammars, self._rouse)

    def run(self) -> None:
        """Steps while there is work, waits if there is none."""
        while True:
            self._take_commands(wait=not self._core.has_work)
            if self._loads:
                self._finish_loads()
            for answer in self._compiling.finish(self._core):
                pipe.write(self._out, answer)
            if self._core.has_work:
                pipe.write(self._out, self._core.step())

    def _take_commands(self, *, wait: bool) -> None:
        while True:
            readable, _, _ = select.select([0, self._woken], [], [], None if wait else 0)
            if self._woken in readable:
                os.read(self._woken, 64)
                return
            if 0 not in readable:
                return
            data = os.read(0, CHUNK)
            if not data:
                os._exit(0)  # the parent is gone; nobody reads further output
            self._buffer += data
            if self._handle_frames():
                wait = False

    def _handle_frames(self) -> bool:
        """Handles all complete messages in the buffer; returns whether there was one."""
        at, size = 0, len(self._buffer)
        while size - at >= pipe.HEADER.size:
            (length,) = pipe.HEADER.unpack_from(self._buffer, at)
            end = at + pipe.HEADER.size + length
            if end > size:
                break
            self._handle(pickle.loads(memoryview(self._buffer)[at + pipe.HEADER.size : end]))
            at = end
        del self._buffer[:at]
        return at > 0

    def _handle(self, command: object) -> None:
        match command:
            case Submit() if command.sampling.grammar is not None:
                self._compiling.submit(command, command.sampling.grammar, self._core)
            case Submit():
                self._core.submit(command)
            case Compile():
                self._compiling.compile(command)
            case ScoreJob():
                self._core.score(command)
            case Cancel(request):
                self._compiling.cancel(request)
                self._core.cancel(request)
            case Load():
                self._begin_load(command)
            case Unload(version):
                self._core.unload(version)
            case Flush():
                self._core.flush()
            case AskStats(request):
                pipe.write(self._out, Stats(request, self._core.stats()))
            case _:
                raise TypeError(f"no command: {command!r}")

    def _begin_load(self, load: Load) -> None:
        """Reads and checks the adapter concurrently with the steps; only the copying happens between them."""
        core = self._core
        future: Future[AdapterWeights | ServedModel]
        if is_full(load.adapter.folder):
            try:
                core.copies.check_room(load.adapter.version, coming=sum(is_copy for _, _, is_copy in self._loads))
            except EngineError as error:
                pipe.write(self._out, LoadResult(load.id, error.problem, error.fix, is_full=True))
                return
            future = self._readers.submit(self._read_copy, load.adapter, self._settings, core.served)
        else:
            future = self._readers.submit(self._read, load.adapter, core.adapters.linears())
        self._loads.append((load, future, is_full(load.adapter.folder)))
        future.add_done_callback(lambda _: self._rouse())

    def _rouse(self) -> None:
        os.write(self._wake, b".")

    def _finish_loads(self) -> None:
        while self._loads and self._loads[0][1].done():
            load, future, _ = self._loads.pop(0)
            try:
                self._core.install(future.result(), load.adapter.version, load.adapter.digest)
            except (AdapterError, EngineError) as error:
                is_full = isinstance(error, EngineError)
                pipe.write(self._out, LoadResult(load.id, error.problem, error.fix, is_full))
            else:
                log.info("loaded version=%s", load.adapter.version)
                pipe.write(self._out, LoadResult(load.id))


class GrammarCompiler:
    """Compiles grammars concurrently with the steps, and keeps the requests that wait for one.

    One thread compiles in the order of arrival; it calls `rouse` when a result is ready.
    """

    def __init__(self, grammars: GrammarSource, rouse: Callable[[], None]) -> None:
        self._grammars = grammars
        self._rouse = rouse
        self._thread: ThreadPoolExecutor | None = None
        self._asked: list[tuple[Compile, Future[None]]] = []
        self._waiting: list[tuple[Submit, Future[Guided]]] = []

    def compile(self, ask: Compile) -> None:
        """Begins to compile; `finish` returns the result."""
        future: Future[None]
        if len(self._asked) >= MOST_WAITING:
            future = Future()
            future.set_exception(
                RequestError(
                    f"{MOST_WAITING} answer formats are already waiting to be compiled",
                    fix="try again in a moment",
                    code="busy",
                )
            )
            self._rouse()
        else:
            future = self._pool().submit(self._grammars.compile, ask.grammar)
            future.add_done_callback(lambda _: self._rouse())
        self._asked.append((ask, future))

    def submit(self, ask: Submit, grammar: Grammar, core: Core) -> None:
        """Submits the request at once if its grammar is compiled, as it mostly is; else as soon as it is."""
        said = ask.tokens[len(ask.tokens) - ask.drawn :]
        if self._grammars.holds(grammar):
            core.submit(ask, self._grammars.guide(grammar, said))
            return
        future = self._pool().submit(self._grammars.guide, grammar, said)
        future.add_done_callback(lambda _: self._rouse())
        self._waiting.append((ask, future))

    def cancel(self, request: int) -> None:
        """Nobody reads this request any more."""
        self._waiting = [item for item in self._waiting if item[0].id != request]

    def finish(self, core: Core) -> list[CompileResult | StepOutput]:
        """Submits the requests whose grammars are ready, and returns the messages about the others."""
        answers: list[CompileResult | StepOutput] = []
        while self._asked and self._asked[0][1].done():
            ask, future = self._asked.pop(0)
            error = future.exception()
            if isinstance(error, RequestError):
                answers.append(CompileResult(ask.id, error.problem, error.fix, error.code))
            else:
                answers.append(
                    CompileResult(ask.id, "" if error is None else f"the format cannot be compiled: {error}")
                )
        while self._waiting and self._waiting[0][1].done():
            waiting, guided = self._waiting.pop(0)
            problem = guided.exception()
            if problem is None:
                core.submit(waiting, guided.result())
            else:
                answers.append(StepOutput(failed=[(waiting.id, str(problem))]))
        return answers

    def _pool(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammars", initializer=_give_way)
        return self._thread


def _give_way() -> None:
    """Lowers this thread's priority: steps come before compiling, and on Linux each thread has its own."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.nice(10)


if __name__ == "__main__":
    main()
