"""Grammars being compiled beside the steps, and the requests that wait for one."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from openclaw_rl.core.sampling import Grammar
from openclaw_rl.engines.local.masks import GrammarSource, Guided
from openclaw_rl.engines.local.wire import Compile, CompileResult, StepOutput, Submit
from openclaw_rl.errors import RequestError

MOST_WAITING = 64  # grammars asked about at once; the requests that wait are bounded by their client


class RequestAcceptor(Protocol):
    """Who takes requests."""

    def submit(self, ask: Submit, guide: Guided | None = None) -> None:
        """Queues a request."""
        ...


class GrammarCompiler:
    """One thread compiles, in the order of arrival; `rouse` is called when it has something to hand over."""

    def __init__(self, grammars: GrammarSource, rouse: Callable[[], None]) -> None:
        self._grammars = grammars
        self._rouse = rouse
        self._thread: ThreadPoolExecutor | None = None
        self._asked: list[tuple[Compile, Future[None]]] = []
        self._waiting: list[tuple[Submit, Future[Guided]]] = []

    def compile(self, ask: Compile) -> None:
        """Begins to compile; `finish` tells what came of it."""
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

    def submit(self, ask: Submit, grammar: Grammar, core: RequestAcceptor) -> None:
        """The request is submitted at once where its grammar is compiled, as it mostly is; else as soon as it is."""
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

    def finish(self, core: RequestAcceptor) -> list[CompileResult | StepOutput]:
        """Submits what has its grammar now, and gives what is to be said of the rest."""
        said: list[CompileResult | StepOutput] = []
        while self._asked and self._asked[0][1].done():
            ask, future = self._asked.pop(0)
            error = future.exception()
            if isinstance(error, RequestError):
                said.append(CompileResult(ask.id, error.problem, error.fix, error.code))
            else:
                said.append(CompileResult(ask.id, "" if error is None else f"the format cannot be compiled: {error}"))
        while self._waiting and self._waiting[0][1].done():
            waiting, guided = self._waiting.pop(0)
            problem = guided.exception()
            if problem is None:
                core.submit(waiting, guided.result())
            else:
                said.append(StepOutput(failed=[(waiting.id, str(problem))]))
        return said

    def _pool(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammars", initializer=_give_way)
        return self._thread


def _give_way() -> None:
    """Steps come before compiling: on Linux a thread has a priority of its own."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.nice(10)
