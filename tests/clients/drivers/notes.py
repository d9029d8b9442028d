"""What the drivers of agents have in common: files in the project, what they said at last, and their log."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from talking import note, red_square


def make_files(place) -> Path:
    """A file of notes and a picture in the project; gives the notes."""
    (place.project / "red.png").write_bytes(red_square())
    path = place.project / "notes.txt"
    path.write_text("apples 3\npears 4\n", "utf-8")
    return path


def answered(what: str, said: Sequence[str], due: Sequence[str]) -> None:
    """Notes whether the client said what it was to say."""
    note(what, list(said) == list(due), list(said))


def logged(place, text: str, done: subprocess.CompletedProcess[str]) -> None:
    """Keeps the end of what a command of the client printed."""
    with (place.home.parent / "client.log").open("a") as log:
        log.write(f"--- {text[:80]}\n{done.stdout[-2500:]}{done.stderr[-1500:]}\n")
