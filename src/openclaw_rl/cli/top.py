"""`openclaw-rl top`: whether the model is learning, at a glance, in a terminal."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.common import Home, served_home
from openclaw_rl.core.message import Json

app = typer.Typer()
PATH = "/v1/rl/learning"
MOST_LINES = 8
BARS = " ▁▂▃▄▅▆▇█"
SOURCES = {"corrected": "corrected", "praised": "praised", "attempts": "of attempts at tasks", "others": "others"}
Facts = Mapping[str, Json]


@app.command()
def top(
    *,
    every: Annotated[float, typer.Option("--every", help="Seconds between two updates.", min=1.0)] = 3.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    home: Home = None,
    key: Annotated[
        str,
        typer.Option(
            "--api-key",
            envvar="SGLANG_API_KEY",
            help="A key with the scope `admin`. [default: the one in the home folder]",
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON each time.")] = False,
) -> None:
    """Show whether the model is learning: what it learned and whether that held, what waits and why, its versions.

    The first view of the page at the server's address, for a terminal. Ctrl-C ends it.
    """
    folder = served_home(home, as_json=as_json)
    if folder is None:
        return
    try:
        if as_json or once:
            _in_lines(folder, key, every, is_once=once, as_json=as_json)
        else:
            _live(folder, key, every)
    except KeyboardInterrupt:
        return


def _in_lines(folder: Path, key: str, every: float, *, is_once: bool, as_json: bool) -> None:
    while True:
        found = _looked(folder, key)
        if as_json:
            print(json.dumps(found), flush=True)
        else:
            Console().print(shown(found))
        if is_once:
            return
        time.sleep(every)


def _live(folder: Path, key: str, every: float) -> None:
    with Live(shown(_looked(folder, key)), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            live.update(shown(_looked(folder, key)), refresh=True)


def _looked(folder: Path, key: str) -> dict[str, Json]:
    from openclaw_rl.home.reach import asked

    return asyncio.run(asked(folder, "GET", PATH, key=key))


def shown(found: Facts) -> RenderableType:
    """All of it, as lines and tables."""
    parts: list[RenderableType] = [
        Text(str(found["headline"]), style="bold"),
        Text(str(found["story"]), style="dim"),
        "",
    ]
    parts += [Text.from_markup(f"[red]![/red] {line}") for line in _needed(found)]
    parts += [_learned(found), "", Text(_corrections(found)), Text(_waits(found)), "", _versions(found)]
    spent = _mapped(found["spent"])
    took = f"learning took {_number(spent['steps']):.0f} steps, {_number(spent['seconds']):.0f} s, "
    parts += ["", Text(f"{took}{_number(spent['tokens']):,.0f} tokens trained on", style="dim")]
    return Group(*parts)


def _needed(found: Facts) -> Iterator[str]:
    for item in _rows(found["diagnosis"]):
        if item["level"] == "mend":
            fix = f"\n  [dim]{escape(str(item['fix']))}[/dim]" if item["fix"] else ""
            yield f"{escape(str(item['said']))}{fix}"


def _learned(found: Facts) -> RenderableType:
    rows = _rows(found["learned"])
    if not rows:
        return Text("nothing was learned yet", style="dim")
    table = Table("learned", "when", "version", "held since", box=None, pad_edge=False)
    for row in rows[:MOST_LINES]:
        since, again = _number(row["since"]), _number(row["again"])
        held = f"{since - again:.0f} of {since:.0f}" if since else "no reaction yet"
        style = "red" if again else "green" if since else "dim"
        words = escape(str(row["words"]).replace("\n", " ")[:70])
        table.add_row(f"“{words}”", _when(row["learned_at"]), str(row["version"]), f"[{style}]{held}[/{style}]")
    return table


def _corrections(found: Facts) -> str:
    weeks = _rows(found["weeks"])
    shares = [_number(week["corrected"]) / max(1.0, _number(week["judged"])) for week in weeks]
    bars = "".join(BARS[round(share * (len(BARS) - 1))] for share in shares)
    last, twice = weeks[-1], _mapped(found["asked_twice"])
    return (
        f"corrected, week by week |{bars}|, in the last seven days {last['corrected']} of {last['judged']}; "
        f"asked for more than once: {twice['again']} of {twice['of']}"
    )


def _waits(found: Facts) -> str:
    ledger = _mapped(found["ledger"])
    waits = ", ".join(f"{ledger[state]} {state}" for state in ("served", "paired", "judged", "ready") if ledger[state])
    doing = found["doing"] or f"no step now: {found['why_waiting'] or 'nothing is to be done'}"
    return f"{doing}{f' (waiting: {waits})' if waits else ''}"


def _versions(found: Facts) -> RenderableType:
    table = Table("version", "", "made", "learned, or why not", box=None, pad_edge=False)
    for row in reversed(_rows(found["versions"])[-MOST_LINES:]):
        status = "served" if row["is_current"] else str(row["status"])
        learned = row["learned"]
        words = " · ".join(str(text) for text in learned) if isinstance(learned, list) else ""
        said = words or _sources(row) if row["status"] != "refused" else str(row["why"])
        style = {"served": "bold green", "refused": "red"}.get(status, "")
        table.add_row(str(row["version"]), Text(status, style=style), _when(row["made_at"]), escape(said[:90]))
    return table


def _sources(row: Mapping[str, Json]) -> str:
    """What a version was made from without a wish, in the page's words."""
    counts = ((_number(_mapped(row["from"]).get(kind)), words) for kind, words in SOURCES.items())
    return ", ".join(f"{count:.0f} {words}" for count, words in counts if count)


def _when(value: Json) -> str:
    return datetime.fromtimestamp(_number(value)).strftime("%m-%d %H:%M") if _number(value) else ""


def _number(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _mapped(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _rows(value: Json) -> list[dict[str, Json]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
