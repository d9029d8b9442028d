"""The output of every eval for people: one self-contained HTML page, and one section of a document."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError

LIBRARIES = ("openclaw-rl", "torch", "transformers", "peft", "openai")


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A cell that shows line breaks, for a model's reply."""

    text: str


def page(title: str, body: str) -> str:
    """The whole page."""
    style = files("openclaw_rl.evals").joinpath("report.css").read_text("utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>{body}</body></html>\n"
    )


def page_table(head: Sequence[str], rows: Sequence[Sequence[str | Verbatim]]) -> str:
    """A table of a page. Cells are text; it is escaped."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{_shown(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div class='wide'><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>"


def figure(plot: str, caption: str) -> str:
    """A picture with a caption."""
    return f"<figure>{plot}<figcaption>{escape(caption)}</figcaption></figure>"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in a document."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def put_section(document: Path, name: str, text: str) -> None:
    """Replaces the text between the section's marks, `<!-- name -->` and `<!-- /name -->`.

    Raises ConfigError if the document has no such marks.
    """
    start, stop = f"<!-- {name} -->", f"<!-- /{name} -->"
    try:
        whole = document.read_text("utf-8")
    except OSError as problem:
        raise ConfigError(f"{document} cannot be read: {problem.strerror}", fix="name a Markdown file") from problem
    head, found, rest = whole.partition(start)
    _, closed, tail = rest.partition(stop)
    if not found or not closed:
        raise ConfigError(f"{document} has no place for {name}", fix=f"write {start} and {stop} where it belongs")
    document.write_text(f"{head}{start}\n{text}\n{stop}{tail}", "utf-8")


def conditions(*, model: str, seeds: Sequence[int], repeats: int) -> dict[str, Json]:
    """The conditions of a measurement."""
    return {
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
        "python": platform.python_version(),
        "versions": {name: _installed(name) for name in LIBRARIES},
        "model": model,
        "seeds": list(seeds),
        "repeats": repeats,
    }


def _shown(cell: str | Verbatim) -> str:
    return f"<pre>{escape(cell.text)}</pre>" if isinstance(cell, Verbatim) else escape(cell)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
