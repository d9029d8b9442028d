"""The view as text: one line per element or row, short enough for small models and always bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from openclaw_rl.core.message import Json
from openclaw_rl.envs.screen.screen import ScreenNode, View

MOST_NAME = 120


def tree_text(view: View, *, most_characters: int) -> str:
    """The view in a limited number of characters; a last line says if something was left out.

    `[3] button "Save"` can be acted on as 3. Elements of one row are on one line: `Ann | 12 | [4] button "Ship"`.
    """
    lines = [f"note: {note}" for note in view.notes]
    if view.title:
        lines.append(f"page: {view.title}")
    if view.has_above:
        lines.append("(more above: scroll up)")
    lines += _lines(view.nodes)
    more = "(more below: scroll down)" if view.has_below else "(more is not shown)" if view.is_cut else ""
    shown = "\n".join([*lines, more] if more else lines)
    if len(shown) <= most_characters:
        return shown
    kept: list[str] = []
    used, cut = 0, "(more is not shown)"
    for line in lines:
        room = most_characters - used - len(cut) - 1
        if len(line) + 1 > room:
            if not kept:
                kept.append(line[: max(room, 0)])
            break
        kept.append(line)
        used += len(line) + 1
    return "\n".join([*kept, cut])


def node_text(node: ScreenNode) -> str:
    """One element as text."""
    name, value = node.name[:MOST_NAME], node.value[:MOST_NAME]
    if node.role in ("text", "heading") and not node.ref:
        return f"# {name}" if node.role == "heading" and not node.row else name
    words = [f"[{node.ref}]"] if node.ref else []
    words.append(node.role)
    if name:
        words.append(f'"{name}"')
    if value or node.role in ("textbox", "searchbox"):
        words.append(f'= "{value}"')
    if node.options:
        words.append(f"({', '.join(node.options)})")
    return " ".join([*words, *node.facts])


def view_of(seen: Mapping[str, Json], notes: tuple[str, ...]) -> View:
    """The view that looking.js gives of a page."""
    nodes = seen.get("nodes")
    return View(
        tuple(_node(one) for one in nodes if isinstance(one, dict)) if isinstance(nodes, list) else (),
        str(seen.get("title") or ""),
        notes,
        bool(seen.get("isCut")),
        bool(seen.get("hasAbove")),
        bool(seen.get("hasBelow")),
    )


def _node(seen: Mapping[str, Json]) -> ScreenNode:
    facts, options = (seen.get(name) or [] for name in ("facts", "options"))
    return ScreenNode(
        str(seen.get("role") or "text"),
        str(seen.get("name") or ""),
        int(str(seen.get("ref") or 0)),
        str(seen.get("value") or ""),
        tuple(map(str, facts)) if isinstance(facts, list) else (),
        tuple(map(str, options)) if isinstance(options, list) else (),
        int(str(seen.get("row") or 0)),
    )


def _lines(nodes: tuple[ScreenNode, ...]) -> Iterator[str]:
    for row, group in groupby(nodes, key=lambda node: node.row):
        if row:
            yield " | ".join(node_text(node) for node in group)
        else:
            yield from _joined(group)


def _joined(group: Iterator[ScreenNode]) -> Iterator[str]:
    """Joins adjacent texts into one line."""
    for is_plain, nodes in groupby(group, key=lambda node: node.role == "text" and not node.ref):
        if is_plain:
            yield " ".join(node.name for node in nodes)
        else:
            yield from map(node_text, nodes)
