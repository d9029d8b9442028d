"""Writes rows of screen tasks: families of pages and MiniWoB++, by seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.envs.screen import miniwob
from openclaw_rl.envs.screen.families.catalogue import FAMILIES
from openclaw_rl.envs.task import Split
from openclaw_rl.errors import TaskError


def write_rows(
    folder: Path, families: Sequence[str], pages: Sequence[str], *, train: int, test: int
) -> tuple[Path, int]:
    """Writes the file; returns it and its number of rows. By default all families. TaskError for unknown names."""
    names = [*families] or ([] if pages else [*FAMILIES])
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        raise TaskError(f"there is no family of pages {unknown[0]!r}", fix=f"give some of: {', '.join(FAMILIES)}")
    known = miniwob.pages() if pages else []
    missing = [page for page in pages if page not in known]
    if missing:
        raise TaskError(f"MiniWoB++ has no page {missing[0]!r}", fix=f"give some of: {', '.join(known)}")
    all_pages = [*names, *(f"{miniwob.PREFIX}{page}" for page in pages)]
    counts = ((Split.TRAIN, train), (Split.TEST, test))
    rows = [
        {"page": page, "seed": seed, "split": split.value}
        for page in all_pages
        for split, count in counts
        for seed in range(count)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "screens.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path, len(rows)
