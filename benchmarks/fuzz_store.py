"""`make fuzz-store`: a home folder's files damaged in every way, and what the program makes of each.

python -m benchmarks.fuzz_store

Each case changes some bytes of one file of a small real folder (flipped, zeroed, cut off, doubled, swapped for noise),
and then opens, reads, checks and partly repairs it as `serve` and `check` do. An error of the project's own kinds is
right; any other is a crash. A turn, next state, verdict, sample or adapter that is given as good but is not what was
written is a silent corruption. Some hundred cases go through a whole start of the server, its stages and requests.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import aiohttp
import torch

import openclaw_rl
from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.http import KEY
from benchmarks.kill_forks import Forks, StallError
from openclaw_rl.config import read_config
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.doctor.check import check_home
from openclaw_rl.errors import DamageError, OpenClawRLError
from openclaw_rl.publish.gate import Gate
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.stage import PublishStage
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.store.db import Store
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.folders import lived_in
from openclaw_rl.trainers import checkpoint

CASES = 10_500
STARTS = 300
REPAIRED = 5  # every so many cases are repaired too
SHAPES = {"w.lora_A.weight": (2, 8), "w.lora_B.weight": (8, 2)}
NAMES = [
    f"{kind}{number}"
    for kind in ("one", "two", "ready", "judged", "paired", "served", "dropped")
    for number in range(3)
]
Bytes = dict[str, bytes]
Result = TypeVar("Result")
RENDERER = ChatRenderer(read_template(Path(openclaw_rl.__file__).parent / "tiny" / "weights"))


@dataclass(slots=True)
class Outcome:
    """What came of the cases."""

    cases: int = 0
    starts: int = 0
    crashes: int = 0
    silent: int = 0
    told: int = 0
    harmless: int = 0
    stalls: int = 0  # waits for a whole start that were cut
    unmended: int = 0  # after --repair something was left, and said so
    by_file: Counter[str] = field(default_factory=Counter)

    def crash(self, case: str, problem: BaseException) -> None:
        """Notes a crash and says what it was."""
        self.crashes += 1
        progress(f"CRASH {case}: {type(problem).__name__}: {problem}")
        if self.crashes <= 5:
            traceback.print_exception(problem)

    def corrupt(self, case: str, what: str) -> None:
        """Notes something that was given as good and is not."""
        self.silent += 1
        progress(f"SILENT {case}: {what}")


def main() -> None:
    """Damages, looks, and prints the figures."""
    cases, starts = (600, 12) if is_quick() else (CASES, STARTS)
    outcome, begin = Outcome(), time.monotonic()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        pristine = asyncio.run(_made(Path(place)))
        home = Path(place) / "home"
        _written(home, pristine)
        truth = asyncio.run(_read(home))
        progress(f"{len(pristine)} files, {len(truth)} things in them")
        for number in range(cases):
            _case(number, home, pristine, truth, outcome)
            if number % 1000 == 999:
                progress(f"{number + 1} cases, {outcome.crashes} crashes, {outcome.silent} silent")
        asyncio.run(_started(starts, home, pristine, outcome))
    figures: Figures = {
        "cases": outcome.cases + outcome.starts,
        "crashes": outcome.crashes,
        "silent_corruptions": outcome.silent,
        "stalls": outcome.stalls,
        "told": outcome.told,
        "harmless": outcome.harmless,
        "unmended": outcome.unmended,
        "whole_starts": outcome.starts,
        "by_file": dict(outcome.by_file),
        "seconds": round(time.monotonic() - begin),
    }
    figures["conditions"] = conditions("none: scripted engine", threads=1, seeds=[0], repeats=1)
    finish(figures)


async def _made(place: Path) -> Bytes:
    """A folder as a killed server leaves it, its log not yet moved into the file, with all that a trainer writes."""
    home = place / "home"
    await lived_in(home, sessions=3, fill=_trained)
    (home / "config.toml").write_text("[train]\nbatch_size = 4\n[judge]\nvotes = 1\n", "utf-8")
    (home / "api_key").write_text("sk-openclaw-test\n", "utf-8")
    store = await Store.open(home)
    await store.drop("served0", DropReason.EMPTY)  # stands in the log, as the last thing before a kill does
    kept = {str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}
    await store.aclose()
    return {name: data for name, data in kept.items() if not name.endswith(("lock", "-shm"))}


def _trained(folder: Path, version: PolicyVersion) -> None:
    weights = {name: torch.full(shape, float(version.number)) for name, shape in SHAPES.items()}
    state = {f"moment.{name}": tensor * 0.5 for name, tensor in weights.items()}
    held = checkpoint.Checkpoint(weights, state, version.number, version)
    checkpoint.write(folder, held, checkpoint.lora_config("base", ["w"], rank=2, alpha=4.0), {"lr": 0.001})


def _written(home: Path, files: Bytes) -> None:
    shutil.rmtree(home, ignore_errors=True)
    for name, data in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(data)


async def _read(home: Path) -> dict[str, object]:
    """All that the program gives of a folder: rows, versions, samples, and the weights that would be served."""
    async with aclosing(await Store.open(home)) as store:
        engine = ScriptedEngine([])
        settings = PublishSettings(gate=False)
        served = ServedVersions(store, engine)
        things: dict[str, object] = {}
        await PublishStage(store, served, Gate(store, engine, RENDERER, (0,), settings), settings).start()
        for name in NAMES:
            try:
                row = await store.row(name)
            except DamageError:
                continue
            if row is not None:
                things[f"turn {name}"] = row.turn
                for kind, thing in (("next state", row.next_state), ("verdict", row.verdict)):
                    if thing is not None:
                        things[f"{kind} {name}"] = thing
        things |= {f"sample {sample.turn}": sample for sample in await store.ready(limit=99)}
        things |= {f"paired {row[0].id}": row for row in await store.paired(limit=99)}
        things |= {f"judged {row.turn.id}": (row.turn, row.verdict) for row in await store.judged(limit=99)}
        for version, adapter in engine.versions.items():
            if adapter is not None:
                held = checkpoint.read(adapter.folder, SHAPES)
                tensors = (*held.weights.items(), *held.state.items())
                things[f"adapter {version}"] = (
                    held.steps,
                    tuple((key, tuple(item.flatten().tolist())) for key, item in tensors),
                )
        return things


def _case(number: int, home: Path, pristine: Bytes, truth: dict[str, object], outcome: Outcome) -> None:
    """One damage, read, checked and sometimes mended."""
    source = random.Random(number)
    name = source.choice([*pristine, "store.db", "store.db", "store.db-wal"])
    how = source.choice(list(HARMS))
    case = f"{number} {name} {how}"
    outcome.cases += 1
    outcome.by_file[Path(name).name] += 1
    _written(home, {**pristine, name: HARMS[how](bytearray(pristine[name]), source)})
    _guarded(case, outcome, lambda: read_config(home / "config.toml", environment={}))
    seen = _guarded(case, outcome, lambda: asyncio.run(_read(home)))
    if seen is not None:
        _compared(case, seen, truth, outcome)
    report = _guarded(case, outcome, lambda: check_home(home))
    if number % REPAIRED == 0 and report is not None:
        _guarded(case, outcome, lambda: check_home(home, repair=True))
        again = _guarded(case, outcome, lambda: check_home(home))
        outcome.unmended += again is None or not again.is_sound
        seen = _guarded(case, outcome, lambda: asyncio.run(_read(home)))
        if seen is not None:
            _compared(f"{case}, mended", seen, truth, outcome)


def _compared(case: str, seen: dict[str, object], truth: dict[str, object], outcome: Outcome) -> None:
    for key, thing in seen.items():
        if key in truth and thing != truth[key]:
            outcome.corrupt(case, f"{key} is given as {str(thing)[:200]}")
        elif key not in truth and key.startswith(("turn", "adapter")) and key != "adapter shared.1":
            outcome.corrupt(case, f"{key} was never written")
    outcome.harmless += seen.keys() >= truth.keys()


def _guarded(case: str, outcome: Outcome, work: Callable[[], Result]) -> Result | None:
    """What it gave; None where it said in the project's own words that it cannot."""
    try:
        return work()
    except OpenClawRLError:
        outcome.told += 1
    except Exception as problem:  # what the fuzzing is for
        outcome.crash(case, problem)
    return None


async def _started(starts: int, home: Path, pristine: Bytes, outcome: Outcome) -> None:
    """Whole starts of the server over damaged folders: it serves, or says why it does not."""
    async with aclosing(Forks()) as forks:
        for number in range(starts):
            source = random.Random(f"start {number}")
            name = source.choice([*pristine, "store.db", "store.db", "store.db-wal"])
            how = source.choice(list(HARMS))
            _written(home, {**pristine, name: HARMS[how](bytearray(pristine[name]), source)})
            outcome.starts += 1
            case = f"start {number} {name} {how}"
            try:
                await _one_start(forks, case, home, outcome)
            except StallError as problem:
                progress(f"STALL {case}: {problem}")
        outcome.stalls += forks.stalls.total()


async def _one_start(forks: Forks, case: str, home: Path, outcome: Outcome) -> None:
    await forks.fork(home)
    said = await forks.word()
    if said[0] == "listening":
        problem = await _asked(int(said[1]))
        if problem:
            outcome.crash(case, RuntimeError(f"{problem}\n{forks.messages()}"))
    elif said[0] == "refused":
        outcome.told += 1
    else:
        outcome.crash(case, RuntimeError(f"the server ended without a word\n{forks.messages()}"))
    await forks.kill()


async def _asked(port: int) -> str:
    """What is wrong with the answers to a few requests; empty where nothing is."""
    url, headers = f"http://127.0.0.1:{port}/v1/chat/completions", {"Authorization": f"Bearer {KEY}"}
    asked = [{"role": "user", "content": "Hello?"}]
    try:
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=20)) as http:
            for _ in range(2):
                async with http.post(url, json={"messages": asked, "max_tokens": 8}) as answer:
                    body = await answer.json()
                    if answer.status != 200 and "damaged" not in str(body) and "cannot be written" not in str(body):
                        return f"status {answer.status}: {body}"
                await asyncio.sleep(0.05)
    except (aiohttp.ClientError, TimeoutError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""


def _flipped(data: bytearray, source: random.Random) -> bytes:
    for _ in range(source.choice((1, 1, 2, 8))):
        data[source.randrange(len(data))] ^= 1 << source.randrange(8)
    return bytes(data)


def _span(data: bytearray, source: random.Random) -> tuple[int, int]:
    begin = source.randrange(len(data))
    return begin, min(len(data), begin + source.choice((1, 16, 512, 4096)))


def _zeroed(data: bytearray, source: random.Random) -> bytes:
    begin, end = _span(data, source)
    data[begin:end] = bytes(end - begin)
    return bytes(data)


def _noise(data: bytearray, source: random.Random) -> bytes:
    begin, end = _span(data, source)
    data[begin:end] = source.randbytes(end - begin)
    return bytes(data)


def _doubled(data: bytearray, source: random.Random) -> bytes:
    begin, end = _span(data, source)
    return bytes(data[:end] + data[begin:])


def _moved(data: bytearray, source: random.Random) -> bytes:
    begin, end = _span(data, source)
    at = source.randrange(max(1, len(data) - (end - begin)))
    data[at : at + end - begin] = data[begin:end]
    return bytes(data)


HARMS: dict[str, Callable[[bytearray, random.Random], bytes]] = {
    "flipped": _flipped,
    "zeroed": _zeroed,
    "noise": _noise,
    "cut": lambda data, source: bytes(data[: source.randrange(len(data))]),
    "doubled": _doubled,
    "moved": _moved,
    "emptied": lambda data, source: b"",
}


if __name__ == "__main__":
    main()
