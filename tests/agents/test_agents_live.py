"""Training on tasks with the real server, engine and trainer: it learns, goes on after kills, and leaves conversations
their place. `make test-agents`."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flow_parts import KEY, Served, start

from benchmarks.agent_env import heading_entries, opener
from openclaw_rl.agents.attempts import Attempts
from openclaw_rl.agents.curriculum import Curriculum, CurriculumSettings
from openclaw_rl.agents.endpoint import ChatAsk, PolicyEndpoint
from openclaw_rl.agents.figures import pass_at_k
from openclaw_rl.agents.measuring import attempt_all
from openclaw_rl.agents.rollout import RolloutBudget
from openclaw_rl.agents.state import RunState, read_state, write_state
from openclaw_rl.agents.training import Training, TrainingPlan
from openclaw_rl.core.ledger import State
from openclaw_rl.store.db import Store

ROOT = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
RECIPE = (ROOT / "recipes" / "agent.toml").read_text("utf-8").replace("[trainer]", "[trainer]\nnice = 0")
TASKS = ROOT / "examples" / "tasks"


@pytest.fixture
def running() -> Iterator[list[Served]]:
    servers: list[Served] = []
    yield servers
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait(30)


def a_training(endpoint: PolicyEndpoint, state_file: Path, plan: TrainingPlan) -> Training:
    entries, state = heading_entries(8), read_state(state_file) or RunState("run", "heading")
    attempts = Attempts(endpoint, opener(0.0), "heading", budget=RolloutBudget(turns=4, reply_tokens=160))
    curriculum = Curriculum([*entries], state.tasks, CurriculumSettings(), 0)
    return Training(attempts, entries, plan, state, curriculum, lambda held: write_state(state_file, held))


async def success(endpoint: PolicyEndpoint, version: str) -> float:
    """Of a version, on tasks of other numbers, with seeds; nothing of it is learned from."""
    named = {"X-Policy-Version": version} if version else {}
    measuring = Attempts(endpoint, opener(0.0), "heading", draw=1, is_side=True, headers=named)
    entries = [entry for name, entry in heading_entries(32).items() if int(name.rpartition("-")[2]) >= 16]
    found = await attempt_all(measuring, entries, run="eval", times=2, at_once=8)
    counts = [(len(results), sum(result.is_success for result in results)) for results in found.values()]
    return sum(pass_at_k(many, solved, 1) for many, solved in counts) / len(counts)


async def test_it_learns_and_conversations_are_answered_and_learned_from_meanwhile(
    tmp_path: Path, running: list[Served]
) -> None:
    running.append(server := start(tmp_path / "home", config=RECIPE))
    latencies: list[float] = []

    async def talks(endpoint: PolicyEndpoint, training: Training, run: asyncio.Task[None]) -> None:
        number = 0
        while not run.done():
            if (
                training.episodes < 16 * number
            ):  # not by the clock: this user wants no markdown, the tasks want headings
                await asyncio.sleep(0.2)
                continue
            session = {"X-Session-Id": f"talk-{number}", "X-User-Id": "ann"}
            asked = [{"role": "user", "content": "Mia has 3 pens and gets 4 more. How many pens does she have?"}]
            began_s = asyncio.get_running_loop().time()
            reply = await endpoint.chat(ChatAsk([*asked], max_tokens=120, temperature=0.7, headers=session))
            latencies.append(asyncio.get_running_loop().time() - began_s)
            said = {"role": "user", "content": "That looks like AI. Please write it in plain sentences, no markdown."}
            await endpoint.chat(
                ChatAsk([*asked, dict(reply.body), said], max_tokens=120, temperature=0.7, headers=session)
            )
            await endpoint.post(f"/v1/sessions/{session['X-Session-Id']}/done", {})
            number += 1

    async with PolicyEndpoint(server.url, KEY) as endpoint:
        before = await success(endpoint, "base")
        plan = TrainingPlan(group_size=8, at_once=8, episodes=128)
        training = a_training(endpoint, tmp_path / "run.json", plan)
        async with asyncio.TaskGroup() as group:
            group.create_task(talks(endpoint, training, group.create_task(training.run())))
        after = await success(endpoint, "")
        again = await success(endpoint, "base")
        versions = await endpoint.get("/v1/rl/versions?limit=200")
    assert server.end(signal.SIGINT) == 0
    assert before == again  # the same seeds, and the base model is what it was
    assert after >= 2 * before or after >= 0.8, f"{before:.2f} before, {after:.2f} after"
    store = await Store.open(server.home)
    held = await store.rows(limit=5000)
    await store.aclose()
    from_talk = {row.turn.id for row in held if row.turn.step is None and row.turn.is_main}
    from_tasks = {row.turn.id for row in held if row.turn.step is not None}
    rows = versions["versions"]
    assert isinstance(rows, list)
    learned = {str(turn) for row in rows if isinstance(row, dict) for turn in row["turns"]}  # type: ignore[union-attr]
    assert learned & from_talk and learned & from_tasks  # neither waits for the other for ever
    assert len(latencies) >= 3 and all(latency < 60 for latency in latencies)


async def test_a_server_killed_in_the_middle_loses_nothing_and_trains_nothing_twice(
    tmp_path: Path, running: list[Served]
) -> None:
    port_file, home = tmp_path / "run.json", tmp_path / "home"
    plan = TrainingPlan(group_size=4, at_once=8, episodes=48)
    for kill_after_s in (6.0, 12.0, None):
        running.append(server := start(home, config=RECIPE))
        async with PolicyEndpoint(server.url, KEY, patience_s=1.0) as endpoint:
            training = a_training(endpoint, port_file, plan)
            if kill_after_s is None:
                await training.run()
                continue
            with pytest.raises(BaseExceptionGroup):  # the server is gone
                async with asyncio.TaskGroup() as group:
                    group.create_task(training.run())
                    await asyncio.sleep(kill_after_s)
                    server.end(signal.SIGKILL)
    assert running[-1].end(signal.SIGINT) == 0
    store = await Store.open(home)
    counts, episodes = await store.counts(), await store.episodes.counts()
    learned = [turn for row in await store.versions() for turn in row.turns]
    await store.aclose()
    state = read_state(port_file)
    assert state is not None and not state.open_groups
    assert sum(counts[state.value] for state in State) == counts["main"]
    assert len(learned) == len(set(learned))
    assert episodes["open"] == 0 and episodes["failure.none"] == state.totals.episodes >= 48


def test_the_commands_run_against_a_real_server_and_boxes(tmp_path: Path, running: list[Served]) -> None:
    running.append(server := start(tmp_path / "home", config=RECIPE))
    base = [sys.executable, "-m", "openclaw_rl"]
    shared = [
        "--tasks",
        str(TASKS),
        "--env",
        "software",
        "--split",
        "all",
        "--box",
        "plain",
        "--home",
        str(server.home),
    ]
    shared += ["--api-key", KEY, "--turns", "3", "--reply-tokens", "60"]

    def ran(*words: str) -> dict[str, object]:
        done = subprocess.run([*base, *words, *shared], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return found

    rolled = ran("rollout", "-n", "2", "--most", "1")
    assert rolled["graded"] == 2 and rolled["lost"] == 0
    trained = ran("train-agent", "--group", "2", "--episodes", "4")
    assert trained["ended"] == "4 episodes" and trained["episodes"] == 4
    assert (server.home / "agents" / "train.json").is_file()
    assert ran("train-agent", "--group", "2", "--episodes", "4")["episodes"] == 4  # it is over already
    measured = ran("eval", "tasks", "--version", "base", "--version", "served", "--most", "1")
    versions = measured["versions"]
    assert isinstance(versions, dict) and set(versions) == {"base", "served"}
