"""Pages of a damaged file, read without SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from openclaw_rl.store.mend.pages import DatabasePages, PageRow, Tree, rows_of

PAGE = 4096


def any_row(record: PageRow) -> bool:
    return True


def bodies_in(path: Path, root: int) -> set[bytes]:
    with closing(DatabasePages(path)) as file:
        found = [record.values[1] for _, record in rows_of(file, {"things": Tree(root, any_row, True)})]
    return {body for body in found if isinstance(body, bytes)}


@pytest.mark.parametrize("size", [300, 6000])  # within a page, and over more than one
def test_every_row_whose_bytes_are_left_is_read_wherever_the_file_was_cut(tmp_path: Path, size: int) -> None:
    whole = tmp_path / "whole.db"
    bodies = [bytes([number]) * size for number in range(1, 41)]
    with closing(sqlite3.connect(whole, isolation_level=None)) as sql:
        sql.execute(f"PRAGMA page_size={PAGE}")
        sql.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, body BLOB)")
        sql.executemany("INSERT INTO things (body) VALUES (?)", [(body,) for body in bodies])
        (root,) = sql.execute("SELECT rootpage FROM sqlite_master").fetchone()
    data = whole.read_bytes()
    assert bodies_in(whole, root) == set(bodies)
    for length in range(2 * PAGE, len(data), 500):
        cut = tmp_path / "cut.db"
        cut.write_bytes(data[:length])
        left = bodies_in(cut, root)
        assert left <= set(bodies)  # never a part of one
        if size < PAGE:
            assert left == {body for body in bodies if body in data[:length]}, length
