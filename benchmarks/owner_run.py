"""Calls of the program in `benchmarks.owner`: what was said, and what every message must be."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.owner_commands import SERVE, Call, Cost
from benchmarks.owner_ground import NotUpError, Running, environment_of, started
from benchmarks.owner_truth import State, lost, state_of

LIMIT_S = {Cost.CHEAP: 60.0, Cost.MODEL: 240.0, Cost.LONG: 900.0}
HUNG = 124
MOST_CHARACTERS = 6000  # of a message that is kept for reading
CRASHES = ("Traceback (most recent call last)", "unexpected error", "Fatal Python error", "BUG:")
BLAME = ("is damaged", "restore it from", "restore from")  # never said of a store that is sound


@dataclass(frozen=True, slots=True)
class Run:
    """One call and what it said; `complaints` are what is wrong with it."""

    situation: str
    command: str
    code: int
    stdout: str
    stderr: str
    seconds: float
    complaints: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """All of it."""
        return f"{self.stdout}\n{self.stderr}"


@dataclass(slots=True)
class Place:
    """Where a case works: the folder in hand, others that must stay as they are, and room for what is written."""

    root: Path
    kept: Path  # the ground, for laying it again
    facts: dict[str, str]
    home: Path
    out: Path
    situation: str
    runs: list[Run] = field(default_factory=list)
    lost_turns: int = 0  # sound ones
    lost_versions: int = 0  # sound ones
    strayed: int = 0  # files and tables of other folders that are not as they were

    @property
    def person(self) -> Path:
        """The home directory of whoever types."""
        return self.root / "person"

    @property
    def original(self) -> Path:
        """The folder where it was made."""
        return self.root / "home"

    def environment(self) -> dict[str, str]:
        """The environment of every call."""
        return environment_of(self.person)

    def note(self, run: Run) -> Run:
        """Keeps it for the report."""
        self.runs.append(run)
        return run

    def complain(self, what: str, *, command: str = "(afterwards)") -> None:
        """Something is wrong that no single message shows."""
        self.note(Run(self.situation, command, 0, "", "", 0.0, (what,)))


def typed(place: Place, call: Call) -> list[str]:
    """The words with what the case has."""
    values = {"home": str(place.home), "out": str(place.out), **place.facts}
    return [word.format(**values) if "{" in word else word for word in call.words]


def run(place: Place, call: Call, *, environment: dict[str, str] | None = None, is_sound: bool = True) -> Run:
    """Calls it as a process and gives what it said, with what is wrong with that."""
    if call == SERVE:
        return serve(place, environment=environment, is_sound=is_sound)
    begin = time.monotonic()
    process = begun(place, call, environment=environment)
    return ended(place, call, process, begin, is_sound=is_sound)


def begun(place: Place, call: Call, *, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """The process, under way."""
    command = [sys.executable, "-m", "openclaw_rl", *typed(place, call)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=place.environment() if environment is None else environment,
        cwd=place.person,
    )


def ended(place: Place, call: Call, process: subprocess.Popen[str], begin: float, *, is_sound: bool = True) -> Run:
    """What the process said, once it is over."""
    try:
        stdout, stderr = process.communicate(timeout=LIMIT_S[call.cost])
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        code = HUNG
    said = Run(place.situation, call.name, code, _cut(stdout), _cut(stderr), round(time.monotonic() - begin, 2))
    return place.note(judged(said, call.command, is_sound=is_sound))


def serve(place: Place, *, environment: dict[str, str] | None = None, is_sound: bool = True) -> Run:
    """Starts the server, asks it once, and ends it; its log stands for what it said."""
    begin, answers = time.monotonic(), ""
    try:
        with running(place, environment=environment) as server:
            answers = ask(place, server, "Hello?")
            code = server.end()
            said = server.said()
    except NotUpError as problem:
        code, said = HUNG if problem.code is None else problem.code, problem.said
    seconds = round(time.monotonic() - begin, 2)
    wrong = () if code or answers.startswith("200 ") else (f"answered a request with {answers[:200]}",)
    done = Run(place.situation, SERVE.name, code, answers, _cut(said), seconds, wrong)
    return place.note(judged(done, SERVE.command, is_sound=is_sound))


@contextlib.contextmanager
def running(place: Place, *, home: Path | None = None, environment: dict[str, str] | None = None) -> Iterator[Running]:
    """A server on the folder, ended at the end. Raises NotUpError."""
    with tempfile.TemporaryDirectory(prefix="owner-log-") as folder:
        log = Path(folder) / "server.log"
        server = started(home or place.home, log, environment or place.environment())
        try:
            yield server
        finally:
            server.end()


def ask(place: Place, server: Running, text: str, *, home: Path | None = None, max_tokens: int = 8) -> str:
    """A client's request: status, the turn's id and the version that answered; else status and what was said."""
    key = ((home or place.home) / "api_key").read_text("utf-8").strip()
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens, "temperature": 0.0}
    request = urllib.request.Request(
        f"{server.url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "X-Session-Id": "asked-by-owner"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return f"200 {answer.headers['X-OpenClaw-RL-Turn']} {answer.headers['X-OpenClaw-RL-Version']}"
    except urllib.error.HTTPError as problem:
        return f"{problem.code} {problem.read().decode('utf-8', 'replace')[:500]}"
    except OSError as problem:
        return f"no answer: {problem}"


def judged(said: Run, command: str, *, is_sound: bool) -> Run:
    """The run with what is wrong with its code and its words."""
    found = [f"says {word!r}" for word in CRASHES if word in said.said]
    if said.code == HUNG:
        found.append(f"did not end within {said.seconds:.0f} s")
    elif said.code not in (0, 1, 2):
        found.append(f"ended with code {said.code}")
    if said.code == 2 and "what to do:" not in said.stderr and "Usage:" not in said.stderr:
        found.append("an error without what to do")
    if said.code == 1:
        found += _without_a_way(said, command)
    if is_sound and said.code:
        found += [f"blames a store that is sound: {word!r}" for word in BLAME if word in said.said]
    return replace(said, complaints=(*said.complaints, *found))


def _without_a_way(said: Run, command: str) -> list[str]:
    """Code 1 says that something was found: each thing found must say what becomes of it or what to do."""
    if not said.said.strip():
        return ["ended with code 1 and no word"]
    if command == "check":
        lines = said.stderr.splitlines()
        after = [*lines[1:], ""]
        bare = [line for line, then in zip(lines, after, strict=False) if line.startswith("found") and then[:2] != "  "]
        return [f"found without what to do: {line[:200]}" for line in bare]
    if command == "doctor":
        lines = said.stdout.splitlines()
        after = [*lines[1:], ""]
        bare = [line for line, then in zip(lines, after, strict=False) if line.startswith("mend") and "->" not in then]
        return [f"to mend, without what to do: {line[:200]}" for line in bare]
    if command in {"replay", "forget"}:
        return []
    return ["ended with code 1, which this command never says"]


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:3000]}\n[...]\n{text[-2500:]}"


def watched(
    place: Place,
    call: Call,
    *,
    environment: dict[str, str] | None = None,
    is_sound: bool = True,
    succeeds: bool = False,
) -> Run:
    """Calls it, and looks at what it took from the folder in hand; with `succeeds` it has to end with 0."""
    before = state_of(place.home)
    done = run(place, call, environment=environment, is_sound=is_sound)
    return looked_at(place, call, done, before, succeeds=succeeds)


def looked_at(place: Place, call: Call, done: Run, before: State, *, succeeds: bool = False) -> Run:
    """The run with what it took from the folder, in the place of the last one noted."""
    session = place.facts["stored_session"] if call.forgets else ""
    took = lost(before, state_of(place.home), session=session, home=place.home)
    found = [*done.complaints, *took.said()]
    if succeeds and done.code:
        found.append(f"ended with code {done.code} where it has all it needs")
    place.lost_turns += len(took.turns)
    place.lost_versions += len(took.versions)
    place.runs.remove(done)
    return place.note(replace(done, complaints=tuple(found)))
