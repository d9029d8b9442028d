"""`openclaw-rl doctor`: says why nothing is learned, or that all is well."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from openclaw_rl.cli.common import Home

app = typer.Typer()
COLOURS = {"ok": "green", "note": "yellow", "mend": "bold red"}


@app.command()
def doctor(
    home: Home = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="A TOML file of settings. [default: config.toml in the home folder]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check whether the installation is sound and, if nothing is learned, say why.

    Asks the running server if there is one, else looks into the store. Changes nothing. Lines marked `mend` need
    something done; `note` is worth knowing. Exits with 1 if something needs to be fixed, else with 0.
    """
    from openclaw_rl.doctor.report import examine

    report = asyncio.run(examine(home, config))
    if as_json:
        print(json.dumps(report.as_json()))
    else:
        out = Console(soft_wrap=True, highlight=False)
        for item in report.findings:
            out.print(f"[{COLOURS[item.level]}]{item.level.value:4}[/]  {item.stage:8}  {escape(item.said)}")
            if item.fix and item.level.value != "ok":
                out.print(f"{'':16}-> {escape(item.fix)}")
        out.print(f"\n{escape(report.story)}")
    raise typer.Exit(0 if report.is_healthy else 1)
