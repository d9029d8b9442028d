"""`openclaw-rl connect`: point a client at this server, check it, and show what the server makes of a turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from openclaw_rl.cli.common import Home, print_table, say, settings_of
from openclaw_rl.connect import openclaw
from openclaw_rl.connect.clients import OURS, ClientRecipe, as_json, clients
from openclaw_rl.connect.files import FileChange, old_text, put, take_away
from openclaw_rl.connect.merge import with_block, with_entries, without_block, without_entries
from openclaw_rl.connect.server import Api, Target, found_address, found_key, reached, try_turn
from openclaw_rl.errors import ConfigError

app = typer.Typer()
OPENCLAW = "openclaw"


@app.command()
def connect(
    client: Annotated[str, typer.Argument(help="Which client; `--list` names them.")] = "",
    *,
    lists: Annotated[bool, typer.Option("--list", help="Name the clients and what is done for each.")] = False,
    prints: Annotated[bool, typer.Option("--print", help="Print what would be written, and write nothing.")] = False,
    url: Annotated[
        str | None,
        typer.Option("--url", help="The server's address. [default: that of the server running on the home]"),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="SGLANG_API_KEY", help="[default: the one in the home folder]")
    ] = None,
    home: Home = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="The client's configuration file, if it is not in the usual place.")
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
    undo: Annotated[
        bool, typer.Option("--undo", help="Remove from the client's file what this command wrote.")
    ] = False,
    test: Annotated[bool, typer.Option("--test/--no-test", help="Send a test turn. It teaches nothing.")] = True,
) -> None:
    """Point a client at this server.

    `openclaw-rl connect openclaw` adds a provider to OpenClaw's configuration (and keeps a copy of the old file),
    checks that the server answers and accepts the key, sends a test turn in the client's form, and reports which
    session and kind the server recognised. It may be run again at any time: correct entries stay, and other entries are
    not changed. Other clients get an entry in their own file, or it prints what to set; `--undo` removes the entry.
    """
    if lists:
        _list()
        return
    known = {each.name: each for each in clients()}
    if client != OPENCLAW and client not in known:
        names = ", ".join((OPENCLAW, *known))
        raise ConfigError(
            f"there is no client {client!r}" if client else "no client is named", fix=f"name one of {names}"
        )
    if undo:
        _undo(known.get(client), file, prints=prints)
        return
    target = asyncio.run(_target(home, url, api_key))
    say.print(f"the server at {escape(target.url)} answers; it serves {escape(target.model)}", soft_wrap=True)
    if client == OPENCLAW:
        plugin = openclaw.plugin_folder() if extension else None
        _connect_openclaw(openclaw.OpenClawSetup(target, make_default, thinking, plugin), file, prints=prints)
    else:
        _connect_other(known[client], target, file, prints=prints)
    if test and not prints:
        api = Api.CHAT if client == OPENCLAW else known[client].path_api
        _show_turn(target, api, as_openclaw=client == OPENCLAW)


async def _target(home: Path | None, url: str | None, api_key: str | None) -> Target:
    folder = settings_of(home).home
    return await reached(found_address(folder, url), found_key(folder, api_key))


def _list() -> None:
    table = Table("client", "what it is, and how it is set", show_edge=False)
    table.add_row(
        OPENCLAW, "OpenClaw, as a provider in its configuration, which is written; --extension adds the plugin"
    )
    for each in clients():
        about = each.about + (", which is written" if each.file else "")
        table.add_row(each.name, about + (f"; {each.least_context} tokens of context" if each.least_context else ""))
    print_table(table)


def _connect_openclaw(wanted: openclaw.OpenClawSetup, file: Path | None, *, prints: bool) -> None:
    if prints:
        print(as_json(openclaw.entries(wanted)), end="")
        return
    path = file or openclaw.config_path()
    held = openclaw.parsed(old_text(path), path)
    merged = openclaw.merged(held, wanted, path)
    if merged.config == held:
        _tell(FileChange(path, has_changed=False))
    else:
        _tell(put(path, as_json(merged.config)))
    against = openclaw.complaint(path)
    if against == "":
        say.print("OpenClaw's own check accepts it")
    notes = merged.notes if not against else (*merged.notes, f"OpenClaw's own check of {path} says: {against}")
    for note in notes:
        say.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)


def _connect_other(client: ClientRecipe, target: Target, file: Path | None, *, prints: bool) -> None:
    path = file or client.path()
    if client.text and (client.file or not file):
        print(client.printed(target), end="")
    if client.is_written and (path is not None or not client.text):
        if prints or path is None:
            print(_changed(client, target, "", Path(client.file)), end="")
        else:
            _tell(put(path, _changed(client, target, old_text(path) or "", path)))
    say.print(escape(client.advice(target)), soft_wrap=True)
    shortage = client.shortage(target.context)
    if shortage:
        say.print(f"[yellow]note:[/] {escape(shortage)}", soft_wrap=True)


def _changed(client: ClientRecipe, target: Target, before: str, path: Path) -> str:
    """The text of the client's file with our part in it."""
    if client.json:
        held = openclaw.parsed(before, path)
        return as_json(with_entries(held, client.entries(target)))
    if client.block:
        return with_block(before, client.lines(target), client.anchor, client.head)
    if before and not before.startswith(OURS):
        raise ConfigError(f"{path} was not written by this command", fix="use --print, and add the entry by hand")
    return client.whole(target)


def _undo(client: ClientRecipe | None, file: Path | None, *, prints: bool) -> None:
    """Removes our part from the client's file; None is OpenClaw."""
    path = file or (openclaw.config_path() if client is None else client.path())
    before = None if path is None else old_text(path)
    if path is None or before is None or (client is not None and not client.is_written):
        say.print("nothing was written to a file; variables set in a shell end with that shell", soft_wrap=True)
        return
    after = _restored(client, before, path)
    if prints:
        print(after, end="")
    elif after == before:
        say.print(f"{escape(str(path))} has no entry of this command", soft_wrap=True)
    elif after.strip():
        _tell(put(path, after))
    else:
        _tell(take_away(path))


def _restored(client: ClientRecipe | None, before: str, path: Path) -> str:
    """The text of the client's file without our part; empty if nothing is left."""
    if client is None or client.json:
        held = openclaw.parsed(before, path)
        nobody = Target("", "", "", None)
        left = openclaw.removed(held) if client is None else without_entries(held, client.entries(nobody))
        return before if left == held else as_json(left) if left else ""
    if client.block:
        left_text = without_block(before)
        return "" if left_text.strip() == client.head.strip() else left_text
    return "" if before.startswith(OURS) else before


def _tell(written: FileChange) -> None:
    if not written.has_changed:
        say.print(f"{escape(str(written.path))} is already correct", soft_wrap=True)
        return
    before = f"; the old one is {written.backup.name}" if written.backup else ""
    did = "wrote" if written.path.exists() else "took away"
    say.print(f"{did} {escape(str(written.path))}{escape(before)}", soft_wrap=True)


def _show_turn(target: Target, api: Api, *, as_openclaw: bool) -> None:
    told = asyncio.run(try_turn(target, api, as_openclaw=as_openclaw))
    say.print(f"test turn over {api.value}: [bold]{escape(told.kind)}[/], answered by version {escape(told.version)}")
    say.print(f"  session {escape(told.session)}", soft_wrap=True)
    say.print(f"  why     {escape(told.why)}", soft_wrap=True)
    if not told.would_teach:
        say.print("[yellow]note:[/] turns like it are never learned from; docs/clients.md says what makes a turn main")
