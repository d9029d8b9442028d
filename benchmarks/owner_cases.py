"""A case of `benchmarks.owner`: a name, what is done, and whether it needs mounts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.owner_disks import copied
from benchmarks.owner_run import Place
from benchmarks.owner_truth import changed, prints


@dataclass(frozen=True, slots=True)
class Case:
    """One thing an owner does, with all that is called in it. Cases know nothing of each other."""

    name: str
    act: Callable[[Place], None]
    needs_mounts: bool = False
    is_quick: bool = False  # part of a look, too


def others(place: Place) -> dict[str, str]:
    """Everything that is not the folder in hand: the original, what was exported from it, and the home directory."""
    return {
        f"{folder}/{name}": value
        for folder in ("home", "exports", "person")
        for name, value in prints(place.root / folder).items()
    }


def fresh_copy(place: Place) -> Path:
    """A copy of the original as the folder in hand."""
    place.home = copied(place)
    return place.home


def strayed(place: Place, before: dict[str, str], after: dict[str, str], command: str) -> bool:
    """Complains of whatever else the command changed."""
    found = changed(before, after)
    if found:
        place.strayed += len(found)
        place.complain(f"changed another folder: {', '.join(found[:12])} ({len(found)} in all)", command=command)
    return bool(found)
