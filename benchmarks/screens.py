"""Pages in a real browser: what each thing costs, and all families solved by their scripts (`make bench-screens`).

Needs Chromium and the extra `screen`; MiniWoB++ is left out where its wheel is not installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import time
from collections.abc import Awaitable
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

from benchmarks.common import Figures, conditions, finish, is_quick, progress, quantile
from openclaw_rl.envs.open import EnvOptions
from openclaw_rl.envs.screen import miniwob
from openclaw_rl.envs.screen.browsers import NAMES, BrowserOptions
from openclaw_rl.envs.screen.env import ScreenEnv
from openclaw_rl.envs.screen.families.catalogue import FAMILIES
from openclaw_rl.envs.screen.page import BrowserPage
from openclaw_rl.envs.screen.solving import action_of, find
from openclaw_rl.envs.screen.tasks import ScreenTasks, family_tasks
from openclaw_rl.envs.screen.tree import tree_text
from openclaw_rl.envs.task import Action, Split, Task

Value = TypeVar("Value")
EPISODES = 2 if is_quick() else 20  # of each family, half of them of the test split
REPEATS = 5 if is_quick() else 30
ALIVE = 8 if is_quick() else 64
BUDGET = 8_000


async def times() -> Figures:
    """Milliseconds of each thing an episode needs, on the pages of the family `mail`, in turns by each browser that is
    installed.
    """
    named = {name: path for name in NAMES if (path := shutil.which(name)) is not None}
    sources = {
        name: ScreenTasks(name, [], browser=BrowserOptions(path, load_s=180, action_s=180))
        for name, path in named.items()
    }
    spent: dict[str, dict[str, list[float]]] = {name: {} for name in named}

    async def timed(browser: str, what: str, work: Awaitable[Value]) -> Value:
        began = time.perf_counter()
        value = await work
        spent[browser].setdefault(what, []).append((time.perf_counter() - began) * 1000)
        return value

    try:
        for task in family_tasks("mail", train=REPEATS, test=0):
            for name, source in sources.items():
                screen = await timed(name, "reset", source.open(task))
                await timed(name, "tree", screen.look())
                await timed(name, "screenshot", screen.picture())
                await timed(name, "verdict", screen.judge())
                await timed(name, "click", screen.act(Action("click", {"ref": 1})))
                await timed(name, "close", screen.aclose())
    finally:
        for source in sources.values():
            await source.aclose()
    return {
        name: {
            what: {"median_ms": round(quantile(taken, 0.5), 1), "worst_ms": round(max(taken), 1)}
            for what, taken in each.items()
        }
        for name, each in spent.items()
    }


async def episode(env: ScreenEnv, task: Task) -> tuple[float | None, int, int]:
    """The reward of a task's script through the environment, its steps, and the characters of its longest view."""
    first = await env.reset(task)
    if first.info.failure is not None:
        progress(f"{task.id}: {first.info.failure}: {first.info.reason}")
        return None, 0, 0
    longest, steps = len(first.parts[-1].text), 0
    plan = FAMILIES[str(task.metadata["family"])].plan(int(str(task.metadata["seed"])), task.split)
    for move in plan.moves:
        view = await env.screen.look()
        for _ in range(8):
            if move.tool == "window" or find(view, move.name, role=move.role, row=move.row):
                break
            await env.step([Action("scroll", {"direction": "down"})])
            view = await env.screen.look()
            steps += 1
        longest = max(longest, len(tree_text(view, most_characters=BUDGET)))
        result = await env.step([action_of(view, move)])
        steps += 1
        if result.info.failure is not None:
            progress(f"{task.id}: {result.info.failure}: {result.info.reason}")
    return (await env.evaluate()).reward, steps, longest


async def families(source: ScreenTasks) -> Figures:
    """Each family played by its scripts, two episodes at a time."""
    found: Figures = {}
    for name, family in FAMILIES.items():
        tasks = family_tasks(name, train=EPISODES // 2, test=EPISODES - EPISODES // 2)
        envs = [ScreenEnv(source, EnvOptions(output_characters=BUDGET)) for _ in range(2)]

        async def play(env: ScreenEnv, own: list[Task]) -> list[tuple[float | None, int, int]]:
            return [await episode(env, task) for task in own]

        began = time.monotonic()
        parts = await asyncio.gather(*(play(env, tasks[at::2]) for at, env in enumerate(envs)))
        played = [one for part in parts for one in part]
        for env in envs:
            await env.aclose()
        found[name] = {
            "solved": sum(reward == 1.0 for reward, _, _ in played),
            "episodes": len(played),
            "most_steps": max(steps for _, steps, _ in played),
            "longest_view": max(longest for _, _, longest in played),
            "small": family.is_small,
            "seconds": round(time.monotonic() - began, 1),
        }
        progress(f"{name}: {found[name]}")
    return found


async def wob(source: ScreenTasks) -> Figures | str:
    """All pages opened, and 20 episodes of click-button by the name of the button."""
    if importlib.util.find_spec("miniwob") is None:
        return "not installed"
    opened, problems, solved = 0, {}, 0
    pages = miniwob.pages()[:: 20 if is_quick() else 1]
    for page in pages:
        env = ScreenEnv(source, EnvOptions())
        first = await env.reset(miniwob.task_of(f"{miniwob.PREFIX}{page}", 1, Split.TRAIN))
        score = await env.evaluate()
        if first.info.failure is None and first.text and score.reward == 0.0:
            opened += 1
        else:
            problems[page] = f"{first.info.failure}: {first.info.reason}"
        await env.aclose()
    for seed in range(EPISODES):
        env = ScreenEnv(source, EnvOptions())
        first = await env.reset(miniwob.task_of(f"{miniwob.PREFIX}click-button", seed, Split.TEST))
        button = find(await env.screen.look(), first.parts[0].text.split('"')[1], role="button")
        if button is not None:
            await env.step([Action("click", {"ref": button.ref})])
        solved += (await env.evaluate()).is_success
        await env.aclose()
    return {"pages": len(pages), "opened": opened, "problems": problems, "click_button": f"{solved} of {EPISODES}"}


async def alive() -> Figures:
    """Pages open at once, each of which still answers, and the memory of their browsers."""
    source = ScreenTasks(
        "alive", [], browser=BrowserOptions(most_browsers=4, contexts=-(-ALIVE // 4), load_s=180, action_s=180)
    )
    try:
        began = time.monotonic()
        screens = []
        for task in family_tasks("buttons", train=ALIVE, test=0):
            screens.append(await source.open(task))
        opened_s = time.monotonic() - began
        memory_mb = sum(_memory_mb(pid) for pid in source.browsers.pids)
        answering = 0
        for screen in screens:
            assert isinstance(screen, BrowserPage)
            answering += bool((await screen.look()).nodes)
        return {
            "pages": len(screens),
            "answering": answering,
            "browsers": source.browsers.started,
            "opened_s": round(opened_s, 1),
            "memory_mb": round(memory_mb),
        }
    finally:
        await source.aclose()


def _memory_mb(pid: int) -> float:
    """What a process and all below it hold, shared pages divided among those that share them."""
    total, waiting = 0.0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
            for thread in Path(f"/proc/{one}/task").iterdir():
                waiting += [int(child) for child in (thread / "children").read_text().split()]
        except OSError:
            continue  # it ended meanwhile
    return total


async def measure() -> Figures:
    """All figures."""
    cost = await times()
    progress(f"times: {cost}")
    async with aclosing(ScreenTasks("bench", [], browser=BrowserOptions(load_s=180, action_s=180))) as source:
        limits = dict(source.browsers.limits_in_force)
        played = await families(source)
        figures: Figures = {"times": cost, "families": played, "miniwob": await wob(source), "limits": limits}
    counts = [one for one in played.values() if isinstance(one, dict)]
    figures["solved"] = sum(one["solved"] for one in counts)
    figures["episodes"] = sum(one["episodes"] for one in counts)
    figures["alive"] = await alive()
    return figures


def main() -> None:
    """Prints the figures."""
    figures = asyncio.run(measure())
    finish({**figures, "conditions": conditions("none", threads=1, seeds=[*range(EPISODES // 2)], repeats=REPEATS)})


if __name__ == "__main__":
    main()
