"""Every task there is, checked: its start fails, and its own solution passes (`make bench-tasks`).

DATA names the folder, `../shared/data` where it is not set.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from benchmarks.common import Figures, conditions, finish, progress
from openclaw_rl.envs.box.probe import open_boxes
from openclaw_rl.envs.tasks.check import Checked, TaskVerdict, check_sources
from openclaw_rl.envs.tasks.sources import find_sources

DATA = Path(os.environ.get("DATA", "../shared/data"))
AT_ONCE = 2


async def measure(folder: Path) -> Figures:
    """The figures of a folder."""
    sources = find_sources(folder)
    boxes = await open_boxes()
    began = time.monotonic()

    def tell(one: Checked) -> None:
        if one.verdict is not TaskVerdict.SOUND or one.reason:
            progress(f"{one.verdict}: {one.id}: {one.reason[:300]}")

    try:
        report = await check_sources(sources, boxes, at_once=AT_ONCE, tell=tell)
    finally:
        await boxes.aclose()
    names = sorted({one.source for one in report.checked})
    parts: Figures = {}
    for name in names:
        own = [one for one in report.checked if one.source == name]
        parts[name] = {
            "tasks": len(own),
            "sound": sum(one.verdict is TaskVerdict.SOUND for one in own),
            "median_s": round(sorted(one.duration_s for one in own)[len(own) // 2], 3),
        }
    sound = sum(one.verdict is TaskVerdict.SOUND for one in report.checked)
    return {
        "tasks": len(report.checked),
        "sound": sound,
        "share": sound / len(report.checked),
        "sources": parts,
        "at_second_try": [one.id for one in report.checked if one.verdict is TaskVerdict.SOUND and one.reason],
        "others": {one.id: f"{one.verdict}: {one.reason[:200]}" for one in report.checked if one.verdict != "sound"},
        "minutes": round((time.monotonic() - began) / 60, 1),
        "at_once": AT_ONCE,
        "boxes": dict(boxes.limits_in_force),
    }


def main() -> None:
    """Prints the figures."""
    figures = asyncio.run(measure(DATA))
    finish({**figures, "conditions": conditions("none", threads=1, seeds=[], repeats=1)})


if __name__ == "__main__":
    main()
