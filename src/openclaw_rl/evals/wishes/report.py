"""What became of twelve wishes, for people: a table for each way of carrying them, as a page and as a section."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.evals.personalization.report import put_section

LEGEND = (
    "One user teaches twelve wishes one after another to one model, each until three first replies running met it or "
    "it was given up. A wish holds if at least {holds:.0%} of first replies to unseen tasks follow it in the end, as "
    "served; bare, with nothing added to the prompt. Tokens are those a prompt grew by, on average over the twelve."
)
COLUMNS = (
    "carry",
    "hold",
    "hold bare",
    "were met once",
    "prompt tokens added",
    "accuracy lost",
    "corrections",
    "sessions",
)


def as_markdown(figures: dict[str, Json]) -> str:
    """The section."""
    lines = [_legend(figures), "", _row(COLUMNS), _row(["---"] * len(COLUMNS))]
    lines += [_row(row) for row in table(figures)]
    lines += ["", _row(("wish", *_carries(figures))), _row(["---"] * (1 + len(_carries(figures))))]
    lines += [_row(row) for row in wishes(figures)]
    return "\n".join([*lines, "", f"Conditions: `{json.dumps(figures['conditions'])}`"])


def as_html(figures: dict[str, Json]) -> str:
    """The page."""
    style = files("openclaw_rl.evals").joinpath("report.css").read_text("utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Twelve wishes</title>'
        f"<style>{style}</style></head><body><h1>Twelve wishes, one after another</h1><p>{escape(_legend(figures))}</p>"
        f"{_html(COLUMNS, table(figures))}<h2>Followed before → in the end</h2>"
        f"{_html(('wish', *_carries(figures)), wishes(figures))}"
        f"<footer>{escape(json.dumps(figures['conditions']))}</footer></body></html>\n"
    )


def write_results(document: Path, figures: dict[str, Json]) -> None:
    """The section of the document, written anew."""
    put_section(document, "eval-wishes", as_markdown(figures))


def table(figures: dict[str, Json]) -> list[list[str]]:
    """A row for each carry."""
    names = ("held_by_seed", "held_bare_by_seed", "taught_by_seed", "prompt_tokens_added", "accuracy_drop_points")
    return [
        [name, *(_told(own.get(key)) for key in (*names, "corrections", "sessions"))]
        for name, own in _tables(figures["carries"]).items()
    ]


def wishes(figures: dict[str, Json]) -> list[list[str]]:
    """A row for each wish: its share before and in the end under each carry."""
    columns = [_tables(own["wishes"]) for own in _tables(figures["carries"]).values()]
    return [[name, *(_change(column[name]) for column in columns)] for name in (columns[0] if columns else ())]


def _legend(figures: dict[str, Json]) -> str:
    share = figures["holds_from"]
    return LEGEND.format(holds=share if isinstance(share, float) else 0.0)


def _carries(figures: dict[str, Json]) -> list[str]:
    return list(_tables(figures["carries"]))


def _change(own: dict[str, Json]) -> str:
    return " → ".join(
        f"{100 * share:.0f} %" for share in (own["wish_before"], own["wish_end"]) if isinstance(share, float)
    )


def _told(value: Json) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _tables(value: Json) -> dict[str, dict[str, Json]]:
    return {key: own for key, own in value.items() if isinstance(own, dict)} if isinstance(value, dict) else {}


def _html(head: tuple[str, ...], rows: list[list[str]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<div class='wide'><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>"


def _row(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"
