"""Version folders belong to the folder their store lies in, wherever it was made and wherever it is now."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from older_stores import take_back

from openclaw_rl.core.manifest import version_folder
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.store.connection import NAME
from openclaw_rl.store.db import Store
from openclaw_rl.testing.folders import lived_in

VERSIONS = [PolicyVersion(SHARED, 1), PolicyVersion(SHARED, 2)]


async def folders_of(home: Path) -> list[Path | None]:
    store = await Store.open(home)
    rows = [row.folder for row in await store.versions() if not row.version.is_base]
    await store.aclose()
    return rows


async def test_a_copy_has_its_own_versions(tmp_path: Path) -> None:
    await lived_in(tmp_path / "original")
    copy = shutil.copytree(tmp_path / "original", tmp_path / "copy")
    assert await folders_of(copy) == [version_folder(copy, version) for version in VERSIONS]


async def test_a_store_that_holds_whole_paths_of_another_place_is_healed(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as sql:
        take_back(sql, 8)
        held = sql.execute("SELECT folder FROM versions WHERE number = 1").fetchone()[0]
        assert held == "/elsewhere/versions/shared.1"
    assert await folders_of(tmp_path) == [version_folder(tmp_path, version) for version in VERSIONS]
    with closing(sqlite3.connect(tmp_path / NAME)) as sql:
        assert sql.execute("SELECT folder FROM versions WHERE number = 1").fetchone()[0] == "versions/shared.1"
