"""Exercises of the agent model: what is written of them, what their attempts come to, and that splits share none."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from random import Random

import pytest

from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.probe import open_boxes
from openclaw_rl.envs.open import open_env
from openclaw_rl.envs.task import Action, Env, Task
from openclaw_rl.envs.tasks.source import Attempt, OpenSource
from openclaw_rl.envs.tasks.sources import find_sources
from openclaw_rl.errors import BoxError, ConfigError
from openclaw_rl.tiny.agent import demos, folders
from openclaw_rl.tiny.agent.exercise import Exercise, Setting

BY_NAME = [
    pytest.param(setting, name, id=f"{setting}-{name}")
    for setting in demos.FAMILIES
    for name in (*demos.FAMILIES[setting], *demos.HELD_BACK[setting])
]
FEW = folders.TaskCounts(train=16, test=8, held_back=2)


@pytest.mark.parametrize(("setting", "name"), BY_NAME)
def test_the_same_seed_makes_the_same_exercise_and_only_its_first_attempt_is_right(setting: Setting, name: str) -> None:
    family = {**demos.FAMILIES[setting], **demos.HELD_BACK[setting]}[name]
    for seed in range(50):
        made = family(Random(seed))
        assert made == family(Random(seed))
        assert (made.family, made.setting) == (name, setting)
        assert 1 <= len(made.attempts[0]) <= 6
        assert made.attempts[0] not in made.attempts[1:]
        assert len(made.attempts) >= 2
        assert len(set(map(str, made.attempts))) == len(made.attempts) or setting is Setting.TOOLS


def test_a_scripted_agent_is_right_as_often_as_its_skill() -> None:
    rng = Random(3)
    made = [demos.exercise(Setting.TOOLS, rng) for _ in range(2000)]
    right = sum(one.demonstrated(rng, 0.3) == one.attempts[0] for one in made)
    assert 0.26 < right / 2000 < 0.34  # four standard deviations
    assert all(one.demonstrated(rng, 1.0) == one.attempts[0] for one in made)


@pytest.mark.parametrize("setting", [*demos.FAMILIES])
def test_no_exercise_is_in_two_splits_and_the_held_back_family_is_in_its_own_alone(setting: Setting) -> None:
    made = folders.splits(setting, FEW)
    asked = [one.instruction + one.opening for exercises in made.values() for one in exercises]
    assert len(set(asked)) == len(asked) == 26
    assert {one.family for one in made["held_back"]} == {*demos.HELD_BACK[setting]}
    assert {one.family for one in (*made["train"], *made["test"])} == {*demos.FAMILIES[setting]}


def test_the_unseen_tasks_stay_the_same_however_many_there_are_to_learn_from() -> None:
    more = folders.TaskCounts(train=40, test=8, held_back=2)
    assert folders.splits(Setting.TERMINAL, FEW)["test"] == folders.splits(Setting.TERMINAL, more)["test"]
    assert folders.splits(Setting.TERMINAL, FEW, seed=1)["test"] != folders.splits(Setting.TERMINAL, FEW)["test"]


def test_a_family_that_has_no_more_exercises_says_so() -> None:
    def always(_rng: Random) -> Exercise:
        return demos.exercise(Setting.TOOLS, Random(0))

    with pytest.raises(ConfigError, match="has no more exercises"):
        folders.drawn({"one": always}, 2, Random(0), set())


@pytest.mark.parametrize("setting", [*demos.FAMILIES])
def test_what_is_written_is_read_as_tasks_of_named_families(setting: Setting, tmp_path: Path) -> None:
    places = folders.write(tmp_path, setting, FEW)
    for split, count in (("train", 16), ("test", 8), ("held_back", 2)):
        (source,) = find_sources(places[split])
        assert (len(source.tasks), dict(source.broken)) == (count, {})
        asked = {(one.instruction, one.family) for one in folders.splits(setting, FEW)[split]}
        assert {(task.instruction, task.metadata.get("family")) for task in source.tasks.values()} == asked


async def test_word_problems_are_judged_by_their_answer(tmp_path: Path) -> None:
    (source,) = find_sources(folders.write(tmp_path, Setting.TOOLS, FEW)["test"])
    for task, made in zip(source.tasks.values(), folders.splits(Setting.TOOLS, FEW)["test"], strict=True):
        for number, attempt in enumerate(made.attempts):
            score = await source.judge(task, Attempt(answer=str(attempt[-1].arguments["value"])))
            assert score.is_success is (number == 0), made


def _key(instruction: str, seed: Json) -> tuple[str, Json]:
    return instruction, seed


async def _attempted(env: Env, task: Task, made: Exercise, number: int) -> bool:
    """Makes the attempt's moves; what the environment shows must be what demonstrations say it shows."""
    seen = await env.reset(task)
    assert seen.text == made.instruction + made.opening
    assert [tool.name for tool in seen.tools] == [tool.name for tool in demos.TOOLS[made.setting]]
    names = [[*(tool.parameters["properties"] or {})] for tool in seen.tools]  # type: ignore[misc]
    assert names == [[*tool.parameters["properties"]] for tool in demos.TOOLS[made.setting]]  # type: ignore[misc]
    for place, move in enumerate(made.attempts[number]):
        result = await env.step([Action(move.tool, move.arguments)])
        assert result.done is (place == len(made.attempts[number]) - 1)
        if not result.done:
            assert result.observation.text == demos.shown(move), (made.family, move)
    return (await env.evaluate()).is_success


@pytest.mark.slow
@pytest.mark.parametrize("setting", [*demos.FAMILIES])
def test_environments_show_what_demonstrations_show_and_only_the_right_attempt_succeeds(
    setting: Setting, tmp_path: Path
) -> None:
    async def all_attempts() -> None:
        try:
            boxes = await open_boxes()
        except BoxError as problem:
            pytest.skip(problem.problem)
        counts = folders.TaskCounts(train=1, test=len(demos.FAMILIES[setting]), held_back=1)
        places, made_of = folders.write(tmp_path, setting, counts), folders.splits(setting, counts)
        try:
            for split in ("test", "held_back"):
                (source,) = find_sources(places[split])
                exercises = {_key(one.instruction, one.material.get("seed")): one for one in made_of[split]}
                for task in source.tasks.values():
                    made = exercises[_key(task.instruction, task.metadata.get("seed"))]
                    for number in range(len(made.attempts)):
                        async with aclosing(open_env(setting.value, source, boxes)) as env:
                            assert await _attempted(env, task, made, number) is (number == 0), (made.family, number)
                if isinstance(source, OpenSource):
                    await source.aclose()
        finally:
            await boxes.aclose()

    asyncio.run(all_attempts())


def test_no_wrong_attempt_at_a_word_problem_comes_to_the_right_answer_by_chance() -> None:
    rng = Random(11)
    for _ in range(5000):
        made = demos.exercise(Setting.TOOLS, rng)
        right, *wrong = (attempt[-1].arguments["value"] for attempt in made.attempts)
        assert right == made.material["answer"] and right not in wrong, made
