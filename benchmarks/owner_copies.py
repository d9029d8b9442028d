"""Commands on the folder itself, on a copy of it, on a copy while the original serves, and after it was moved."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.owner_cases import Case, fresh_copy, others, strayed
from benchmarks.owner_commands import SERVE, Call, Cost, calls
from benchmarks.owner_ground import laid
from benchmarks.owner_run import Place, Run, ask, looked_at, run, running, watched
from benchmarks.owner_truth import OF_SERVER, prints, rows_of, state_of

ADDRESS = "server.json"


class Forwarder:
    """A port that passes everything on to a server and counts who came: a copied address points to it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.count = 0
        self._to = (parts.hostname or "", parts.port or 0)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Takes nobody any more."""
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self.count += 1
            server = socket.create_connection(self._to)
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while piece := one.recv(65536):
            other.sendall(piece)
        other.shutdown(socket.SHUT_WR)


def has_all(call: Call) -> bool:
    """Whether the call has what it needs where no server runs on the folder."""
    return call.command != "connect" or "--list" in call.options


def plain(place: Place, costs: Sequence[Cost]) -> None:
    """On the folder itself, at rest: what every other case is measured by."""
    for call in calls(*costs, has_home=False):
        fresh_original(place)
        place.out.mkdir(exist_ok=True)
        before = prints(place.home)
        environment = place.environment() | {"OPENCLAW_RL_HOME": str(place.home)}
        watched(place, call, environment=environment, succeeds=has_all(call))
        if not call.writes and call.cost is not Cost.MODEL:
            after = {name: value for name, value in prints(place.home).items() if name not in OF_SERVER}
            strayed(place, {name: value for name, value in before.items() if name not in OF_SERVER}, after, call.name)


def fresh_original(place: Place) -> None:
    """The ground as it was made; the folder in hand is the original."""
    laid(place.kept, place.root)
    shutil.rmtree(place.out, ignore_errors=True)
    place.out.mkdir()
    place.home = place.original


def at_rest(place: Place, costs: Sequence[Cost]) -> None:
    """On a copy, the original at rest: not a byte of it and not a time of its files changes."""
    for call in calls(*costs):
        before = others(place)
        fresh_copy(place)
        done = watched(place, call, succeeds=has_all(call))
        _served_as_before(place, call, done)
        if strayed(place, before, others(place), call.name):
            laid(place.kept, place.root)


def beside(place: Place, costs: Sequence[Cost]) -> None:
    """On a copy while the original serves; the copy's server.json is the original's, as `cp -a` leaves it."""
    place.home = place.original
    with running(place) as server:
        first = ask(place, server, "Hello?")
        forwarder = Forwarder(server.url)
        for call in calls(*costs):
            before = _serving(place)
            home = fresh_copy(place)
            _led_to(home.joinpath(ADDRESS), forwarder)
            came = forwarder.count
            done = watched(place, call, succeeds=has_all(call))
            _served_as_before(place, call, done)
            if forwarder.count > came:
                place.complain("asked the server of the folder it was copied from", command=call.name)
            strayed(place, before, _serving(place), call.name)
        forwarder.close()
        last = ask(place, server, "Hello?", home=place.original)
        if first.split()[0::2] != last.split()[0::2]:
            place.complain(f"the original answered {first} before, and {last} after", command=SERVE.name)


def _led_to(address: Path, forwarder: Forwarder) -> None:
    if address.is_file():
        held = json.loads(address.read_text("utf-8"))
        address.write_text(json.dumps(held | {"url": forwarder.url}), "utf-8")


def _serving(place: Place) -> dict[str, str]:
    """The original while it serves: its files but those of its store, and the rows of its store."""
    found = {name: value for name, value in others(place).items() if name.removeprefix("home/") not in OF_SERVER}
    return found | rows_of(place.original)


def _served_as_before(place: Place, call: Call, done: Run) -> None:
    if call == SERVE and not done.code and done.stdout.split()[2:] != [place.facts["served"]]:
        place.complain(f"serves {done.stdout}, not {place.facts['served']}", command=call.name)


def moved(place: Place, costs: Sequence[Cost]) -> None:
    """On the folder after it was given another name; nothing lies at its old place."""
    for call in calls(*costs):
        fresh_original(place)
        place.home = place.root / "archive" / "moved"
        shutil.rmtree(place.home, ignore_errors=True)
        place.home.parent.mkdir(exist_ok=True)
        place.original.rename(place.home)
        done = watched(place, call, succeeds=has_all(call))
        _served_as_before(place, call, done)
        if place.original.exists():
            place.complain("made a folder where it lay before", command=call.name)


def looks_at_the_copy(place: Place) -> None:
    """A copy with a version gone and one damaged, the original whole: what looks, looks at the copy."""
    bad = ("shared.6", place.facts["served"])
    for call in (*(one for one in calls(Cost.CHEAP) if one.command in {"check", "doctor"}), SERVE):
        home = fresh_copy(place)
        weights = home / "versions" / bad[0] / "adapter_model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-10] ^= 255
        weights.write_bytes(bytes(data))
        shutil.rmtree(home / "versions" / bad[1])
        before, state = others(place), state_of(home)
        done = run(place, call, is_sound=False)
        if call.command == "check":
            missed = [name for name in bad if name not in done.said]
            if missed or (done.code == 0 and "--repair" not in call.options):
                place.complain(f"does not see that {' and '.join(missed)} is not sound in the copy", command=call.name)
        elif call.command == "doctor" and done.code == 0:
            place.complain("finds a copy healthy that lacks a version and has a damaged one", command=call.name)
        elif call == SERVE and done.stdout.split()[2:] and done.stdout.split()[2] in bad:
            place.complain(f"serves {done.stdout.split()[2]}, which is not sound in the copy", command=call.name)
        looked_at(place, call, done, state)
        if strayed(place, before, others(place), call.name):
            laid(place.kept, place.root)


def cases() -> list[Case]:
    """All of these."""
    found: list[Case] = []
    cheap, model = (Cost.CHEAP,), (Cost.MODEL,)
    for name, act in (("as it is", plain), ("a copy", at_rest), ("a copy while it serves", beside), ("moved", moved)):
        found.append(Case(f"{name}, quick commands", partial(act, costs=cheap), is_quick=True))
        found.append(Case(f"{name}, commands with the model", partial(act, costs=model), is_quick=act is beside))
    found.append(Case("as it is, commands with servers of their own", partial(plain, costs=(Cost.LONG,))))
    found.append(Case("a copy with damage of its own", looks_at_the_copy, is_quick=True))
    return found
