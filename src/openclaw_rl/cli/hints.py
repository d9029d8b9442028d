"""Commands about the hints kept for users: list, add, edit, retire, remove."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from openclaw_rl.cli.common import Home, home_of, print_table, say

app = typer.Typer(
    no_args_is_help=True,
    help='What users have asked for, kept beyond the turn it came from.\n\nWith `carry = "memory"` or `"bridge"` these '
    "hints are in the prompts of their user's main requests. A bridge retires each hint once the weights follow "
    "without it, and uses it again when the user asks again. With `weights` only those are that the weights could not "
    "learn. Works whether or not the server runs.",
)
Name = Annotated[str, typer.Argument(help="The hint's id, as `openclaw-rl hints list` shows it.")]
Text = Annotated[str, typer.Argument(help="One to three sentences that say how to answer.")]
User = Annotated[str | None, typer.Option("--user", help="The hints' user. [default: all users; to add, the owner]")]


@app.command("list")
def list_hints(
    user: User = None, home: Home = None, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """List the kept hints, in use and retired, and why each is in its state."""
    from openclaw_rl.owner.hints import NOT_IN_PROMPTS, hints_of, stand_in_prompts

    rows = asyncio.run(hints_of(home_of(home), user))
    if as_json:
        print(json.dumps(rows))
        return
    are_in_prompts = stand_in_prompts(home_of(home))
    words = {"in_use": "in use" if are_in_prompts else "kept", "retired": "retired"}
    are_left = any(row["needs_prompt"] for row in rows)
    table = Table(Column("id", no_wrap=True), "user", "state", "times", "hint", "why")
    for row in rows:
        state = "in prompts" if row["needs_prompt"] else words.get(str(row["state"]), row["state"])
        cells = (row["id"], row["user"], state, row["times"], row["text"], row["why"])
        table.add_row(*(escape(str(cell)) for cell in cells))
    print_table(table)
    if rows and not are_in_prompts and not are_left:
        say.print(NOT_IN_PROMPTS, markup=False, soft_wrap=True)


@app.command()
def add(text: Text, user: User = None, home: Home = None) -> None:
    """Keep a hint; one that says the same as a kept one replaces it."""
    from openclaw_rl.owner.hints import add_hint

    print(asyncio.run(add_hint(home_of(home), text, user)))


@app.command()
def edit(name: Name, text: Text, home: Home = None) -> None:
    """Replace a hint's words, even if it was retired."""
    from openclaw_rl.owner.hints import change_hint

    print(asyncio.run(change_hint(home_of(home), name, text=text)))


@app.command()
def retire(name: Name, home: Home = None) -> None:
    """Remove a hint from every prompt, but keep it. If the user asks for it again, it is used again."""
    from openclaw_rl.owner.hints import change_hint

    print(asyncio.run(change_hint(home_of(home), name)))


@app.command()
def remove(name: Name, home: Home = None) -> None:
    """Forget a hint."""
    from openclaw_rl.owner.hints import remove_hint

    print(asyncio.run(remove_hint(home_of(home), name)))
