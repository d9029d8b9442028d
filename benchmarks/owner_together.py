"""Commands beside a server on the same folder, two commands at once, and commands with the clock set back an hour."""

from __future__ import annotations

import itertools
import json
import time
import urllib.request
from collections.abc import Sequence
from functools import partial

from benchmarks.owner_cases import Case, fresh_copy
from benchmarks.owner_commands import HINT, SERVE, Call, Cost, calls
from benchmarks.owner_ground import Running
from benchmarks.owner_run import Place, Run, ask, begun, ended, judged, looked_at, run, running, watched
from benchmarks.owner_truth import reading, served_by, state_of

PATIENCE_S = 60.0
CHECK = Call("check")
FORGET = Call("forget", ("--session", "{session}", "--yes", "--no-remake"), writes=True, forgets=True)
AT_ONCE = (
    CHECK,
    Call("check", ("--repair",), writes=True),
    Call("doctor"),
    Call("export", ("{out}/records.jsonl",), writes=True),
    Call("rollback", ("shared.2",), writes=True),
    Call("pin", ("shared.3",), writes=True),
    Call("freeze", writes=True),
    Call("hints add", (HINT,), writes=True),
    Call("keys add", ("bob",), writes=True),
    FORGET,
    SERVE,
)
# Why one of two may be refused: the other is at it, or has done it.
REFUSALS = ("in use by", "running server", "there is a key named", "is pinned", "has no turn")
CLOCK = """
import time

_now, _now_ns = time.time, time.time_ns
time.time = lambda: _now() - 3600
time.time_ns = lambda: _now_ns() - 3600 * 10**9
"""


def beside_its_server(place: Place) -> None:
    """On a folder that a server runs on; those that forget come last."""
    fresh_copy(place)
    with running(place) as server:
        first = ask(place, server, "Hello?")
        for call in sorted(calls(Cost.CHEAP, Cost.MODEL), key=lambda one: one.forgets):
            watched(place, call, succeeds=not call.may_refuse_beside_server)
        last = ask(place, server, "Hello?")
        code = server.end()
        said = Run(place.situation, "serve, its log", code, f"{first}\n{last}", server.said(), 0.01)
    place.note(judged(said, "serve", is_sound=True))
    if not (first.startswith("200 ") and last.startswith("200 ")):
        place.complain(f"answered {first} before, and {last} after", command=SERVE.name)
    watched(place, CHECK, succeeds=True)


def two_at_once(place: Place, pairs: Sequence[tuple[Call, Call]]) -> None:
    """Both do their work, or one says that the other is at it; afterwards all is sound."""
    for one, other in pairs:
        fresh_copy(place)
        before, begin = state_of(place.home), time.monotonic()
        if SERVE in (one, other):
            done = _beside_a_start(place, one if other == SERVE else other)
        else:
            processes = [(call, begun(place, call)) for call in (one, other)]
            done = [ended(place, call, process, begin) for call, process in processes]
        for each in done:
            if each.code and not any(words in each.said for words in REFUSALS):
                place.complain(f"code {each.code} beside {one.name} and {other.name}", command=each.command)
        if not any(each.code == 0 for each in done):
            place.complain(f"neither did its work: {one.name} and {other.name}", command=one.name)
        if one.command == other.command == "keys add":
            _one_bob(place)
        looked_at(place, FORGET if FORGET in (one, other) else CHECK, run(place, CHECK), before, succeeds=True)


def _beside_a_start(place: Place, call: Call) -> list[Run]:
    """A server that is starting, and the call over and over until it listens."""
    begin = time.monotonic()
    process = begun(place, Call("serve", ("--port", "0", "--model", "bundled")))
    done: list[Run] = []
    if call == SERVE:
        time.sleep(0.05)
        second = begun(place, Call("serve", ("--port", "0", "--model", "bundled")))
        time.sleep(8.0)
        for one in (second, process):
            one.terminate()
        done.append(ended(place, SERVE, second, begin))
    else:
        for _ in range(6):
            done.append(run(place, call))
            if call == FORGET and done[-1].code == 0:
                break
        process.terminate()
    done.append(ended(place, SERVE, process, begin))
    return done


def _one_bob(place: Place) -> None:
    kept = json.loads((place.home / "keys.json").read_text("utf-8"))
    if sum(item["name"] == "bob" for item in kept) != 1:
        place.complain(f"{kept} after the same key was added twice at once", command="keys add bob")


def clock_back(place: Place, costs: Sequence[Cost]) -> None:
    """With the clock an hour back: before the newest turns and versions were made."""
    environment = _an_hour_back(place)
    for call in calls(*costs):
        fresh_copy(place)
        succeeds = call.command != "connect" or "--list" in call.options
        watched(place, call, environment=environment, succeeds=succeeds)
        watched(place, CHECK, succeeds=True)


def _an_hour_back(place: Place) -> dict[str, str]:
    folder = place.root / "clock"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(CLOCK, "utf-8")
    environment = place.environment()
    return environment | {"PYTHONPATH": f"{folder}:{environment.get('PYTHONPATH', '')}"}


def learns_an_hour_back(place: Place) -> None:
    """The clock is set back between two starts: what is said then is learned from, and no version is made twice."""
    fresh_copy(place)
    before, served = state_of(place.home), served_by(place.home)
    with running(place, environment=_an_hour_back(place)) as server:
        turn = ask(place, server, "What is 3 + 4?", max_tokens=300).split()
        if turn[0] == "200":
            _correct(place, server, turn[1])
        until = time.monotonic() + PATIENCE_S
        while served_by(place.home) == served and time.monotonic() < until:
            time.sleep(0.5)
        time.sleep(3.0)  # an own version follows the shared one
        code = server.end()
        log = Run(place.situation, "serve, its log", code, " ".join(turn), server.said(), 0.01)
    place.note(judged(log, "serve", is_sound=True))
    if served_by(place.home) == served:
        with reading(place.home) as sql:
            found = sql.execute("SELECT state, reason FROM turns WHERE id = ?", (turn[1],)).fetchone()
        place.complain(f"no version came of a correction: the turn is {found}", command=SERVE.name)
    looked_at(place, CHECK, run(place, CHECK), before, succeeds=True)
    watched(place, SERVE, succeeds=True)


def _correct(place: Place, server: Running, turn: str) -> None:
    key = (place.home / "api_key").read_text("utf-8").strip()
    words = "I want that as a person would write it, in whole sentences, please."
    request = urllib.request.Request(
        f"{server.url}/v1/feedback",
        json.dumps({"response_id": turn, "score": -1, "text": words}).encode(),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


def cases() -> list[Case]:
    """All of these."""
    pairs = list(itertools.combinations_with_replacement(AT_ONCE, 2))
    starts = [pair for pair in pairs if SERVE in pair]
    plain = [pair for pair in pairs if SERVE not in pair]
    few = [(FORGET, FORGET), (FORGET, AT_ONCE[1]), (AT_ONCE[8], AT_ONCE[8]), (AT_ONCE[1], AT_ONCE[1])]
    return [
        Case("beside its own server", beside_its_server, is_quick=True),
        Case("two at once, a few", partial(two_at_once, pairs=few), is_quick=True),
        Case("two at once, one half", partial(two_at_once, pairs=plain[0::2])),
        Case("two at once, other half", partial(two_at_once, pairs=plain[1::2])),
        Case("two at once, beside a start", partial(two_at_once, pairs=starts)),
        Case("clock an hour back, quick commands", partial(clock_back, costs=[Cost.CHEAP])),
        Case("clock an hour back, commands with the model", partial(clock_back, costs=[Cost.MODEL])),
        Case("clock an hour back, learning", learns_an_hour_back, is_quick=True),
    ]
