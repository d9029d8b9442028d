"""MiniWoB++: the unmodified pages of the wheel `miniwob`, with their own seeds and raw rewards."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.envs.screen.page import PageTask
from openclaw_rl.envs.screen.screen import Judgement, PageError
from openclaw_rl.envs.screen.site import Site
from openclaw_rl.envs.task import Split, Task, TaskTimeouts
from openclaw_rl.errors import TaskError

PREFIX = "miniwob/"
LIMITS = TaskTimeouts(build_s=60.0, agent_s=300.0, judge_s=60.0)
# Seeds from this number on are the test split.
TEST_SEEDS = 1_000_000
# The page's time limit is for people; the episode has its own. Its counters are hidden, as its authors do.
BEGIN = """() => {{
  core.EPISODE_MAX_TIME = 2147483647;
  Math.seedrandom({seed});
  core.startEpisodeReal();
  for (const id of ["reward-display", "click-canvas"]) {{
    const element = document.getElementById(id);
    if (element) element.style.display = "none";
  }}
  document.getElementById("query")?.setAttribute("aria-hidden", "true");
  return core.getUtterance();
}}"""
STATE = "() => ({ isOver: WOB_DONE_GLOBAL, reward: WOB_RAW_REWARD_GLOBAL, reason: WOB_REWARD_REASON })"


def pages() -> list[str]:
    """The names of all pages. TaskError if the wheel is not installed."""
    return sorted(path.stem for path in (_folder() / "miniwob").glob("*.html"))


def task_of(page: str, seed: int, split: Split) -> Task:
    """A page with a seed. Test seeds are above all training seeds."""
    name = page.removeprefix(PREFIX)
    if name not in pages():
        raise TaskError(f"MiniWoB++ has no page {name!r}")
    own = seed + TEST_SEEDS if split is Split.TEST and seed < TEST_SEEDS else seed
    metadata: dict[str, Json] = {"kind": "screen", "page": page, "family": page, "seed": own, "licence": "MIT"}
    instruction = "Do what the page asks for."
    return Task(f"miniwob-{name}-{own}", instruction, limits=LIMITS, metadata=metadata, split=split)


def page_of(page: str, seed: int) -> PageTask:
    """The page, started with the seed."""
    site = Site(f"miniwob/{page.removeprefix(PREFIX)}.html", folder=_folder())
    return PageTask(site, STATE, _judged, BEGIN.format(seed=seed), wants_all=True)


def _judged(found: Json) -> Judgement:
    """The raw reward, -1 to 1, which does not fall with time: 0 until the episode is over, and never below 0."""
    if not isinstance(found, dict) or not isinstance(found.get("reward"), int | float):
        raise PageError("the page gives no reward")
    reward, is_over = float(str(found["reward"])), bool(found.get("isOver"))
    return Judgement(max(reward, 0.0) if is_over else 0.0, is_over, None, str(found.get("reason") or f"raw {reward:g}"))


@cache
def _folder() -> Path:
    found = importlib.util.find_spec("miniwob")
    if found is None or found.origin is None:
        raise TaskError("MiniWoB++ is not installed", fix="pip install 'openclaw-rl[miniwob]'")
    return Path(found.origin).parent / "html"
