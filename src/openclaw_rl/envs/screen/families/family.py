"""What a family of pages is: tasks made from a seed, each with a page, a wanted state, and a way to get there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from openclaw_rl.core.message import Json
from openclaw_rl.envs.screen.page import PageTask
from openclaw_rl.envs.screen.screen import Judgement, PageError
from openclaw_rl.envs.screen.site import Site
from openclaw_rl.envs.task import Split

PAGES = Path(__file__).parent.parent / "pages"
STATE = """() => ({ state: window.task.state(), isOver: window.task.isOver,
draft: window.task.draft ? window.task.draft() : null })"""
TEST_SHARE = 5  # one in five contents is in the test split
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title></title><style>{css}</style></head>
<body><main id="root"></main><script>{kit}</script><script>{script}
task.state = build({data}, root);</script></body></html>"""


@dataclass(frozen=True, slots=True)
class PageAction:
    """One action of a solution; its element is found in the view by role, name and row."""

    tool: str
    name: str = ""
    role: str = ""
    row: str = ""  # part of the text in the same row
    value: str = ""
    onto: str = ""  # the name of what something is dragged onto


@dataclass(frozen=True, slots=True)
class PagePlan:
    """One task of a family. `key` identifies its content: no key is in both splits."""

    instruction: str
    data: Mapping[str, Json]  # the page's content
    wanted: Mapping[str, Json]  # the state that solves the task; the page does not contain it
    moves: tuple[PageAction, ...]
    key: str


@dataclass(frozen=True, slots=True)
class PageFamily:
    """Pages of one kind. `is_small`: at most 4 steps, and views of at most about 400 characters."""

    name: str
    make: Callable[[Random], PagePlan]
    is_small: bool = False

    def plan(self, seed: int, split: Split) -> PagePlan:
        """The task of a seed. Contents are drawn until one belongs to the split, so that none is in both."""
        random = Random(f"{self.name} {split.value} {seed}")
        for _ in range(1_000):
            plan = self.make(random)
            if split_of(self.name, plan.key) is split:
                return plan
        raise PageError(f"family {self.name} has no content for the split {split.value}")


def split_of(family: str, key: str) -> Split:
    """The split that a content belongs to, by its hash."""
    digest = hashlib.blake2b(f"{family}\n{key}".encode(), digest_size=4).digest()
    return Split.TEST if int.from_bytes(digest, "big") % TEST_SHARE == 0 else Split.TRAIN


def page_task(family: str, plan: PagePlan) -> PageTask:
    """The page of a plan, as one file."""
    data = json.dumps(dict(plan.data)).replace("<", "\\u003c")
    html = PAGE.format(css=_file("kit.css"), kit=_file("kit.js"), script=_file(f"{family}.js"), data=data)
    return PageTask(Site("task.html", {"task.html": html}), STATE, lambda found: judged(found, plan.wanted))


def judged(found: Json, wanted: Mapping[str, Json]) -> Judgement:
    """1 if the state is exactly the wanted one. `right`: the share of values that are right; `near`: of the draft's."""
    state = found.get("state") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(state, dict):
        raise PageError(f"the page gives no state: {json.dumps(found)[:200]}")
    names = sorted({*wanted, *state})
    right = [name for name in names if name in wanted and name in state and state[name] == wanted[name]]
    wrong = [f"{name} is {json.dumps(state.get(name))[:100]}" for name in names if name not in right]
    share = len(right) / len(names) if names else 1.0
    draft = found.get("draft")
    near = None if not isinstance(draft, dict) else nearness(draft, wanted)
    return Judgement(float(not wrong), bool(found.get("isOver")), share, "; ".join(wrong), near)


def nearness(draft: Mapping[str, Json], wanted: Mapping[str, Json]) -> float:
    """How near these values are to the wanted ones, in [0, 1]: the mean of all.

    A number off by d has 1 / (1 + d), a list the share of its and the wanted elements that are in both, others 1 or 0.
    """
    names = {*draft, *wanted}
    return sum(_near(draft.get(name), wanted.get(name)) for name in names) / len(names) if names else 1.0


def _near(value: Json, wanted: Json) -> float:
    if value == wanted:
        return 1.0
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        return 1 / (1 + abs(value - wanted))
    if isinstance(value, list) and isinstance(wanted, list):
        either = [*value, *(one for one in wanted if one not in value)]
        return sum(one in value and one in wanted for one in either) / len(either)
    return 0.0


@cache
def _file(name: str) -> str:
    return (PAGES / name).read_text("utf-8")
