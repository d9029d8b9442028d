"""The results for twelve wishes: a table for each way of carrying them, as a page and as a section."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.evals.report import markdown_table, page, page_table, put_section

LEGEND = (
    "One user teaches twelve wishes one after another to one model, each until three first replies running met it or "
    "it was given up. A wish holds if at least {holds:.0%} of first replies to unseen tasks follow it in the end, as "
    "served; bare, with nothing added to the prompt. Of told: of those that the untrained model follows as often with "
    "all twelve as hints in its prompt. Tokens are those a prompt grew by, on average over the twelve."
)
COLUMNS = (
    "carry",
    "hold",
    "hold bare",
    "told",
    "hold of told",
    "were met once",
    "prompt tokens added",
    "accuracy lost",
    "corrections",
    "sessions",
)


def as_markdown(figures: dict[str, Json]) -> str:
    """The section."""
    lines = [_legend(figures), "", *markdown_table(COLUMNS, table(figures))]
    lines += ["", *markdown_table(("wish", *_carries(figures)), wishes(figures))]
    return "\n".join([*lines, "", f"Conditions: `{json.dumps(figures['conditions'])}`"])


def as_html(figures: dict[str, Json]) -> str:
    """The page."""
    return page(
        "Twelve wishes",
        f"<h1>Twelve wishes, one after another</h1><p>{escape(_legend(figures))}</p>"
        f"{page_table(COLUMNS, table(figures))}<h2>Followed before → in the end</h2>"
        f"{page_table(('wish', *_carries(figures)), wishes(figures))}"
        f"<footer>{escape(json.dumps(figures['conditions']))}</footer>",
    )


def write_results(document: Path, figures: dict[str, Json]) -> None:
    """The section of the document, rewritten."""
    put_section(document, "eval-wishes", as_markdown(figures))


def table(figures: dict[str, Json]) -> list[list[str]]:
    """A row for each carry."""
    held = ("held_by_seed", "held_bare_by_seed", "told_by_seed", "held_of_told_by_seed", "taught_by_seed")
    names = (*held, "prompt_tokens_added", "accuracy_drop_points", "corrections", "sessions")
    return [[name, *(_told(own.get(key)) for key in names)] for name, own in _tables(figures["carries"]).items()]


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
