"""Commands about versions: list them, roll back, compare two, pin one, freeze training."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from openclaw_rl.cli.common import WIDEST, Home, home_of, print_table
from openclaw_rl.core.message import Json, json_list
from openclaw_rl.core.version import SHARED

app = typer.Typer()
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Version = Annotated[str, typer.Argument(help="A version, as `openclaw-rl versions` lists it: 3, or user-ann.3.")]
SHOWN = {  # metric -> its name next to a version
    "loss": "loss",
    "gate_kl": "nats from base",
    "gate_wish_before": "from its hints before",
    "gate_wish": "after",
    "gate_tasks": "tasks done",
    "watch_corrected": "corrected when watched",
}
STANDS = {  # a version's status -> its text and colour
    "live": ("passed", "white"),
    "refused": ("refused", "red"),
    "candidate": ("at the gate", "yellow"),
}


@app.command()
def versions(
    home: Home = None,
    as_json: AsJson = False,
    turns: Annotated[bool, typer.Option("--turns", help="Name the turns each version was trained on.")] = False,
    limit: Annotated[int, typer.Option("--limit", help="How many, the newest.", min=1)] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
) -> None:
    """Show the newest versions as a tree: what each was made from, what it learned, what was measured, which is served.

    A version is served once it has passed the gate, until a later one passes. If it then does worse than the version
    before it, it is rolled back. The reason is shown next to the version. Works whether or not the server runs.
    """
    from openclaw_rl.owner.versions import version_tree

    found = asyncio.run(version_tree(home_of(home), limit=None if everything else limit))
    if as_json:
        print(json.dumps(found))
        return
    # a tree is cut off at the width of its console, and versions in a row are ever deeper
    out = Console(highlight=False, soft_wrap=True, width=WIDEST)
    for root in _trees(found, with_turns=turns):
        out.print(root)
    if found.get("before") is not None:
        out.print(f"versions made before {escape(str(found['before']))} are not shown; --all shows them")
        out.print(f"served: {escape(', '.join(_texts(found['current'])))}")
    if found.get("frozen_since") is not None:
        out.print("[yellow]training is frozen; `openclaw-rl unfreeze` resumes it[/]")


@app.command()
def rollback(version: Version, home: Home = None) -> None:
    """Serve an earlier version again; training continues from it. Works whether or not the server runs."""
    from openclaw_rl.owner.versions import roll_back

    print(asyncio.run(roll_back(home_of(home), version)))


@app.command()
def pin(version: Version, home: Home = None) -> None:
    """Serve this version whatever is trained: nothing that training makes is served until `openclaw-rl unpin`."""
    from openclaw_rl.owner.versions import pin as order

    print(asyncio.run(order(home_of(home), version)))


@app.command()
def unpin(
    scope: Annotated[str, typer.Argument(help="The scope of the pin: `shared`, or a user's or agent's.")] = SHARED,
    home: Home = None,
) -> None:
    """Remove a pin: the newest version that passed the gate is served again."""
    from openclaw_rl.owner.versions import unpin as order

    print(asyncio.run(order(home_of(home), scope)))


@app.command()
def freeze(home: Home = None) -> None:
    """Stop training. Turns are still served and judged, and wait. Stays in force after a restart."""
    from openclaw_rl.owner.versions import freeze as order

    print(asyncio.run(order(home_of(home), is_frozen=True)))


@app.command()
def unfreeze(home: Home = None) -> None:
    """Resume training."""
    from openclaw_rl.owner.versions import freeze as order

    print(asyncio.run(order(home_of(home), is_frozen=False)))


@app.command()
def diff(
    one: Version,
    other: Version,
    *,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", help="A file, a prompt per line. [default: first messages of the latest sessions]"),
    ] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="The longest answer.", min=1, max=4096)] = 256,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show the answers of two versions to the same prompts, side by side.

    Asks the running server if there is one, else loads the model. Each answer is the version's likeliest, so the
    same prompt always gives the same answer. Number 0 is the model before it learned anything.
    """
    from openclaw_rl.owner.versions import compared

    found = asyncio.run(compared(home_of(home), [one, other], prompts, max_tokens=max_tokens))
    if as_json:
        print(json.dumps(found))
        return
    rows = _rows(found, "compared")
    table = Table("asked", *(escape(str(name)) for name in json_list(found["versions"])), show_lines=True)
    for row in rows:
        answers = [escape(str(text)) for text in json_list(row["answers"])]
        table.add_row(escape(_asked(row)), *(answers if not row["same"] else [answers[0], "[dim]the same[/]"]))
    print_table(table, Console(highlight=False))
    different = sum(not row["same"] for row in rows)
    print(f"{different} of {len(rows)} answers differ")


def _trees(found: dict[str, Json], *, with_turns: bool) -> list[Tree]:
    """A tree for each scope, the base model at its root."""
    rows = _rows(found, "versions")
    known = {str(row["version"]): row for row in rows}
    nodes: dict[str, Tree] = {}
    roots: list[Tree] = []
    for row in rows:  # oldest first, so that a parent is already there
        parent = str(row["parent"] or "")
        if parent and parent not in known and parent not in nodes:
            nodes[parent] = Tree(f"[bold]{escape(parent)}[/]  {_what_is(parent)}")
            roots.append(nodes[parent])
        label = _label(row, with_turns=with_turns)
        if parent in nodes:
            nodes[str(row["version"])] = nodes[parent].add(label)
        else:
            nodes[str(row["version"])] = root = Tree(label)
            roots.append(root)
    return roots


def _what_is(parent: str) -> str:
    """The text for a parent version that is not among those shown."""
    if not parent.endswith(".0"):
        return "an earlier version"
    return "the base model" if parent == f"{SHARED}.0" else "served as the shared version is"


def _label(row: dict[str, Json], *, with_turns: bool) -> str:
    turns = [str(turn) for turn in json_list(row["turns"])]
    word, colour = ("served", "bold green") if row.get("is_current") else STANDS[str(row["status"])]
    word = "removed" if str(row["why"]).startswith("removed: ") else word
    marks = "pinned" if row.get("is_pinned") else ""
    lines = [
        f"[bold]{escape(str(row['version']))}[/] [{colour}]{word}[/] {marks}".rstrip()
        + (f"  from {len(turns)} turn{'' if len(turns) == 1 else 's'}" if turns else "")
        + f"  {escape(str(row['why']))}"
    ]
    if row.get("pruned_at") is not None:
        lines.append(f"[dim]{escape(_without_weights(row))}[/]")
    metrics = row["metrics"] if isinstance(row["metrics"], dict) else {}
    measured = [
        f"{words} {value:.3g}" for name, words in SHOWN.items() if isinstance(value := metrics.get(name), float)
    ]
    if measured:
        lines.append(f"[dim]{', '.join(measured)}[/]")
    lines += [f"[italic]{escape(str(text))}[/]" for text in json_list(row.get("learned", []))[:3]]
    if with_turns and turns:
        lines.append(f"[dim]{escape(', '.join(turns))}[/]")
    return "\n".join(lines)


def _without_weights(row: dict[str, Json]) -> str:
    """What can be done about a version with pruned weights."""
    lost = row.get("erased")
    if isinstance(lost, dict):
        many = "1 sample" if lost["samples"] == 1 else f"{lost['samples']} samples"
        return f"weights not kept; they cannot be made again: {many} of {lost['version']} erased"
    return f"weights not kept; `openclaw-rl replay --version {row['version']} --restore` makes them again"


def _texts(value: Json) -> list[str]:
    return [str(item) for item in value.values()] if isinstance(value, dict) else []


def _asked(row: dict[str, Json]) -> str:
    """The last message's text."""
    messages = json_list(row["messages"])
    last = messages[-1] if messages else {}
    content = last.get("content", "") if isinstance(last, dict) else ""
    return content if isinstance(content, str) else json.dumps(content)


def _rows(found: dict[str, Json], name: str) -> Sequence[dict[str, Json]]:
    return [row for row in json_list(found[name]) if isinstance(row, dict)]
