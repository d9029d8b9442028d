"""A trial: what is measured is recorded nowhere, what is trained on is, and what is said about it is true."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from agent_doubles import KEY, CounterEnv, call, policy_server

from benchmarks import agents as benchmark
from benchmarks import demo_agent
from openclaw_rl.agents.endpoint import PolicyEndpoint
from openclaw_rl.agents.entries import TaskEntry
from openclaw_rl.agents.training import TrainingPlan
from openclaw_rl.agents.trial import AgentTrial, TrialPlan
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.envs.task import Env, Observation, Task


class ReachEnv(CounterEnv):
    """The target is the last word of the question."""

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        target = int(task.instruction.split()[-1])
        return await super().reset(Task(task.id, task.instruction, metadata={"target": target}), seed=seed)


async def reach(entry: TaskEntry) -> Env:
    return ReachEnv()


def rows(folder: Path, split: str, goals: list[int]) -> Path:
    place = folder / split
    place.mkdir(parents=True)
    lines = [{"id": f"{split}-{goal}", "question": f"Reach {goal}", "answer": str(goal)} for goal in goals]
    (place / f"{split}.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return place


def two_then_submit(text: str, _sampling: Sampling) -> str:
    return call("submit") if "now" in text else call("add", n=2)


async def test_measuring_records_nothing_and_training_records_each_episode(tmp_path: Path) -> None:
    training = TrainingPlan(group_size=2, at_once=2, episodes=4)
    measured = {"test": rows(tmp_path, "test", [2, 5]), "held_back": rows(tmp_path, "held_back", [2])}
    plan = TrialPlan("tools", rows(tmp_path, "train", [2, 7]), measured, training, times=2)
    heard: list[str] = []
    async with (
        policy_server(tmp_path / "home", two_then_submit) as server,
        PolicyEndpoint(server.url, KEY, patience_s=5.0) as endpoint,
    ):
        trial = AgentTrial(endpoint, reach, plan, heard.append)
        before = await trial.measure("before")
        assert await server.parts.store.episodes.page(limit=50) == []
        trained = await trial.train()
        held = await server.parts.store.episodes.page(limit=50)
    assert (before.figures["test"]["success"], before.figures["test"]["graded"]) == (0.5, 4)
    assert before.figures["held_back"]["success"] == 1.0
    assert {name: [one.is_success for one in each] for name, each in before.attempted["test"].items()} == {
        "test-2": [True, True],
        "test-5": [False, False],
    }
    assert trained["episodes"] == len(held) == 4
    assert {row.episode.task for row in held} == {"train-2", "train-7"}
    assert heard[0].startswith("before, test: ")


async def test_a_watched_environment_notes_what_was_done_and_seen() -> None:
    seen: list[demo_agent.WatchedEpisode] = []
    task = Task("one", "Reach 2")
    env = await demo_agent.watching(reach, seen)(TaskEntry("one", task, source=None))  # type: ignore[arg-type]
    await env.reset(task)
    from openclaw_rl.envs.task import Action

    await env.step([Action("add", {"n": 2})])
    assert (await env.evaluate()).is_success
    assert seen == [demo_agent.WatchedEpisode("one", "Reach 2", [("add(2)", "now 2")], is_solved=True)]


def test_what_is_shown_is_a_task_that_failed_before_and_was_solved_after() -> None:
    def episode(task: str, steps: int, *, is_solved: bool) -> demo_agent.WatchedEpisode:
        return demo_agent.WatchedEpisode(task, task, [("a", "b")] * steps, is_solved)

    before = [episode("a", 2, is_solved=False), episode("b", 2, is_solved=True), episode("c", 1, is_solved=False)]
    after = [episode("a", 2, is_solved=True), episode("b", 9, is_solved=True), episode("c", 4, is_solved=True)]
    assert demo_agent.telling_pair(before, after) == (before[2], after[2])
    assert demo_agent.telling_pair(before, before) is None


@pytest.mark.parametrize("way", [*benchmark.WAYS])
def test_each_way_of_learning_is_the_recipe_and_its_own_settings(way: str) -> None:
    recipe = tomllib.loads(benchmark.RECIPE.read_text("utf-8"))
    made = tomllib.loads(benchmark.config_text(benchmark.WAYS[way].settings))
    assert made["trainer"]["lr"] == recipe["trainer"]["lr"]
    assert made["trainer"]["method"]["clip_high"] == recipe["trainer"]["method"]["clip_high"]
    assert (recipe["train"]["min_batch"], made["train"]["min_batch"]) == (1, 64)
    assert made["episodes"]["grouping"] == ("step_index" if way == "steps by index" else "situation")
    assert (made["trainer"]["method"].get("step_coefficient") == 0.0) is (way == "outcome")


def test_the_figures_name_the_worst_seed_and_whether_success_was_doubled() -> None:
    def row(seed: int, before: float, after: float) -> benchmark.Row:
        trained: benchmark.Row = {"episodes": 8, "tokens": 80}
        attempts = {"graded": 8, "ended": 6}
        shares = {"before": {"success": before, **attempts}, "after": {"success": after, **attempts}}
        held = {"held_back_before": {"success": 0.1}, "held_back_after": {"success": 0.2}}
        more = {"training": trained, "versions": {"live": 2}, "training_minutes": 1.0}
        return {"setting": "tools", "way": "steps", "seed": seed, **shares, **held, **more}  # type: ignore[dict-item]

    found = benchmark.figures([row(0, 0.3, 0.7), row(1, 0.45, 0.85), row(2, 0.4, 0.5)])["tools"]
    assert isinstance(found, dict)
    steps = found["steps"]
    assert (steps["after_worst"], steps["after_median"]) == (0.5, 0.7)
    assert steps["doubled_or_above_0.8"] == [True, True, False]
    assert steps["ended"] == [[0.75, 0.75]] * 3
