"""`openclaw-rl connect`: point a client at this server, check it, and show what the server makes of a turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from openclaw_rl.commands.common import Home, print_table, say
from openclaw_rl.errors import ConfigError
from openclaw_rl.runtime import connect_openclaw as openclaw
from openclaw_rl.runtime.connect_check import complaint
from openclaw_rl.runtime.connect_clients import CLIENTS, OURS, Client, as_json
from openclaw_rl.runtime.connect_files import Written, old_text, put
from openclaw_rl.runtime.connect_server import Api, Target, found_address, found_key, reached, try_turn

app = typer.Typer()
OPENCLAW = "openclaw"


@app.command()
def connect(
    client: Annotated[str, typer.Argument(help="Which client; `--list` names them.")] = "",
    *,
    lists: Annotated[bool, typer.Option("--list", help="Name the clients and what is done for each.")] = False,
    prints: Annotated[bool, typer.Option("--print", help="Print what would be set, and write nothing.")] = False,
    url: Annotated[
        str | None,
        typer.Option("--url", help="The server's address. [default: that of the server running on the home]"),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="SGLANG_API_KEY", help="[default: the one in the home folder]")
    ] = None,
    home: Home = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="The client's configuration file, where it is elsewhere.")
    ] = None,
    extension: Annotated[
        bool,
        typer.Option("--extension", help="OpenClaw: load the plugin that sends session, kind and user as headers."),
    ] = False,
    make_default: Annotated[
        bool, typer.Option("--make-default", help="OpenClaw: make it the agents' model even if another one is chosen.")
    ] = False,
    thinking: Annotated[
        bool, typer.Option("--thinking", help="OpenClaw: the model thinks before it answers, as Qwen3 does.")
    ] = False,
    test: Annotated[bool, typer.Option("--test/--no-test", help="Send a test turn. It teaches nothing.")] = True,
) -> None:
    """Point a client at this server.

    `openclaw-rl connect openclaw` adds a provider to OpenClaw's configuration (a copy of the old file stays beside it),
    checks that the server answers and takes the key, sends a test turn as the client would word it, and says which
    session and kind the server saw. Run it again at any time: what is right stays, what is not ours is not touched.
    For most other clients it prints what to set.
    """
    if lists:
        _list()
        return
    known = {each.name: each for each in CLIENTS}
    if client != OPENCLAW and client not in known:
        names = ", ".join((OPENCLAW, *known))
        raise ConfigError(
            f"there is no client {client!r}" if client else "no client is named", fix=f"name one of {names}"
        )
    target = asyncio.run(_target(home, url, api_key))
    say.print(f"the server at {escape(target.url)} answers; it serves {escape(target.model)}", soft_wrap=True)
    if client == OPENCLAW:
        plugin = openclaw.plugin_folder() if extension else None
        _connect_openclaw(openclaw.Wanted(target, make_default, thinking, plugin), file, prints=prints)
    else:
        _connect_other(known[client], target, file, prints=prints)
    if test and not prints:
        api = Api.CHAT if client == OPENCLAW else known[client].api
        _show_turn(target, api, as_openclaw=client == OPENCLAW)


async def _target(home: Path | None, url: str | None, api_key: str | None) -> Target:
    from openclaw_rl.config import read_config

    folder = read_config(overrides={"home": None if home is None else str(home)}).home
    return await reached(found_address(folder, url), found_key(folder, api_key))


def _list() -> None:
    table = Table("client", "what it is, and how it is set", show_edge=False)
    table.add_row(
        OPENCLAW, "OpenClaw, as a provider in its configuration, which is written; --extension adds the plugin"
    )
    for each in CLIENTS:
        table.add_row(each.name, each.about + (", which is written" if each.file else ""))
    print_table(table)


def _connect_openclaw(wanted: openclaw.Wanted, file: Path | None, *, prints: bool) -> None:
    if prints:
        print(as_json(openclaw.entries(wanted)), end="")
        return
    path = file or openclaw.config_path()
    held = openclaw.parsed(old_text(path), path)
    merged = openclaw.merged(held, wanted, path)
    if merged.config == held:
        _tell(Written(path, has_changed=False))
    else:
        _tell(put(path, as_json(merged.config)))
    against = complaint(path)
    if against == "":
        say.print("OpenClaw's own check accepts it")
    notes = merged.notes if not against else (*merged.notes, f"OpenClaw's own check of {path} says: {against}")
    for note in notes:
        say.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)


def _connect_other(client: Client, target: Target, file: Path | None, *, prints: bool) -> None:
    path = file or (Path.home() / client.file if client.file else None)
    if client.file is None or path is None or prints:
        print(client.text(target), end="")
    else:
        held = old_text(path)
        if held is not None and not held.startswith(OURS):
            raise ConfigError(f"{path} was not written by this command", fix="use --print, and put it in by hand")
        _tell(put(path, client.text(target)))
    say.print(escape(client.then(target)), soft_wrap=True)


def _tell(written: Written) -> None:
    if not written.has_changed:
        say.print(f"{escape(str(written.path))} is right already", soft_wrap=True)
        return
    before = f"; the old one is {written.backup.name}" if written.backup else ""
    say.print(f"wrote {escape(str(written.path))}{escape(before)}", soft_wrap=True)


def _show_turn(target: Target, api: Api, *, as_openclaw: bool) -> None:
    told = asyncio.run(try_turn(target, api, as_openclaw=as_openclaw))
    say.print(f"test turn over {api.value}: [bold]{escape(told.kind)}[/], answered by version {escape(told.version)}")
    say.print(f"  session {escape(told.session)}", soft_wrap=True)
    say.print(f"  why     {escape(told.why)}", soft_wrap=True)
    if told.kind == "side":
        say.print("[yellow]note:[/] side turns are never learned from; docs/clients.md says what makes a turn main")
