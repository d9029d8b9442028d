"""`openclaw-rl keys`: who may use this server, for what, and how much."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.table import Column, Table

from openclaw_rl.cli.common import Home, print_table, say, settings_of
from openclaw_rl.core.rights import KnownKey, Limits, Right
from openclaw_rl.errors import ConfigError

app = typer.Typer(
    no_args_is_help=True,
    help="Keys for others: each with a name, scopes and limits.\n\nThe server's first key, in the file api_key of its "
    "home folder, may do everything. Give other keys only the scopes that they need. Works while the server runs.",
)
Name = Annotated[str, typer.Argument(help="The key's name; its turns and sessions have this name as their user.")]


@app.command()
def add(
    name: Name,
    *,
    scopes: Annotated[
        str,
        typer.Option(
            "--scopes",
            help="What it may do, with commas: chat (ask), feedback (thumbs and corrections), teach (its turns are "
            "learned from), admin (see everybody's turns, roll back).",
        ),
    ] = "chat,feedback",
    requests: Annotated[int, typer.Option("--requests-a-minute", help="0 for the value in the settings.", min=0)] = 0,
    tokens: Annotated[int, typer.Option("--tokens-a-minute", help="0 for the value in the settings.", min=0)] = 0,
    body: Annotated[int, typer.Option("--max-body-bytes", help="0 for the value in the settings.", min=0)] = 0,
    home: Home = None,
) -> None:
    """Make a key and print it. It is shown only this once: the server keeps its hash.

    Without --scopes a key may send chat requests and feedback, but its turns are not learned from. Add `teach` for
    users from whom the model should learn.
    """
    from openclaw_rl.home.keys import add_key

    key = add_key(settings_of(home).home, name, _rights(scopes), Limits(requests, tokens, body))
    say.print(f"the key of {name}; it is shown this once:", markup=False)
    print(key)


@app.command(name="list")
def listed(home: Home = None) -> None:
    """Show the keys: what each may do, when it was made and last used, whether it was revoked."""
    from openclaw_rl.home.folder import has_key
    from openclaw_rl.home.keys import kept_keys, last_used

    folder = settings_of(home).home
    used = last_used(folder)
    table = Table(Column("name", no_wrap=True), "scopes", "limits", "made", "last used", "")
    first = "the first key, in the file api_key" if has_key(folder) else "made at the first start, unless one is given"
    table.add_row("owner", "all", "", "", _when(used.get("owner")), first)
    for key in kept_keys(folder):
        state = "" if key.revoked_s is None else f"revoked {_when(key.revoked_s)}"
        scopes = ", ".join(right.value for right in Right if right in key.rights)
        table.add_row(key.name, scopes, _limits(key), _when(key.made_s), _when(used.get(key.name)), state)
    print_table(table)


@app.command()
def revoke(name: Name, home: Home = None) -> None:
    """Revoke a key. Its turns stay; those that were not yet learned from are never learned from."""
    from openclaw_rl.home.keys import revoke_key

    revoke_key(settings_of(home).home, name)
    print(f"{name} is revoked")


def _rights(scopes: str) -> frozenset[Right]:
    words = [word.strip() for word in scopes.split(",") if word.strip()]
    unknown = [word for word in words if word not in frozenset(Right)]
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is not a scope", fix=f"use {', '.join(Right)}")
    return frozenset(Right(word) for word in words)


def _limits(key: KnownKey) -> str:
    held = key.limits
    facts = [
        (held.requests_a_minute, "requests/min"),
        (held.tokens_a_minute, "tokens/min"),
        (held.max_body_bytes, "bytes"),
    ]
    return ", ".join(f"{value} {unit}" for value, unit in facts if value)


def _when(at_s: float | None) -> str:
    return "" if at_s is None else f"{datetime.fromtimestamp(at_s):%Y-%m-%d %H:%M}"
