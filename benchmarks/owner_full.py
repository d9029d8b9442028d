"""Commands where nothing can be written, and where the disk is full: before, during and after."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial

from benchmarks.owner_cases import Case, others, strayed
from benchmarks.owner_commands import SERVE, Call, Cost, calls
from benchmarks.owner_disks import fill, free, on_disk, read_only
from benchmarks.owner_ground import NotUpError, laid
from benchmarks.owner_run import Place, Run, ask, judged, looked_at, run, running, watched
from benchmarks.owner_truth import prints, reading, state_of

LEFT = {"4 kB": 4096, "64 kB": 65_536, "512 kB": 524_288, "3 MB": 3_145_728}
CHECK = Call("check")
# What needs no writing, so that it must do its work on a folder that cannot be written; doctor says that it cannot be.
READS = frozenset({"settings", "inspect", "turns", "versions", "check", "export", "hints list", "keys list", "diff"})


def unwritable(place: Place, costs: Sequence[Cost]) -> None:
    """On a folder mounted read-only, which root cannot write either; what is written goes elsewhere."""
    read_only(place)
    before, own = others(place), prints(place.home)
    for call in calls(*costs):
        shutil.rmtree(place.out, ignore_errors=True)
        place.out.mkdir()
        done = watched(place, call)
        if call.command in READS and "--repair" not in call.options and done.code:
            place.complain(f"ended with code {done.code}, though it only reads", command=call.name)
        strayed(place, before, others(place), call.name)
    strayed(place, own, prints(place.home), "all together")


def full_before(place: Place, costs: Sequence[Cost]) -> None:
    """On a full disk; then there is room again, and the same call does its work."""
    situation = place.situation
    for call in calls(*costs):
        folder = on_disk(place)
        fill(folder)
        outside, before = others(place), state_of(place.home)
        first = watched(place, call)
        free(folder)
        if call.command != "connect":
            _again(place, call, first.code == 0 and call.writes)
        place.situation = f"{situation}, after {call.name}"
        done = run(place, CHECK)
        looked_at(place, call if call.forgets else CHECK, done, before, succeeds=True)
        place.situation = situation
        if strayed(place, outside, others(place), call.name):
            laid(place.kept, place.root)


def _again(place: Place, call: Call, was_done: bool) -> None:
    """The same call where it was refused; what was done already may be refused now."""
    if not was_done:
        watched(place, call, succeeds=call.command != "doctor")  # who finds such a small disk small


def full_during(place: Place, left: str) -> None:
    """On a disk that gets full while the call writes; then there is room, and nothing is lost."""
    situation = place.situation
    for call in (one for one in calls(Cost.CHEAP) if one.writes):
        folder = on_disk(place)
        fill(folder, leave_bytes=LEFT[left])
        outside, before = others(place), state_of(place.home)
        first = watched(place, call)
        free(folder)
        _again(place, call, first.code == 0)
        place.situation = f"{situation}, after {call.name}"
        done = run(place, CHECK)
        looked_at(place, call if call.forgets else CHECK, done, before, succeeds=True)
        place.situation = situation
        if strayed(place, outside, others(place), call.name):
            laid(place.kept, place.root)


def full_after(place: Place) -> None:
    """What was done while there was room is there when there is none, and commands that read work."""
    for call in (one for one in calls(Cost.CHEAP) if one.writes):
        folder = on_disk(place)
        watched(place, call, succeeds=call.command != "doctor")  # who finds such a small disk small
        fill(folder)
        watched(place, CHECK)
        watched(place, Call("doctor"))
        watched(place, Call("versions", ("--turns",)))


def full_while_serving(place: Place) -> None:
    """The disk of a running server gets full, and free again: what it acknowledged is there, what it learned, too."""
    folder = on_disk(place)
    before, acknowledged = state_of(place.home), []
    with running(place) as server:
        acknowledged.append(ask(place, server, "Is there room?"))
        fill(folder)
        full = [ask(place, server, f"Is there room now, {number}?") for number in range(5)]
        for call in calls(Cost.CHEAP):
            if not call.forgets:
                watched(place, call)
        free(folder)
        after = [ask(place, server, f"Is there room again, {number}?") for number in range(3)]
        code, said = server.end(), server.said()
    log = Run(place.situation, "serve, its log", code, "\n".join([*acknowledged, *full, *after]), said, 0.01)
    place.note(judged(log, "serve", is_sound=True))
    if any(not answer.startswith("200 ") for answer in after):
        place.complain(f"answered {after} when there was room again", command=SERVE.name)
    _all_there(place, [*acknowledged, *full, *after])
    done = run(place, CHECK)
    looked_at(place, CHECK, done, before, succeeds=True)


def _all_there(place: Place, answers: Sequence[str]) -> None:
    """Every turn that was answered with 200 is in the store."""
    names = [answer.split()[1] for answer in answers if answer.startswith("200 ")]
    with reading(place.home) as sql:
        missing = [name for name in names if not sql.execute("SELECT 1 FROM turns WHERE id = ?", (name,)).fetchone()]
    if missing:
        place.lost_turns += len(missing)
        place.complain(f"{len(missing)} of {len(names)} acknowledged turns are lost", command=SERVE.name)


def served_after(place: Place) -> None:
    """A server that was refused by a full disk starts when there is room, and serves what was served."""
    folder = on_disk(place)
    fill(folder)
    try:
        with running(place) as server:
            place.note(Run(place.situation, "serve", 0, ask(place, server, "Hello?"), server.said(), 0.01))
    except NotUpError as problem:
        refused = Run(place.situation, "serve", problem.code or 124, "", problem.said, 0.01)
        place.note(judged(refused, "serve", is_sound=True))
    free(folder)
    done = watched(place, SERVE, succeeds=True)
    if done.stdout.split()[2:] != [place.facts["served"]]:
        place.complain(f"serves {done.stdout}, not {place.facts['served']}", command=SERVE.name)


def cases() -> list[Case]:
    """All of these."""
    cheap, model = [Cost.CHEAP], [Cost.MODEL]
    return [
        Case("read-only, quick commands", partial(unwritable, costs=cheap), needs_mounts=True, is_quick=True),
        Case("read-only, commands with the model", partial(unwritable, costs=model), needs_mounts=True),
        Case("disk full before, quick commands", partial(full_before, costs=cheap), needs_mounts=True),
        Case("disk full before, commands with the model", partial(full_before, costs=model), needs_mounts=True),
        *(Case(f"disk full after {left}", partial(full_during, left=left), needs_mounts=True) for left in LEFT),
        Case("disk full afterwards", full_after, needs_mounts=True),
        Case("disk full while it serves", full_while_serving, needs_mounts=True, is_quick=True),
        Case("disk full at the start", served_after, needs_mounts=True, is_quick=True),
    ]
