"""A whole training run on tasks: how much of it the engine decodes, how stale what is learned from is, and kills.

python -m benchmarks.agent_run [--parts rates kills]

The bundled model solves word problems under the heading it uses least; each step of the environment takes `DELAY_S`.
`rates`: the same number of episodes is run asynchronously and synchronously, A B A B, each on a server of its own.
`kills`: the server and the run are killed at random instants and started again.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from random import Random

from benchmarks.agent_env import heading_entries, opener
from benchmarks.common import Figures, conditions, finish, is_quick, progress
from openclaw_rl.agents.attempts import Attempts
from openclaw_rl.agents.curriculum import Curriculum, CurriculumSettings
from openclaw_rl.agents.endpoint import PolicyEndpoint
from openclaw_rl.agents.rollout import RolloutBudget
from openclaw_rl.agents.state import RunState, read_state, write_state
from openclaw_rl.agents.training import Training, TrainingPlan, has_learned
from openclaw_rl.core.ledger import State
from openclaw_rl.errors import OpenClawRLError
from openclaw_rl.evals.server import Server, serving
from openclaw_rl.store.db import Store

RECIPE = Path(__file__).parent.parent / "recipes" / "agent.toml"
DELAY_S = 0.2
TASKS, GROUP, AT_ONCE = 16, 8, 16
PARTS = ("rates", "kills")
EPISODES, REPEATS, KILLS = 256, 2, 12
KILLED_EPISODES = 128 if is_quick() else 1024  # enough for all kills


def a_training(endpoint: PolicyEndpoint, state_file: Path, plan: TrainingPlan) -> Training:
    """A start of the run whose state is in the file."""
    entries, state = heading_entries(TASKS), read_state(state_file) or RunState("bench", "heading")
    attempts = Attempts(endpoint, opener(DELAY_S), "heading", budget=RolloutBudget(turns=4, reply_tokens=160))
    curriculum = Curriculum([*entries], state.tasks, CurriculumSettings(), 0)
    return Training(attempts, entries, plan, state, curriculum, lambda held: write_state(state_file, held))


async def one_run(home: Path, *, episodes: int, is_synchronous: bool) -> Figures:
    """A whole run, and what its store says afterwards."""
    plan = TrainingPlan(group_size=GROUP, at_once=AT_ONCE, episodes=episodes, is_synchronous=is_synchronous)
    async with (
        serving(home, model="bundled", config=RECIPE) as server,
        PolicyEndpoint(server.base_url, server.key) as endpoint,
    ):
        training = a_training(endpoint, home / "run.json", plan)
        began_s = time.monotonic()
        await training.run()
        wall_s = time.monotonic() - began_s
        await settled(endpoint)
    totals, success = training.state.totals, training.curriculum.success
    return {
        "decodes": round(endpoint.busy_s / wall_s, 3),
        "wall_s": round(wall_s, 1),
        "episodes_a_minute": round(60 * totals.episodes / wall_s, 1),
        "tokens_a_second": round(totals.tokens / wall_s, 1),
        "success": success and round(success, 3),
        **await store_figures(home),
    }


async def settled(endpoint: PolicyEndpoint) -> None:
    """Until the server has learned what it can."""
    async with asyncio.timeout(600):
        while True:
            if has_learned(await endpoint.get("/v1/rl/status")):
                return
            await asyncio.sleep(0.3)


async def store_figures(home: Path) -> Figures:
    """Versions, how many served versions lay between sampling and learning, and whether the ledger adds up."""
    async with aclosing(await Store.open(home)) as store:
        lags: Counter[int] = Counter()
        learned: Counter[str] = Counter()
        rows = await store.versions()
        for row in rows:
            learned.update(row.turns)
            parent = 0 if row.parent is None else row.parent.number
            for name in row.turns:
                turn = await store.turn(name)
                lags[parent - turn.completion.version.number if turn is not None else -1] += 1
        counts = await store.counts()
        episodes = await store.episodes.counts()
    return {
        "versions": len(rows),
        "staleness": {str(lag): count for lag, count in sorted(lags.items())},
        "dropped": {name: count for name, count in counts.items() if name.startswith("dropped.") and count},
        "ledger_adds_up": sum(counts[state.value] for state in State) == counts["main"],
        "trained_twice": sum(count > 1 for count in learned.values()),
        "waiting": counts["served"] + counts["paired"] + counts["judged"],
        "episodes": episodes,
    }


def start_run(url: str, key: str, state_file: str) -> None:
    """The body of a process that can be killed: one start of the run."""

    async def body() -> None:
        async with PolicyEndpoint(url, key, patience_s=120.0) as endpoint:
            plan = TrainingPlan(group_size=GROUP, at_once=AT_ONCE, episodes=KILLED_EPISODES)
            await a_training(endpoint, Path(state_file), plan).run()

    try:
        asyncio.run(body())
    except* OpenClawRLError as problems:
        progress(f"the run ended: {problems.exceptions[0]}")
        raise SystemExit(2) from None


async def killed_run(home: Path, *, kills: int) -> Figures:
    """A run of which the server, or the run itself, is killed again and again."""
    drawn, state_file, done, sums = Random(0), home / "run.json", Counter[str](), list[bool]()
    while True:
        async with serving(home, model="bundled", config=RECIPE) as server:
            is_over = await _until_killed(server, state_file, drawn, done, kills)
            if is_over:
                async with PolicyEndpoint(server.base_url, server.key) as endpoint:
                    await settled(endpoint)
        found = await store_figures(home)
        sums.append(bool(found["ledger_adds_up"]) and not found["trained_twice"])
        if is_over:
            break
    state = read_state(state_file)
    assert state is not None
    return {
        "kills": dict(done),
        "sums_right": sum(sums),
        "sums_of": len(sums),
        "run": run_figures(state),
        **found,
    }


def run_figures(state: RunState) -> Figures:
    """What the run counts."""
    totals = state.totals
    return {"episodes": totals.episodes, "groups": totals.groups, "lost": totals.lost, "open": len(state.open_groups)}


async def _until_killed(server: Server, state_file: Path, drawn: Random, done: Counter[str], kills: int) -> bool:
    """Runs until the run is over (True) or its server was killed (False)."""
    context = multiprocessing.get_context("spawn")
    while True:
        child = context.Process(target=start_run, args=(server.base_url, server.key, str(state_file)))
        child.start()
        wait_s = drawn.uniform(3.0, 12.0) if done.total() < kills else 3600.0
        await asyncio.to_thread(child.join, wait_s)
        if not child.is_alive():
            assert child.exitcode == 0, f"the run ended with {child.exitcode}"
            return True
        is_server = drawn.random() < 0.5
        done["server" if is_server else "run"] += 1
        progress(f"kill {done.total()} of {kills}: the {'server' if is_server else 'run'}")
        if is_server:
            os.kill(server.pid, signal.SIGKILL)
        child.kill()
        await asyncio.to_thread(child.join)
        if is_server:
            return False


async def main(parts: Sequence[str]) -> Figures:
    """The parts that are named: `rates` and `kills`."""
    quick = is_quick()
    episodes, repeats, kills = (64, 1, 2) if quick else (EPISODES, REPEATS, KILLS)
    repeats = repeats if "rates" in parts else 0
    killed: Figures = {}
    found: dict[str, list[Figures]] = {"asynchronous": [], "synchronous": []}
    with tempfile.TemporaryDirectory() as folder:
        for name in (*(f"{kind}{number}" for kind in found for number in range(repeats)), "killed"):
            (Path(folder) / name).mkdir()
        for number in range(repeats):
            for name, runs in found.items():
                is_synchronous = name == "synchronous"
                home = Path(folder) / f"{name}{number}"
                runs.append(await one_run(home, episodes=episodes, is_synchronous=is_synchronous))
                progress(f"{name}: {runs[-1]}")
        if "kills" in parts:
            killed = await killed_run(Path(folder) / "killed", kills=kills)
            progress(f"killed: {killed}")
    return {
        "benchmark": "agent-run",
        **found,
        "killed": killed,
        "delay_s": DELAY_S,
        "conditions": conditions("bundled", threads=1, seeds=[0], repeats=repeats),
    }


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--parts", nargs="*", choices=PARTS, default=[*PARTS])
    finish(asyncio.run(main(options.parse_args().parts)))
