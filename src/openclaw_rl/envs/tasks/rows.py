"""Rows of JSON lines that hold tasks, each read by itself: a broken one is named, and the others are used."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from openclaw_rl.core.message import Json
from openclaw_rl.errors import TaskError

Row = Mapping[str, Json]
Read = TypeVar("Read")


def read_rows(path: Path, read: Callable[[Row], tuple[str, Read]]) -> tuple[dict[str, Read], dict[str, str]]:
    """What `read` makes of each row, by id; and why others cannot be read, by file and line."""
    found: dict[str, Read] = {}
    broken: dict[str, str] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise TaskError("it is no object")
            name, task = read(row)
            if name in found:
                raise TaskError(f"its id {name} was used before")
        except (ValueError, TaskError) as problem:
            broken[f"{path.name}:{number}"] = str(problem)
            continue
        found[name] = task
    return found, broken


def text_of(row: Row, name: str) -> str:
    """A text of a row; TaskError where there is none."""
    value = row.get(name)
    if not isinstance(value, str):
        raise TaskError(f"`{name}` is {'missing' if value is None else 'no text'}")
    return value


def files_of(row: Row, name: str) -> dict[str, str]:
    """Files by path, of a row; TaskError where a path leads elsewhere."""
    value = row.get(name)
    if not isinstance(value, dict) or not value:
        raise TaskError(f"`{name}` holds no files")
    files = {}
    for path, text in value.items():
        if not isinstance(text, str) or path.startswith("/") or ".." in Path(path).parts:
            raise TaskError(f"`{name}` holds {path!r}, which is no file below the folder")
        files[path] = text
    return files
