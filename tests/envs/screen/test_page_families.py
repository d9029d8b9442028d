"""Families of pages: what a seed gives, how the splits differ, and that small ones are small."""

from __future__ import annotations

import json

import pytest

from openclaw_rl.envs.screen.families.catalogue import FAMILIES
from openclaw_rl.envs.screen.families.family import PAGES, PageFamily, judged, nearness, page_task, split_of
from openclaw_rl.envs.screen.screen import PageError
from openclaw_rl.envs.screen.tasks import family_tasks
from openclaw_rl.envs.task import Split
from openclaw_rl.errors import TaskError

ALL = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))


def test_there_are_twenty_families_and_each_has_its_page() -> None:
    assert len(FAMILIES) == 20
    scripts = {path.stem for path in PAGES.glob("*.js")} - {"kit"}
    assert scripts == set(FAMILIES)


@ALL
def test_a_seed_gives_the_same_task_again_and_others_give_others(family: PageFamily) -> None:
    plans = [family.plan(seed, Split.TRAIN) for seed in range(30)]
    assert plans == [family.plan(seed, Split.TRAIN) for seed in range(30)]
    assert len({plan.key for plan in plans}) >= 12


@ALL
def test_no_content_is_in_both_splits(family: PageFamily) -> None:
    keys = {split: {family.plan(seed, split).key for seed in range(100)} for split in Split}
    assert keys[Split.TRAIN].isdisjoint(keys[Split.TEST])
    assert all(split_of(family.name, key) is split for split, found in keys.items() for key in found)


@ALL
def test_the_start_of_a_task_is_not_its_goal_and_the_page_does_not_hold_the_goal(family: PageFamily) -> None:
    plan = family.plan(3, Split.TEST)
    assert judged({"state": {}, "isOver": False}, plan.wanted).reward == 0.0
    html = page_task(family.name, plan).site.texts["task.html"]
    assert json.dumps(dict(plan.wanted)) not in html.replace("\\u003c", "<")


def test_small_families_take_at_most_four_steps() -> None:
    small = [family for family in FAMILIES.values() if family.is_small]
    assert len(small) >= 5
    for family in small:
        assert max(len(family.plan(seed, split).moves) for seed in range(50) for split in Split) <= 4


def test_a_state_is_right_only_where_all_of_it_is() -> None:
    wanted = {"name": "Ann", "gift": True}
    assert judged({"state": {"name": "Ann", "gift": True}, "isOver": True}, wanted).reward == 1.0
    half = judged({"state": {"name": "Ann", "gift": False}, "isOver": True}, wanted)
    assert (half.reward, half.right, half.is_over) == (0.0, 0.5, True)
    assert half.details == "gift is false"
    # something more than was asked for is wrong as well: 2 of 3 values are right
    more = judged({"state": {"name": "Ann", "gift": True, "pen": 1}}, wanted)
    assert (more.reward, more.right) == (0.0, 2 / 3)


def test_a_draft_says_how_near_the_page_is_before_anything_is_saved() -> None:
    wanted = {"saved": 7}
    near = [judged({"state": {"saved": None}, "draft": {"saved": value}}, wanted).near for value in (4, 5, 6, 7, 8)]
    assert near == [1 / 4, 1 / 3, 1 / 2, 1.0, 1 / 2]
    lists = [nearness({"saved": value}, {"saved": ["a", "b"]}) for value in (["c"], ["a"], ["a", "b", "c"], ["b", "a"])]
    assert lists == [0.0, 1 / 2, 2 / 3, 1.0]
    assert nearness({"name": "Ann", "town": ""}, {"name": "Ann", "town": "Ulm"}) == 0.5
    plain = judged({"state": {"saved": 4}, "draft": None}, wanted)
    assert plain.near is None and plain.progress == plain.right == 0.0


def test_a_page_without_a_state_is_broken() -> None:
    with pytest.raises(PageError, match="gives no state"):
        judged(None, {"a": 1})


def test_an_unknown_family_is_named_with_those_there_are() -> None:
    with pytest.raises(TaskError, match=r"no family of pages 'bottons'.*buttons"):
        family_tasks("bottons", train=1, test=0)
