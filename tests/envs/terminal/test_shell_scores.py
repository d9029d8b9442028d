"""Scores of single steps in a shell: what the tests gained, which the agent never sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.envs.open import EnvKind, EnvOptions, open_env
from openclaw_rl.envs.task import Action
from openclaw_rl.envs.tasks.sources import find_sources

TWO = {
    "id": "two",
    "instruction": "Mend both.",
    "files": {"both.py": "def one():\n    return 2\n\n\ndef two():\n    return 3\n"},
    "gold": {"both.py": "def one():\n    return 1\n\n\ndef two():\n    return 2\n"},
    "tests": {
        f"check_{name}.py": f"import both\nassert both.{name}() == {value}\n"
        for name, value in (("one", 1), ("two", 2))
    },
    "test_cmd": ["python3 check_one.py", "python3 check_two.py"],
}


def bash(command: str) -> Action:
    return Action("bash", {"command": command})


def written(folder: Path, row: object) -> Path:
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    return folder


async def test_a_step_scores_what_its_commands_gained_and_the_agent_sees_nothing_of_the_tests(
    tmp_path: Path, plain: Boxes
) -> None:
    (source,) = find_sources(written(tmp_path, TWO))
    env = open_env(EnvKind.SOFTWARE, source, plain, options=EnvOptions(score_steps=True))
    (task,) = source.tasks.values()
    await env.reset(task)
    mend_one, mend_two = (bash(f"sed -i 's|return {old}|return {new}|' both.py") for old, new in ((2, 1), (3, 2)))
    break_one = bash("sed -i 's|return 1|return 9|' both.py")
    scores = []
    for action in (bash("ls"), mend_one, mend_two, break_one, bash("sed -i 's|return 9|return 1|' both.py")):
        result = await env.step([action])
        scores.append(result.reward)
        assert "check_" not in result.observation.text
    assert scores == [0.0, 0.5, 0.5, -0.5, 0.5]
    assert (await env.evaluate()).components == {"passed": 1.0}
    assert (await env.step([Action("submit", {})])).reward == 0.0  # nothing was run
    assert (await env.evaluate()).is_success
    await env.aclose()


async def test_half_of_the_tests_is_no_success_and_a_step_has_no_score_unless_it_is_asked_for(
    tmp_path: Path, plain: Boxes
) -> None:
    (source,) = find_sources(written(tmp_path, TWO))
    env = open_env(EnvKind.SOFTWARE, source, plain)
    await env.reset(next(iter(source.tasks.values())))
    assert (await env.step([bash("sed -i 's|return 2|return 1|' both.py")])).reward is None
    score = await env.evaluate()
    assert (score.reward, score.components["passed"]) == (0.0, 0.5)
    await env.aclose()


async def test_code_that_leaves_early_passes_none_of_several_commands(tmp_path: Path, plain: Boxes) -> None:
    (source,) = find_sources(written(tmp_path, TWO))
    env = open_env(EnvKind.SOFTWARE, source, plain)
    await env.reset(next(iter(source.tasks.values())))
    await env.step([bash("echo 'import sys; sys.exit(0)' > both.py")])
    assert (await env.evaluate()).components["passed"] == 0.0
    await env.aclose()


@pytest.mark.parametrize("commands", [[], ["python3 check_one.py", 3], {"a": "b"}])
def test_a_row_whose_commands_are_none_is_named(tmp_path: Path, commands: object) -> None:
    (source,) = find_sources(written(tmp_path, {**TWO, "test_cmd": commands}))
    assert not source.tasks
    assert "test_cmd" in next(iter(source.broken.values()))
