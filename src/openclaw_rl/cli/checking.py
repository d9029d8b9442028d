"""`openclaw-rl check`: checks and repairs the folder."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from openclaw_rl.cli.common import Home, home_of, say

app = typer.Typer()


@app.command()
def check(
    home: Home = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Verify an installation's folder: the store, the ledger, every turn's data, every version's files.

    Without --repair nothing is changed, and a server may run: its unfinished work is then not checked. To repair, stop
    it first. Exits with 0 if all is sound or was repaired, with 1 if something is left. Files that a repair replaces or
    cannot use are moved to the folder `aside`; nothing is removed.
    """
    from openclaw_rl.doctor.check import check_beside, check_home
    from openclaw_rl.home.folder import address_of

    at = home_of(home, needs_store=not repair)
    server = None if repair else address_of(at)
    report = check_home(at, repair=repair) if server is None else check_beside(at)
    if as_json:
        print(json.dumps({**asdict(report), "is_sound": report.is_sound, "server": server and server.pid}))
    else:
        if server is not None:
            say.print(f"a server runs on {escape(str(at))} (process {server.pid}); its unfinished work is not checked")
        for item in report.findings:
            mark = "[green]mended[/]" if item.is_mended else "[red]found[/]"
            say.print(f"{mark} {escape(item.what)}", soft_wrap=True)
            if item.mend:
                say.print(f"  {escape(item.mend)}", soft_wrap=True)
        say.print(_summary(report.turns, report.versions, len(report.findings), is_sound=report.is_sound))
        if not report.is_sound and not repair:
            first = "`" if server is None else "stop the server; then `"
            say.print(f"{first}openclaw-rl check --repair` repairs what it can, and removes nothing.")
    raise typer.Exit(0 if report.is_sound else 1)


def _summary(turns: int, versions: int, found: int, *, is_sound: bool) -> str:
    looked = f"{turns} turns and {versions} versions were looked at"
    if not found:
        return f"{looked}; all is sound"
    return f"{looked}; {found} findings, {'all mended' if is_sound else 'some are left'}"
