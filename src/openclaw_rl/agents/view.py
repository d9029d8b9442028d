"""The display of running attempts: a bar in a terminal, or a line now and then in a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

EVERY_S = 10.0  # between lines in a file


class RunView:
    """Shows how many attempts are over, and a message. Use it as a context."""

    def __init__(
        self, console: Console, what: str, total: int | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._what = what
        self._clock = clock
        self._said_s = clock()
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[words]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._total = total
        self._bar = self._bars.add_task(what, total=total, count="0", words="")

    def __enter__(self) -> Self:
        """Takes the screen."""
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the last state on the screen."""
        self._bars.stop()

    def show(self, done: int, words: str) -> None:
        """Shows how many are over."""
        count = f"{done}" if self._total is None else f"{done}/{self._total}"
        self._bars.update(self._bar, completed=done, count=count, words=words)
        if not self._console.is_terminal and self._clock() - self._said_s >= EVERY_S:
            self._said_s = self._clock()
            self._console.print(f"{self._what}: {count}  {words}", markup=False, soft_wrap=True)
