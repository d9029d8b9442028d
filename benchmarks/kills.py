"""`make bench-kills`: kills at random instants over a running loop with clients, and what is still true afterwards.

python -m benchmarks.kills

Most kills are of a server whose engine, judge and trainer's arithmetic are scripted (`benchmarks.kill_server`), some of
the real command, its engine or its trainer (`benchmarks.kills_real`); `benchmarks.kill_restart` tells what a start
after a kill is made of. Finished folders are kept in build/kills.json, so that a run that was stopped goes on; a
finished run begins anew.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from statistics import median

from benchmarks import kill_restart, kills_real
from benchmarks.common import Figures, conditions, finish, is_quick, progress, quantile
from benchmarks.kill_clients import CLIENTS, Target, Told, lost, not_committed, not_there, talk, trained_twice
from benchmarks.kill_forks import Forks, StallError
from openclaw_rl.doctor.check import check_home

LANES = 2
KILLS_A_HOME = 45
LONGEST_S = 0.7  # between a server's listening and its end
DURING_START = 0.15  # the share of servers that are killed before they listen
RESTART = "restart_s"  # where the parts of a start are kept and told
PROGRESS = Path("build/kills.json")
Counts = dict[str, float]


def main() -> None:
    """Kills, looks, and prints the figures."""
    homes = 2 if is_quick() else 22
    a_home = 12 if is_quick() else KILLS_A_HOME
    real = 6 if is_quick() else 30
    done = _kept()
    begin = time.monotonic()
    asyncio.run(_scripted(done, homes, a_home))
    if "real" not in done:
        done["real"] = asyncio.run(kills_real.run(real))
        _keep(done)
    if RESTART not in done:
        done[RESTART] = asyncio.run(kill_restart.measured())
        _keep(done)
    figures = _figures(done)
    figures["seconds"] = round(time.monotonic() - begin)
    figures["conditions"] = conditions(
        "scripted engine, judge and arithmetic of the trainer; the last kills: bundled model, real engine and trainer",
        threads=1,
        seeds=list(range(homes)),
        repeats=1,
    )
    PROGRESS.unlink(missing_ok=True)
    finish(figures)


async def _scripted(done: dict[str, Counts], homes: int, a_home: int) -> None:
    waiting = [number for number in range(homes) if str(number) not in done]

    async def lane() -> None:
        async with aclosing(Forks()) as forks:
            while waiting:
                number = waiting.pop(0)
                done[str(number)] = await _one_home(forks, number, a_home)
                _keep(done)
                progress(f"folder {number}: {done[str(number)]}")

    async with asyncio.TaskGroup() as group:
        for _ in range(LANES):
            group.create_task(lane())


async def _one_home(forks: Forks, number: int, kills: int) -> Counts:
    """One folder through all its kills, and what is true of it at the end."""
    source, told, target = random.Random(number), Told(), Target()
    starts: list[float] = []
    uncommitted, missing, stalled = 0, 0, forks.stalls.total()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "home"
        async with asyncio.TaskGroup() as group:
            for client in range(CLIENTS):
                group.create_task(talk(client, str(number), target, told))
            try:
                for _ in range(kills):
                    before = set(told.acknowledged)
                    starts += await _start_and_kill(forks, home, target, source)
                    uncommitted += len(not_committed(home, told.versions))
                    told.versions.clear()
                    missing += len(not_there(home, set(told.acknowledged) - before))
            finally:
                target.is_over = True
        twice, consumed, versions = await trained_twice(home)
        report = await asyncio.to_thread(check_home, home)
        gone = await lost(home, told)
        unsound = [item.what for item in report.findings if "never finished" not in item.what]
        for line in unsound[:5]:
            progress(f"folder {number}: {line}")
        return {
            "kills": kills,
            "stalls": forks.stalls.total() - stalled,
            "acknowledged": len(told.acknowledged),
            "lost_turns": max(gone, missing),
            "trained_twice": twice,
            "uncommitted_versions_served": uncommitted,
            "check_findings": len(unsound),
            "turns_trained": consumed,
            "versions": versions,
            "broken_off": told.broken_off,
            "wrong_status": told.wrong_status,
            "restart_s_p50": median(starts),
            "restart_s_p99": quantile(starts, 0.99),
        }


async def _start_and_kill(forks: Forks, home: Path, target: Target, source: random.Random) -> list[float]:
    """One life: how long it took to listen, empty where it was not let come so far. A stall ends it too."""
    starts: list[float] = []
    try:
        await forks.fork(home)
        if source.random() < DURING_START and (home / "store.db").is_file():
            await asyncio.sleep(source.random() * 0.15)
        else:
            said = await forks.word()
            if said[0] != "listening":
                raise RuntimeError(f"the server did not start: {said}\n{forks.messages()}")
            target.url, starts = f"http://127.0.0.1:{said[1]}", [float(said[2])]
            await asyncio.sleep(source.random() * LONGEST_S)
        target.url = None
        await forks.kill()
    except StallError as problem:
        progress(f"{home} stalled: {problem}")
    finally:
        target.url = None
    return starts


def _figures(done: dict[str, Counts]) -> Figures:
    names = (
        "kills",
        "stalls",
        "acknowledged",
        "lost_turns",
        "trained_twice",
        "uncommitted_versions_served",
        "check_findings",
        "turns_trained",
        "versions",
        "broken_off",
        "wrong_status",
    )
    killed = [counts for name, counts in done.items() if name != RESTART]
    total: Figures = {name: int(sum(counts.get(name, 0) for counts in killed)) for name in names}
    scripted = [counts for counts in killed if counts is not done["real"]]
    total["restart_s_p50"] = done["real"]["restart_s_p50"]
    total["model_load_s_p50"] = done["real"]["model_load_s_p50"]
    total["restart_forked_s_p50"] = round(median(counts["restart_s_p50"] for counts in scripted), 3)
    total |= {"real": done["real"], RESTART: done[RESTART]}
    return total


def _kept() -> dict[str, Counts]:
    """What a run that was stopped has finished."""
    if is_quick() or not PROGRESS.is_file():
        return {}
    kept: dict[str, Counts] = json.loads(PROGRESS.read_text())
    return kept


def _keep(done: dict[str, Counts]) -> None:
    if not is_quick():
        PROGRESS.parent.mkdir(exist_ok=True)
        PROGRESS.write_text(json.dumps(done))


if __name__ == "__main__":
    main()
