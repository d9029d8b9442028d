"""Several ranks on this machine, forked from the test: what they need is loaded already."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openclaw_rl.trainers.ranks import Ranks, meet

WAIT_S = 120.0


def together(count: int, work: Callable[[Ranks], Any], folder: Path) -> list[Any]:
    """What `work` returns on each of so many ranks. Raises AssertionError where one of them raised."""
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_rank, args=(number, count, work, folder)) for number in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join(WAIT_S)
    assert [child.exitcode for child in children] == [0] * count
    return [pickle.loads((folder / f"{number}.pickle").read_bytes()) for number in range(count)]


def _rank(number: int, count: int, work: Callable[[Ranks], Any], folder: Path) -> None:
    try:
        ranks = meet(number, count, folder / "meeting")
        (folder / f"{number}.pickle").write_bytes(pickle.dumps(work(ranks)))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
