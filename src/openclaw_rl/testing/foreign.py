"""Foreign code that records that it was run, for tests that it is never run."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path


class Trap:
    """An object whose pickle leaves a mark when read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str, int], int], tuple[str, int]]:
        return os.open, (str(self.mark), os.O_CREAT)


def trapped(mark: Path) -> bytes:
    """A pickle that is known to leave the mark."""
    data = pickle.dumps({"w": Trap(mark)})
    os.close(pickle.loads(data)["w"])
    assert mark.exists()
    mark.unlink()
    return data


def was_left(mark: Path) -> bool:
    """Whether foreign code has run."""
    return mark.exists()
