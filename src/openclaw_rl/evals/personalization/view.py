"""What a plan looks like while it runs: progress bars in a terminal, plain lines if the output is a file."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from openclaw_rl.evals.personalization.trials import Trial


class PlanView:
    """Shows trials as they come. Use it as a context."""

    def __init__(self, console: Console, trials: int) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[what]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._all = self._bars.add_task("trials", total=trials, what="")
        self._running: dict[str, TaskID] = {}
        self._done, self._of = 0, trials

    def __enter__(self) -> Self:
        """Takes the screen."""
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the finished lines on the screen."""
        self._bars.stop()

    def started(self, cell: str) -> None:
        """A separate bar."""
        self._running[cell] = self._bars.add_task(cell, total=None, what="starting a server")

    def progressed(self, cell: str, done: int, of: int, what: str) -> None:
        """The number of sessions done and in total; the total changes when somebody converges."""
        self._bars.update(self._running[cell], completed=done, total=of, what=what)

    def finished(self, cell: str, trial: Trial, *, is_kept: bool) -> None:
        """The outcome as a permanent line."""
        self._done += 1
        if cell in self._running:
            self._bars.remove_task(self._running.pop(cell))
        self._bars.update(self._all, completed=self._done)
        self._console.print(
            f"[{self._done}/{self._of}] {line(cell, trial, is_kept=is_kept)}", markup=False, soft_wrap=True
        )


def line(cell: str, trial: Trial, *, is_kept: bool) -> str:
    """A trial in a line."""
    people = []
    for person in trial.people:
        at, raw = trial.converged_at(person), trial.converged_at(person, gated=False)
        marks = "".join("+" if session.is_good else "-" for session in trial.sessions_of(person))
        people.append(f"{person} {at or 'never'} (wish alone {raw or 'never'}) {marks}")
    spent = "kept from an earlier run" if is_kept else f"{trial.seconds:.0f} s, {trial.steps} steps"
    return f"{cell}: {'; '.join(people)}; {spent}"
