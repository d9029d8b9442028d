"""Adds, changes and removes our entries in a client's JSON, or between two marks in its lines; the rest stays."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence

from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError

BEGIN = "# >>> openclaw-rl: from here to the other mark is written by `openclaw-rl connect`"
END = "# <<< openclaw-rl"
_OWN = "openclaw-rl"
_BY_HAND = "use --print, and add the entry by hand"


def with_entries(held: Mapping[str, Json], entries: Mapping[str, Json]) -> dict[str, Json]:
    """The configuration with our entries over it. Raises ConfigError if another kind of value is in the way."""
    found = copy.deepcopy(dict(held))
    for name, value in entries.items():
        inner = found.get(name)
        if not isinstance(value, dict):
            found[name] = copy.deepcopy(value)
            continue
        if inner is not None and not isinstance(inner, dict):
            raise ConfigError(f"{name} in the configuration is not an object", fix=_BY_HAND)
        found[name] = with_entries(inner or {}, value)
    return found


def without_entries(held: Mapping[str, Json], entries: Mapping[str, Json]) -> dict[str, Json]:
    """The configuration without what `with_entries` adds; objects that are then empty are removed too.

    Everything under our name is removed. A choice of our model is removed if it is still ours; `$schema` stays.
    """
    found = copy.deepcopy(dict(held))
    for name, value in entries.items():
        inner = found.get(name)
        if isinstance(value, dict) and isinstance(inner, dict) and name != _OWN:
            found[name] = without_entries(inner, value)
        elif isinstance(value, list) and isinstance(inner, list):
            found[name] = [each for each in inner if each not in value]
        elif not name.startswith("$") and (inner == value or not str(value).startswith(f"{_OWN}/")):
            found.pop(name, None)
        if found.get(name) in ({}, []):
            del found[name]
    return found


def with_block(text: str, block: str, anchor: Sequence[str], head: str = "") -> str:
    """The text with our lines below the keys of `anchor`, at its end if there are none.

    Missing keys are added, with `head` before them if the text was empty. Raises ConfigError
    if the keys contain something that lines cannot be added to.
    """
    text = without_block(text)
    if not text.strip() and anchor:
        text = head.lstrip("\n")
    lines = text.splitlines()
    at, indent, missing = _place(lines, anchor)
    ours = [f"{'  ' * depth}{key}:" for depth, key in enumerate(missing, start=len(anchor) - len(missing))]
    ours += [" " * indent + line if line else line for line in block.strip("\n").splitlines()]
    margin = " " * (indent if not missing else 2 * (len(anchor) - len(missing)))
    lines[at:at] = [margin + BEGIN, *ours, margin + END]
    return "\n".join(lines) + "\n"


def without_block(text: str) -> str:
    """The text without our lines."""
    kept: list[str] = []
    is_ours = False
    for line in text.splitlines(keepends=True):
        if line.strip() == BEGIN:
            is_ours = True
        elif is_ours:
            is_ours = line.strip() != END
        else:
            kept.append(line)
    if is_ours:
        raise ConfigError(
            f"the line {END!r} is missing", fix="put it back after the entry of openclaw-rl, or remove both marks"
        )
    return "".join(kept)


def _place(lines: Sequence[str], anchor: Sequence[str]) -> tuple[int, int, Sequence[str]]:
    """The place of our lines, their indentation, and the keys to write before them."""
    start, stop, depth = 0, len(lines), 0
    for number, key in enumerate(anchor):
        at = _first(lines[:stop], start, rf" {{{depth}}}{re.escape(key)}\s*:")
        if at is None:
            missing = anchor[number:]
            return (stop if number == 0 else start), depth + 2 * len(missing), missing
        if re.fullmatch(rf" *{re.escape(key)}\s*:\s*(#.*)?", lines[at]) is None:
            raise ConfigError(f"{lines[at].strip()!r} is not written over lines of its own", fix=_BY_HAND)
        start = at + 1
        stop = next((place for place in range(start, stop) if _is_beyond(lines[place], depth)), stop)
        depth = next((_indent(line) for line in lines[start:stop] if _is_told(line)), depth + 2)
    return (start, depth, ()) if anchor else (len(lines), 0, ())


def _first(lines: Sequence[str], start: int, form: str) -> int | None:
    """The first line from `start` on that begins with this."""
    return next((place for place in range(start, len(lines)) if re.match(form, lines[place])), None)


def _is_told(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("#")


def _is_beyond(line: str, depth: int) -> bool:
    """Whether a line no longer belongs to a key with this indentation; a list may be indented as far as its key."""
    inside = _indent(line) > depth or (_indent(line) == depth and line.lstrip().startswith("- "))
    return _is_told(line) and not inside


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
