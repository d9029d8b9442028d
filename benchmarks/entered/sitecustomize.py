"""Notes which functions of the package are entered, and when first; read by benchmarks/house.py.

Python imports this file at its start if its folder is in PYTHONPATH. SIGUSR1 clears the notes, SIGUSR2 writes them to
the folder that OPENCLAW_RL_ENTERED names.
"""

import json
import os
import signal
import sys
import threading
import time
from types import CodeType, FrameType

_FOLDER = os.environ.get("OPENCLAW_RL_ENTERED", "")
_PACKAGE = f"{os.sep}openclaw_rl{os.sep}"
_IS_FUNCTION = 1  # CO_OPTIMIZED: not the body of a module or of a class, which is entered when it is imported
_first: dict[CodeType, int] = {}


def _enter(frame: FrameType, event: str, argument: object) -> None:
    if event == "call" and frame.f_code not in _first:
        _first[frame.f_code] = time.monotonic_ns()


def _begin(number: int, frame: FrameType | None) -> None:
    _first.clear()


def _write(number: int, frame: FrameType | None) -> None:
    # A copy is made in one piece. A list of its items is not: what is collected meanwhile may enter functions, too.
    held = _first.copy()
    found = [
        [code.co_filename.rpartition(_PACKAGE)[2], code.co_qualname, at]
        for code, at in held.items()
        if _PACKAGE in code.co_filename and code.co_flags & _IS_FUNCTION
    ]
    path = os.path.join(_FOLDER, f"{os.getpid()}.json")
    with open(f"{path}.new", "w", encoding="utf-8") as out:
        json.dump(found, out)
    os.replace(f"{path}.new", path)


if _FOLDER:
    signal.signal(signal.SIGUSR1, _begin)
    signal.signal(signal.SIGUSR2, _write)
    threading.setprofile(_enter)
    sys.setprofile(_enter)
