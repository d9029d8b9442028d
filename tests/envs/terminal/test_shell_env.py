"""An episode in a shell: what an agent sees of it, what ends it, and who is at fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.envs.open import EnvKind, EnvOptions, open_env
from openclaw_rl.envs.task import Action, Env, Failure, TaskTimeouts
from openclaw_rl.envs.tasks.source import TaskSource
from openclaw_rl.errors import ConfigError


def bash(command: str) -> Action:
    return Action("bash", {"command": command})


async def begun(source: TaskSource, boxes: Boxes, **options: float) -> Env:
    env = open_env(EnvKind.SOFTWARE, source, boxes, options=replace(EnvOptions(), **options))
    (task,) = source.tasks.values()
    seen = await env.reset(task)
    assert (seen.text, seen.info.failure) == (task.instruction, None)
    assert [tool.name for tool in seen.tools] == ["bash", "submit"]
    assert set(seen.info.timings_s) == {"start", "shell"}
    return env


async def test_calls_of_a_step_are_done_one_after_the_other_in_one_shell(code: TaskSource, plain: Boxes) -> None:
    env = await begun(code, plain)
    result = await env.step([bash("x=3; mkdir d; cd d"), bash('echo $x; basename "$PWD"; false')])
    assert [part.text for part in result.observation.parts] == ["[exit status 0]", "3\nd\n[exit status 1]"]
    assert (result.done, result.truncated, result.info.failure, result.reward) == (False, False, None, None)
    facts = result.info.facts["commands"]
    assert isinstance(facts, list) and len(facts) == 2
    assert "commands" in result.info.timings_s
    await env.aclose()


async def test_an_episode_is_judged_when_it_is_submitted_and_not_before_the_work_is_done(
    code: TaskSource, plain: Boxes
) -> None:
    env = await begun(code, plain)
    assert (await env.evaluate()).reward == 0.0
    assert (await env.step([bash("ls")])).observation.text == "solution.py\n[exit status 0]"  # no tests are there
    from openclaw_rl.envs.tasks.code import CodeTasks

    assert isinstance(code, CodeTasks)
    (task,) = code.tasks.values()
    gold = code.gold(task)["solution.py"]
    result = await env.step(
        [bash(f"cat > solution.py <<'END'\n{gold}\nEND"), Action("submit", {}), bash("echo > solution.py")]
    )
    assert [part.text for part in result.observation.parts][1:] == ["[submitted]", "[not done: the episode was over]"]
    assert result.done
    score = await env.evaluate()
    assert score.is_success and score.duration_s > 0
    again = await env.step([bash("ls")])
    assert (again.done, again.observation.parts, again.info.failure) == (True, (), None)
    await env.aclose()


async def test_output_is_cut_in_the_middle_and_says_how_much_is_left_out(code: TaskSource, plain: Boxes) -> None:
    env = await begun(code, plain, output_characters=100)
    text = (await env.step([bash("seq 1 10000")])).observation.text
    # seq 1 10000 prints 48,894 characters
    assert text.startswith("1\n2\n3\n") and text.endswith("9999\n10000\n[exit status 0]")
    assert "[... 48794 characters left out ...]" in text
    await env.aclose()


async def test_a_command_that_takes_too_long_is_stopped_and_named_and_the_shell_goes_on(
    code: TaskSource, plain: Boxes
) -> None:
    env = await begun(code, plain, command_s=0.5)
    result = await env.step([bash("y=4; sleep 60"), bash("echo $y")])
    first, second = (part.text for part in result.observation.parts)
    assert "stopped, it took longer than 0.5 s" in first
    assert second == "4\n[exit status 0]"
    assert not result.done and result.info.failure is None
    await env.aclose()


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (Action("python", {"code": "1"}), "there is no tool 'python'; there are: bash, submit"),
        (Action("bash", {"cmd": "ls"}), "bash needs `command`, a text"),
        (bash("echo a\0b"), "a command contains a zero byte"),
        (bash("#" * 200_000), "cannot be started"),
    ],
)
async def test_a_call_that_is_none_is_the_agents_failure_and_ends_nothing(
    code: TaskSource, plain: Boxes, action: Action, why: str
) -> None:
    env = await begun(code, plain)
    result = await env.step([action])
    assert result.info.failure is Failure.AGENT and not result.done
    assert why in result.observation.text and why in result.info.reason
    assert (await env.step([bash("true")])).info.failure is None
    await env.aclose()


async def test_more_calls_than_a_step_may_hold_are_refused(code: TaskSource, plain: Boxes) -> None:
    env = await begun(code, plain, most_actions=2)
    result = await env.step([bash("echo 1"), bash("echo 2"), bash("touch three")])
    assert result.observation.parts[2].text == "[not done: at most 2 calls are done in one step]"
    assert (await env.step([bash("ls")])).observation.text == "solution.py\n[exit status 0]"
    await env.aclose()


async def test_the_time_of_a_task_is_counted_in_commands_and_cuts_the_episode(code: TaskSource, plain: Boxes) -> None:
    env = open_env("software", code, plain)
    (task,) = code.tasks.values()
    await env.reset(replace(task, limits=TaskTimeouts(agent_s=0.5)))
    result = await env.step([bash("sleep 60"), bash("touch late")])
    assert (result.truncated, result.done) == (True, False)
    assert "the time for this task is used up" in result.observation.parts[0].text
    assert result.observation.parts[1].text == "[not done: the episode was over]"
    assert (await env.evaluate()).reward == 0.0  # what is left is judged all the same
    await env.aclose()


async def test_a_box_that_cannot_be_made_is_the_infrastructures_failure(code: TaskSource, isolated: Boxes) -> None:
    await isolated.aclose()
    env = open_env("software", code, isolated)
    (task,) = code.tasks.values()
    seen = await env.reset(task)
    assert seen.info.failure is Failure.INFRASTRUCTURE and "closed" in seen.info.reason
    assert (await env.step([bash("ls")])).info.failure is Failure.INFRASTRUCTURE
    score = await env.evaluate()
    assert (score.reward, score.failure) == (None, Failure.INFRASTRUCTURE)
    await env.aclose()


def test_a_kind_that_is_not_there_and_missing_boxes_are_named(code: TaskSource) -> None:
    with pytest.raises(ConfigError, match=r"'tty' is not a kind of environment\. Give one of: terminal, software"):
        open_env("tty", code, None)
    with pytest.raises(ConfigError, match="need boxes"):
        open_env("terminal", code, None)
