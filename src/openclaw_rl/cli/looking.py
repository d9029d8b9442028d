"""Commands that look at an installation: status, inspect, turns, export, settings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from openclaw_rl.cli.common import Home, home_of, print_table, say, served_home
from openclaw_rl.core.message import Json
from openclaw_rl.store.forms import ExportForm

app = typer.Typer()


@app.command()
def inspect(
    *,
    episode: Annotated[str | None, typer.Option("--episode", help="An episode's id: show it turn by turn.")] = None,
    episodes: Annotated[bool, typer.Option("--episodes", help="List the newest episodes.")] = False,
    limit: Annotated[int, typer.Option("--limit", help="At most this many of them.", min=1, max=500)] = 20,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what was served, what it taught, and what was left out and why; or an episode, turn by turn.

    Works while the server runs, and while it does not.
    """
    from openclaw_rl.owner.inspection import episode_of, episodes_of, ledger_of

    folder = home_of(home)
    if episode is not None:
        found = asyncio.run(episode_of(folder, episode))
        print(json.dumps(found)) if as_json else _print_episode(found)
        return
    if episodes:
        rows = asyncio.run(episodes_of(folder, limit=limit))
        print(json.dumps(rows)) if as_json else _print_episodes(rows)
        return
    facts = asyncio.run(ledger_of(folder))
    if as_json:
        print(json.dumps(facts))
        return
    table = Table("what", "turns", title=f"Ledger of {folder}")
    for name, count in facts.items():
        table.add_row(name, str(count))
    print_table(table)


def _print_episodes(rows: Sequence[dict[str, Json]]) -> None:
    names = ("id", "task", "group", "state", "steps", "outcome", "failure", "why")
    table = Table(*(Column(name, no_wrap=name == "id") for name in names))
    for row in rows:
        first = {"why": str(row["why"]).partition("\n")[0]}
        table.add_row(
            *("" if value is None else escape(str(value)) for value in ((row | first)[name] for name in names))
        )
    print_table(table)


def _print_episode(found: Mapping[str, Json]) -> None:
    """Prints the task, then each step: the reply, the environment's observation, and the turn's state."""
    outcome = "none" if found["outcome"] is None else found["outcome"]
    group = "" if found["group"] is None else f", group {found['group']}"
    print(f"episode {found['id']}: task {found['task']}{group}, {found['state']}")
    why = f": {found['why']}" if found["why"] else ""
    print(f"outcome {outcome}, failure {found['failure']}{why}")
    turns = found["turns"]
    assert isinstance(turns, list)
    for turn in turns:
        assert isinstance(turn, dict) and isinstance(turn["said"], dict)
        score = "" if turn["score"] is None else f", score {turn['score']}"
        became = turn["state"] if turn["reason"] is None else f"{turn['state']}: {turn['reason']}"
        if turn["trained_version"] is not None:
            became = f"{became} in {turn['trained_version']}"
        compared = f", compared with {int(str(turn['peers'])) - 1} other steps" if turn["peers"] else ""
        by = f"by {turn['version']}, {became}{compared}"
        print(f"\nstep {turn['step']} ({turn['observation']}), turn {turn['turn']}, {by}{score}")
        print(f"  said:  {turn['said'].get('content') or ''}")
        if turn["said"].get("tool_calls"):
            print(f"  calls: {json.dumps(turn['said']['tool_calls'])}")
        if turn["shown"] is not None:
            print(f"  shown: {turn['shown']}")


@app.command()
def status(home: Home = None, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Report in a few lines how learning proceeds on the running server: the current step, what waits, what to fix.

    `openclaw-rl doctor` says more, and works without a server too.
    """
    from openclaw_rl.home.reach import server_status

    folder = served_home(home, as_json=as_json)
    if folder is None:
        return
    found = asyncio.run(server_status(folder))
    if as_json:
        print(json.dumps(found))
        return
    training, warnings = found["train"], found["warnings"]
    assert isinstance(training, dict) and isinstance(warnings, list)
    print(found["story"])
    print(training["doing"] or f"no step now: {training['why_waiting']}")
    for warning in warnings:
        print(f"warning: {warning}")


@app.command()
def turns(
    turn: Annotated[
        str | None, typer.Argument(help="A turn's or response's id: show all that is known about it.")
    ] = None,
    *,
    session: Annotated[str | None, typer.Option("--session", help="Only this session, by its full name.")] = None,
    state: Annotated[str | None, typer.Option("--state", help="Only in this state: dropped, ready, trained...")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most this many, the newest.", min=1, max=500)] = 20,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the newest turns, how each was judged and what happened to it; or explain one turn in words.

    Works while the server runs, and while it does not.
    """
    from openclaw_rl.owner.inspection import turn_of, turns_of

    folder = home_of(home)
    if turn is not None:
        found = asyncio.run(turn_of(folder, turn))
        lines = found["explained"]
        assert isinstance(lines, list)
        print(json.dumps(found) if as_json else "\n".join(str(line) for line in lines))
        return
    rows = asyncio.run(turns_of(folder, limit=limit, session=session, state=state))
    if as_json:
        print(json.dumps(rows))
        return
    table = Table(Column("turn", no_wrap=True), "when", "session", "kind", "state", "score", "hints", "why")
    for row in rows:
        when = datetime.fromtimestamp(float(str(row["at"]))).strftime("%m-%d %H:%M")
        rest = [row[name] for name in ("session", "kind", "state", "score", "hints")] + [row["reason"] or row["why"]]
        table.add_row(str(row["id"]), when, *("" if value is None else escape(str(value)) for value in rest))
    print_table(table)


@app.command()
def export(
    out: Annotated[Path, typer.Argument(help="The JSONL file to write; a Parquet file if it ends in .parquet.")],
    home: Home = None,
    user: Annotated[str | None, typer.Option("--user", help="Only this user's turns.")] = None,
    side: Annotated[bool, typer.Option("--side/--no-side", help="Side requests too, marked by their kind.")] = True,
    form: Annotated[
        ExportForm,
        typer.Option(
            "--form",
            help="`records` contains every turn. The others contain the judged turns, in the form that TRL (SFT, KTO, "
            "DPO, or token ids with log-probabilities), verl or slime reads.",
        ),
    ] = ExportForm.RECORDS,
) -> None:
    """Write every turn with its next state, votes, score and hints as one line of JSON each.

    Works whether or not the server runs. If it runs, the server itself exports the turns.
    """
    from openclaw_rl.owner.inspection import check_parquet, export_to, notes_exports

    folder = home_of(home)
    check_parquet(out)
    turns, sides = asyncio.run(export_to(folder, out, user=user, with_side=side, form=form))
    if form is ExportForm.RECORDS:
        print(f"{turns} turns{f' and {sides} side requests' if side else ''} in {out}")
    else:
        print(f"{turns} rows in {out}")
    if not notes_exports(folder):
        note = f"{folder} cannot be written, so it does not know of this file: `openclaw-rl forget` will not clean it"
        say.print(escape(note), soft_wrap=True)


@app.command()
def settings(
    advanced: Annotated[bool, typer.Option("--advanced", help="Show the settings that are rarely changed.")] = False,
) -> None:
    """Print the settings with their meanings and defaults, as a TOML file to start from."""
    from openclaw_rl.owner.settings_text import settings_text

    print(settings_text(advanced=advanced))
