"""The demonstration: a server on the bundled model, a simulated student, and a report of what was learned."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.demo.report import as_html, as_json, headline, hint_of, verdict_of
from openclaw_rl.evals.learning import BEFORE, Event, LearningRun, Measuring, RunSettings, SessionStarted, Spoke
from openclaw_rl.evals.people.users import Student
from openclaw_rl.evals.records import IN_A_ROW, LearningReport, Measurement, SessionRecord
from openclaw_rl.evals.server import serving

MODEL = "bundled"
STAY = 4  # sessions after the one that converged
PROBLEMS = 100  # in each of three measurements, which take a few seconds each
KEPT = 9  # lines of conversation on the screen
SHOWN = 110  # characters of each message shown


async def run_demo(
    out: Path, *, sessions: int = 24, seed: int = 0, problems: int = PROBLEMS, model: str = MODEL
) -> None:
    """Shows the loop live on standard error; ends with the figures as one line of JSON on standard output.

    Writes `report.json` and `report.html` into `out`. Ctrl-C ends it with the results so far.
    """
    console = Console(stderr=True, highlight=False)
    settings = RunSettings(sessions=sessions, problems=problems, stop_after=STAY)
    started, run = time.monotonic(), None
    try:
        with tempfile.TemporaryDirectory(prefix="openclaw-rl-demo-") as home, DemoView(console) as view:
            view.say(f"starting the server on the model {model}")
            async with serving(Path(home), model=model) as server:
                name = await served_model(server.base_url, server.key)
                async with Client(server.base_url, server.key, name) as client:
                    run = LearningRun(client, Student(seed), settings, seed=seed, on_event=view)
                    run.started_s = started  # includes the start of the server
                    await run.run()
                    await run.report()
                    view.say("done")
    finally:
        if run is not None and run.measurements:
            report = run.report_now()
            _write(report, out, model)
            _tell(report, out, console)
            sys.stdout.write(json.dumps(as_json(report, model=model)) + "\n")


def _write(report: LearningReport, out: Path, model: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    out.joinpath("report.json").write_text(json.dumps(as_json(report, model=model), indent=1) + "\n", "utf-8")
    out.joinpath("report.html").write_text(as_html(report, model=model), "utf-8")


def _tell(report: LearningReport, out: Path, console: Console) -> None:
    """A summary of what was learned."""
    before, after = report.measured(BEFORE), report.last
    console.print()
    console.print(f"[bold]{headline(report)}.[/]")
    console.print(f"  sessions          {len(report.sessions)}, with {report.corrections} corrections")
    if before is not None and after is not None:
        console.print(f"  wish followed     {before.wish} before, {after.wish} after, on problems never seen")
        console.print(f"  answers right     {before.right} before, {after.right} after, on the same problems")
    console.print(f"  versions          {report.versions} made and served, {report.refused} requests refused")
    console.print(f"  time              {report.seconds:.0f} s")
    console.print(f"  report            {out / 'report.html'}")


def shortened(text: str, limit: int = SHOWN) -> str:
    """The text on one line, cut."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class DemoView:
    """What a run looks like in a terminal: a live table if there is one, plain lines if the output is a file.

    Use it as a context and call it with each event.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=8) if console.is_terminal else None
        self._lines: deque[Text] = deque(maxlen=KEPT)
        self._good: list[bool] = []
        self._corrections = 0
        self._session, self._of = 0, 1
        self._version = ""
        self._doing = "starting"
        self._shares: list[str] = []

    def __enter__(self) -> Self:
        """Takes the screen."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the last table on the screen."""
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
            self._live.stop()

    def say(self, doing: str) -> None:
        """The activity besides the conversation."""
        self._doing = doing
        self._show(None if self._live is not None else Text(doing))

    def __call__(self, event: Event) -> None:
        """Handles an event."""
        if isinstance(event, Measuring):
            self._doing = f"measuring {event.label}: {event.done} of {event.of} unseen problems"
            self._show(None)
        elif isinstance(event, SessionStarted):
            self._session, self._of, self._doing = event.number, event.of, "talking"
            self._show(Text(f"session {event.number}", style="bold"))
        elif isinstance(event, Spoke):
            self._spoke(event)
        elif isinstance(event, SessionRecord):
            self._ended(event)
        else:
            self._measured(event)

    def _spoke(self, event: Spoke) -> None:
        self._version = event.version or self._version
        line = Text(
            f"{event.who:>7}  ", no_wrap=True, overflow="ellipsis", style="dim" if event.who == "user" else "cyan"
        )
        line.append(shortened(event.text), style="default")
        if event.is_good is not None:
            line.append("  ✓" if event.is_good else "  ✗", style="green" if event.is_good else "red")
            line.append(f" {event.version}", style="dim")
        self._doing = "talking" if event.who == "user" else "learning from what was said"
        self._show(line)

    def _ended(self, record: SessionRecord) -> None:
        self._good.append(record.is_good)
        self._corrections += record.corrections
        for turn in record.turns:
            line = Text("  judge  ", no_wrap=True, overflow="ellipsis", style="magenta")
            line.append(verdict_of(turn), style="default")
            if hint_of(turn):
                line.append(f"  hint: {shortened(hint_of(turn), SHOWN - 20)}", style="italic")
            self._show(line)
        if self._live is None:
            share = f"{sum(self._good)} of {len(self._good)} first replies met the rule"
            self._show(Text(f"         {share}, {self._corrections} corrections, {record.seconds:.1f} s"))

    def _measured(self, item: Measurement) -> None:
        words = f"{item.label}: wish {100 * item.wish.value:.0f} %, right {100 * item.right.value:.0f} %"
        self._shares.append(words)
        self._show(Text(f"measured {words} of {item.wish.of} unseen problems, version {item.version}", style="bold"))

    def _show(self, line: Text | None) -> None:
        if line is not None:
            self._lines.append(line)
            if self._live is None:
                self._console.print(line, soft_wrap=True)
        if self._live is not None:
            self._live.update(self._picture())

    def _picture(self) -> RenderableType:
        facts = Table.grid(padding=(0, 2))
        facts.add_row("session", f"{self._session} of up to {self._of}", ProgressBar(self._of, self._session, width=30))
        row = 0
        for is_good in reversed(self._good):
            if not is_good:
                break
            row += 1
        dots = Text("".join("●" if good else "○" for good in self._good), style="blue")
        share = sum(self._good) / len(self._good) if self._good else 0.0
        facts.add_row("first replies that met the rule", f"{100 * share:.0f} %, {row} in a row of {IN_A_ROW}", dots)
        facts.add_row("corrections so far", str(self._corrections), "")
        facts.add_row("version served", self._version or "-", Text(self._doing, style="yellow"))
        for words in self._shares:
            facts.add_row("unseen problems", words, "")
        talk = Panel(Group(*self._lines), title="what is said", border_style="dim", height=KEPT + 2)
        return Group(facts, talk)
