"""Rows of JSON lines or Parquet that hold tasks, each read separately: broken rows are named, the others are used."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from openclaw_rl.core.message import Json
from openclaw_rl.errors import TaskError

Row = Mapping[str, Json]
Read = TypeVar("Read")
PARQUET = ".parquet"


def read_rows(path: Path, read: Callable[[Row], tuple[str, Read]]) -> tuple[dict[str, Read], dict[str, str]]:
    """The results of `read` by row id, and why other rows cannot be read, by file and line.

    A repeated row is skipped: published files repeat rows to make epochs.
    """
    found: dict[str, Read] = {}
    broken: dict[str, str] = {}
    rows = _rows_of(path)
    while True:
        number = 0
        try:
            number, given = next(rows, (0, None))
            if number == 0:
                return found, broken
            row = json.loads(given) if isinstance(given, bytes) else given
            if not isinstance(row, dict):
                raise TaskError("it is not an object")
            name, task = read(row)
            if name in found and found[name] != task:
                raise TaskError(f"its id {name} was used before")
            found[name] = task
        except (ValueError, RecursionError, TaskError, OSError) as problem:
            broken[f"{path.name}:{number}" if number else path.name] = str(problem)


def columns_of(path: Path) -> set[str]:
    """The names in the first row of a file of JSON lines; none if it contains no object."""
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    try:
        row = json.loads(first)
    except (ValueError, RecursionError):
        return set()
    return set(row) if isinstance(row, dict) else set()


def _rows_of(path: Path) -> Iterator[tuple[int, Row | bytes | None]]:
    """Each row with its number, from 1. From a damaged file come the rows before the damage."""
    if path.suffix != PARQUET:
        with path.open("rb") as file:
            yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())
        return
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as problem:
        raise TaskError("reading Parquet needs openclaw-rl[parquet]") from problem
    number = 0
    try:
        with ParquetFile(path) as parquet:
            for batch in parquet.iter_batches(batch_size=1000):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except ArrowException as problem:
        raise TaskError(f"after {number} rows it cannot be read: {problem}") from problem


def text_of(row: Row, name: str) -> str:
    """A text of a row; TaskError if there is none."""
    value = row.get(name)
    if not isinstance(value, str):
        raise TaskError(f"`{name}` is {'missing' if value is None else 'not text'}")
    return value


def files_of(row: Row, name: str) -> dict[str, str]:
    """Files by path, of a row; TaskError if a path leads elsewhere."""
    value = row.get(name)
    if not isinstance(value, dict) or not value:
        raise TaskError(f"`{name}` contains no files")
    files = {}
    for path, text in value.items():
        if not isinstance(text, str) or path.startswith("/") or ".." in Path(path).parts:
            raise TaskError(f"`{name}` holds {path!r}, which is not a file below the folder")
        files[path] = text
    return files
