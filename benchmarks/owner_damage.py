"""Commands on a damaged copy: the store cut and bytes of it turned, files of versions, keys and settings gone or bad.

What can still be read is read before any command: turns whose row and body are whole, version folders that are as their
manifest says. None of it may be lost by looking or by mending, and mended folders are sound when looked at again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.owner_cases import Case, fresh_copy, others, strayed
from benchmarks.owner_commands import SERVE, Call
from benchmarks.owner_forked import run_forked
from benchmarks.owner_ground import laid
from benchmarks.owner_harms import HARMS, SEEN
from benchmarks.owner_run import Place, looked_at, run
from benchmarks.owner_truth import State, bytes_there, lost, state_of

CUTS = 20
TURNED, TURNED_A_CASE = 200, 20
MOST_TURNED = 8  # bytes next to each other
CHECK, REPAIR = Call("check"), Call("check", ("--repair",), writes=True)
LOOKS = (
    Call("doctor"),
    CHECK,
    Call("versions", ("--turns",)),
    Call("inspect"),
    Call("turns"),
    Call("hints list"),
    Call("keys list"),
    Call("export", ("{out}/records.jsonl",)),
)
STORE, LOGS = "store.db", ("store.db-wal", "store.db-shm")


def cut(place: Place, shares: Sequence[float]) -> None:
    """The store cut short at these shares of its length."""
    for share in shares:
        path = fresh_copy(place) / STORE
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
        _mended(place, f"store cut at {share:.0%}", LOOKS, turns=bytes_there(place.original, place.home))


def turned(place: Place, numbers: Sequence[int]) -> None:
    """Some bytes of the store turned into others, each time at another place."""
    for number in numbers:
        path = fresh_copy(place) / STORE
        source = random.Random(f"turned {number}")
        data = bytearray(path.read_bytes())
        at = len(data) * number // TURNED + source.randrange(len(data) // TURNED)
        for index in range(at, min(len(data), at + source.randint(1, MOST_TURNED))):
            data[index] ^= source.randint(1, 255)
        path.write_bytes(bytes(data))
        _mended(place, f"store turned at byte {at}", LOOKS if number % 10 == 0 else [CHECK])


def harmed(place: Place, name: str) -> None:
    """A file gone or bad: looked at, mended, looked at again, served; and served without mending."""
    HARMS[name](fresh_copy(place))
    _mended(place, name, LOOKS)
    if name in SEEN and not any(one.code for one in place.runs if one.situation == name):
        place.situation = name
        place.complain("neither check nor doctor sees it", command=CHECK.name)
    _served(place, f"{name}, mended")
    HARMS[name](fresh_copy(place))
    _served(place, name)


def served_cut(place: Place, shares: Sequence[float]) -> None:
    """The store cut short, then served: at once, and after mending."""
    for share in shares:
        for is_mended in (False, True):
            path = fresh_copy(place) / STORE
            path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
            if is_mended:
                run_forked(place, REPAIR)
            _served(place, f"store cut at {share:.0%}{', mended' if is_mended else ''}")


def _mended(place: Place, what: str, looks: Sequence[Call], *, turns: dict[str, str] | None = None) -> None:
    """Looks, mends, and looks again; everything sound stays, in the folder and, once mended, in the store.

    `turns` are those that must be there when it is mended, where they are more than SQLite can reach.
    """
    place.situation = what
    outside, sound = others(place), _sound(place)
    was_there = (place.home / STORE).is_file() and (place.home / STORE).stat().st_size > 0
    for call in looks:
        looked_at(place, call, run_forked(place, call), sound)
    place.situation = f"{what}, mending"
    done = looked_at(place, REPAIR, run_forked(place, REPAIR), sound)
    after = state_of(place.home)
    missing = (turns or {}).keys() - after.turns.keys() - sound.turns.keys()
    if missing:
        place.lost_turns += len(missing)
        place.complain(f"{len(missing)} turns are lost whose bytes are all there", command=REPAIR.name)
    if len(after.turns) < len(_everything(place).turns) and was_there and not _is_kept(place.home):
        place.complain("turns are gone, and the damaged store was not put aside", command=REPAIR.name)
    unknown = sorted(after.folders.keys() - after.rows)
    if unknown and done.code == 0:
        place.complain(f"sound versions are not in the mended store: {', '.join(unknown)}", command=REPAIR.name)
        place.lost_versions += len(unknown)
    place.situation = f"{what}, after mending"
    again = looked_at(place, CHECK, run_forked(place, CHECK), after)
    if again.code:
        place.situation = f"{what}, mending again"
        done = looked_at(place, REPAIR, run_forked(place, REPAIR), after)
        last = looked_at(place, CHECK, run_forked(place, CHECK), after)
        if last.code != 0 and not (last.code == 2 and "what to do:" in last.stderr):  # then it says why it cannot
            first = next((line for line in last.stderr.splitlines() if line), "")
            place.complain(f"is not clean after mending twice: {first[:300]}", command=REPAIR.name)
    if strayed(place, outside, others(place), what):
        laid(place.kept, place.root)


def _everything(place: Place) -> State:
    return state_of(place.original)


def _sound(place: Place) -> State:
    """What is sound in the folder in hand: nothing that the ground does not hold, since damage can look like a turn."""
    found, truth = state_of(place.home), _everything(place)
    return replace(
        found,
        turns={name: value for name, value in found.turns.items() if truth.turns.get(name) == value},
        rows=found.rows & truth.rows,
        folders={name: value for name, value in found.folders.items() if truth.folders.get(name) == value},
    )


def _is_kept(home: Path) -> bool:
    """Whether the store as it was found lies somewhere else in the folder."""
    return any(path != home / STORE and path.name not in LOGS for path in home.rglob(f"*{STORE}*"))


def _served(place: Place, what: str) -> None:
    """A server on it comes up or says what to do; nothing sound is lost, and what it serves is sound."""
    place.situation = f"{what}, served"
    outside, sound = others(place), _sound(place)
    done = run(place, SERVE, is_sound=False)
    took = lost(sound, state_of(place.home), home=place.home)
    version = (done.stdout.split()[2:] or [""])[0]
    if version and not version.endswith(".0") and version not in sound.folders:
        place.complain(f"serves {version}, whose folder is not sound", command=SERVE.name)
    if took.turns or took.folders:
        place.lost_turns += len(took.turns)
        place.lost_versions += len(took.folders)
        place.complain("; ".join(took.said()), command=SERVE.name)
    strayed(place, outside, others(place), SERVE.name)


def _spread(count: int, size: int) -> list[list[int]]:
    """The numbers below `count`, in runs of so many that are spread over all."""
    runs = max(1, count // size)
    return [list(range(first, count, runs)) for first in range(runs)]


def cases() -> list[Case]:
    """All of these."""
    shares = [(number + 1) / (CUTS + 1) for number in range(CUTS)]
    found: list[Case] = []
    for number, indexes in enumerate(_spread(CUTS, 5)):
        act: Callable[[Place], None] = partial(cut, shares=[shares[index] for index in indexes])
        found.append(Case(f"store cut, part {number + 1}", act, is_quick=number == 0))
    for number, indexes in enumerate(_spread(TURNED, TURNED_A_CASE)):
        found.append(Case(f"store turned, part {number + 1}", partial(turned, numbers=indexes), is_quick=number == 0))
    found.append(Case("store cut, served", partial(served_cut, shares=(0.3, 0.6, 0.9))))
    quick = {"weights of a version turned", "manifest of a version gone", "store gone"}
    return found + [Case(f"damage, {name}", partial(harmed, name=name), is_quick=name in quick) for name in HARMS]
