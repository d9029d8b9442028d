"""A small model learns to work in a terminal by itself: attempts, outcomes, steps of training, and what it can do then.

A server is started on the shipped agent model; unseen tasks are attempted; `train-agent`'s loop attempts others in
groups, and the server learns from how they end; the unseen tasks are attempted again. Words go to standard error; the
last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.agents import RECIPE, WAYS, config_text
from benchmarks.common import finish, is_quick
from openclaw_rl.agents.endpoint import PolicyEndpoint
from openclaw_rl.agents.entries import EnvOpener, TaskEntry, local_envs
from openclaw_rl.agents.training import Training, TrainingPlan
from openclaw_rl.agents.trial import AgentTrial, Measured, TrialPlan, words_of
from openclaw_rl.agents.view import RunView
from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.probe import BoxKind
from openclaw_rl.envs.task import Action, Env, Observation, Score, StepResult, Task
from openclaw_rl.evals.server import serving
from openclaw_rl.tiny.agent import folders, make
from openclaw_rl.tiny.agent.exercise import Setting

AT_ONCE = 16


@dataclass(slots=True)
class WatchedEpisode:
    """What was done and seen in one episode, and how it was judged."""

    task: str
    instruction: str
    steps: list[tuple[str, str]] = field(default_factory=list)
    is_solved: bool = False


class WatchedEnv:
    """Meets Env: passes everything on, and notes it."""

    def __init__(self, env: Env, episode: WatchedEpisode) -> None:
        self._env = env
        self._episode = episode

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        """As the environment."""
        return await self._env.reset(task, seed=seed)

    async def step(self, actions: Sequence[Action]) -> StepResult:
        """As the environment."""
        result = await self._env.step(actions)
        called = "; ".join(f"{one.tool}({', '.join(map(str, one.arguments.values()))})" for one in actions)
        self._episode.steps.append((called, result.observation.text))
        return result

    async def evaluate(self) -> Score:
        """As the environment."""
        score = await self._env.evaluate()
        self._episode.is_solved = score.is_success
        return score

    async def aclose(self) -> None:
        """As the environment."""
        await self._env.aclose()


def watching(opener: EnvOpener, episodes: list[WatchedEpisode]) -> EnvOpener:
    """Opens environments whose episodes are noted in the list."""

    async def opened(entry: TaskEntry) -> Env:
        episodes.append(WatchedEpisode(entry.name, entry.task.instruction))
        return WatchedEnv(await opener(entry), episodes[-1])

    return opened


def telling_pair(
    before: Sequence[WatchedEpisode], after: Sequence[WatchedEpisode]
) -> tuple[WatchedEpisode, WatchedEpisode] | None:
    """A task that failed before and was solved after, with the most steps; None where there is none."""
    failed = {one.task: one for one in before if not one.is_solved}
    pairs = [(failed[one.task], one) for one in after if one.is_solved and one.task in failed]
    return max(pairs, key=lambda pair: len(pair[1].steps), default=None)


def show_episode(console: Console, label: str, episode: WatchedEpisode) -> None:
    """An episode in words."""
    console.print(f"\n[bold]{label}[/]: {escape(episode.instruction)}")
    for called, shown in episode.steps:
        console.print(f"  it calls  {escape(called)}")
        for line in shown.splitlines():
            console.print(f"  it sees   [dim]{escape(line)}[/]")
    console.print("  [green]solved[/]" if episode.is_solved else "  [red]not solved[/]")


def show_figures(console: Console, before: Measured, after: Measured) -> None:
    """Success by family, before and after."""
    table = Table("unseen tasks", "before", "after")
    for name in before.figures:
        one, two = before.figures[name], after.figures[name]
        table.add_row(f"[bold]{name}[/]", _words(one), _words(two))
        families, later = one["families"], two["families"]
        assert isinstance(families, dict) and isinstance(later, dict)
        for family in families:
            table.add_row(f"  {family}", _words(families[family]), _words(later[family]))
    console.print(table)


def _words(share: Json) -> str:
    assert isinstance(share, dict)
    return f"{share['solved']} of {share['graded']}"


async def run(setting: Setting, *, episodes: int, times: int, seed: int, box: BoxKind) -> dict[str, object]:
    """The whole demonstration; gives its figures."""
    console, began = Console(stderr=True, highlight=False), time.monotonic()
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="openclaw-rl-demo-agent-")))
        (home / "agent.toml").write_text(config_text(WAYS["steps"].settings), "utf-8")
        places = folders.write(home / "tasks", setting, folders.TaskCounts(), seed=seed)
        training = TrainingPlan(group_size=8, at_once=AT_ONCE, episodes=episodes)
        plan = TrialPlan(
            setting.value, places[folders.TRAIN], {"unseen": places[folders.TEST]}, training, times=times, seed=seed
        )
        console.print(f"starting the server on the agent model ({make.shipped().name}), settings from {RECIPE.name}")
        server = await stack.enter_async_context(serving(home, model=str(make.shipped()), config=home / "agent.toml"))
        endpoint = await stack.enter_async_context(PolicyEndpoint(server.base_url, server.key))
        opener = await stack.enter_async_context(local_envs(setting.value, box))
        told = lambda words: console.print(f"  {words}")  # noqa: E731
        seen: dict[str, list[WatchedEpisode]] = {"before": [], "after": []}
        trial = AgentTrial(endpoint, watching(opener, seen["before"]), plan, told)
        console.print("attempting unseen tasks, to know what it can do before")
        before = await trial.measure("before")
        console.print(f"before: {_words(before.figures['unseen'])} unseen tasks solved; now it learns by itself")
        trial.open_env, trial.tell = opener, lambda words: None
        with RunView(console, "episodes", episodes) as view:

            def show(state: Training) -> None:
                view.show(state.episodes, words_of(state).partition("episodes, ")[2])

            trained = await trial.train(show)
        trial.open_env, trial.tell = watching(opener, seen["after"]), told
        console.print("attempting the same unseen tasks again")
        after = await trial.measure("after")
    show_figures(console, before, after)
    pair = telling_pair(seen["before"], seen["after"])
    for label, episode in zip(("before", "after"), pair or (), strict=False):
        show_episode(console, label, episode)
    seconds = time.monotonic() - began
    console.print(f"\n{trained['episodes']} episodes, {trained['versions']} versions, {seconds:.0f} s in all")
    return {
        "benchmark": "demo-agent",
        "setting": setting.value,
        "before": before.figures["unseen"]["success"],
        "after": after.figures["unseen"]["success"],
        "training": trained,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Runs it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--setting", default="terminal", choices=[*folders.WRITTEN])
    options.add_argument("--episodes", type=int, default=160 if is_quick() else 800)
    options.add_argument("--times", type=int, default=1, help="Attempts at each unseen task.")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--box", type=BoxKind, default=BoxKind.AUTO, choices=[*BoxKind])
    given = options.parse_args()
    work = run(Setting(given.setting), episodes=given.episodes, times=given.times, seed=given.seed, box=given.box)
    finish(asyncio.run(work))


if __name__ == "__main__":
    main()
