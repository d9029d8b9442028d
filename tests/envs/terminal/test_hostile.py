"""What agents, tasks and machines do at their worst: each named by whose fault it is, and nothing else stops."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from openclaw_rl.envs.box.isolated import IsolatedBoxes
from openclaw_rl.envs.box.probe import open_boxes
from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.envs.open import EnvOptions, open_env
from openclaw_rl.envs.task import Action, Failure, Resources, StepResult
from openclaw_rl.envs.tasks.check import check_sources
from openclaw_rl.envs.tasks.prepared import PreparedState, PreparedStates
from openclaw_rl.envs.tasks.source import spec_of
from openclaw_rl.envs.tasks.sources import find_sources
from openclaw_rl.envs.terminal.env import BASH, SUBMIT, ShellEnv

FILES = {
    "task.toml": 'version = "1.0"\n[verifier]\ntimeout_sec = 5.0\n[environment]\nstorage = "32M"\n',
    "instruction.md": "Write `right` to /app/answer.",
    "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
    "tests/test.sh": 'if [ "$(cat answer)" = right ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n',
    "solution/solve.sh": "echo right > answer\n",
}
SOLVE = "echo right > answer"


def laid(folder: Path, **changed: str) -> Path:
    names = {name.rpartition("/")[2].partition(".")[0]: name for name in FILES}
    for name, text in {**FILES, **{names[key]: text for key, text in changed.items()}}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


async def begun(folder: Path, boxes: Boxes, *, command_s: float = 20.0) -> ShellEnv:
    """An episode of the one task of a folder."""
    (source,) = find_sources(folder)
    env = open_env("terminal", source, boxes, options=EnvOptions(command_s=command_s))
    assert isinstance(env, ShellEnv)
    seen = await env.reset(next(iter(source.tasks.values())))
    assert seen.info.failure is None, seen.info.reason
    return env


async def run(env: ShellEnv, command: str) -> StepResult:
    return await env.step([Action("bash", {"command": command})])


async def test_100_mb_of_output_are_cut_and_300_are_stopped_and_the_shell_goes_on(
    isolated: Boxes, tmp_path: Path
) -> None:
    env = await begun(laid(tmp_path / "t"), isolated, command_s=60)
    flood = await run(env, "head -c 100000000 /dev/zero | tr '\\0' x")
    assert len(flood.observation.text) < 8_200 and flood.observation.text.endswith("[exit status 0]")
    assert "[... 99992000 characters left out ...]" in flood.observation.text
    stopped = await run(env, "head -c 300000000 /dev/zero | tr '\\0' x")
    assert "it printed too much" in stopped.observation.text and not stopped.done
    await run(env, SOLVE)
    assert (await env.evaluate()).is_success
    await env.aclose()


@pytest.mark.parametrize(
    "command",
    ["exit 3", "kill -9 $$", "exec sleep 60", "kill -9 -1", "setsid sleep 600 & kill -STOP $$", ":(){ :|:& };:"],
)
async def test_an_agent_that_takes_its_shell_down_gets_another_one(
    isolated: Boxes, tmp_path: Path, command: str
) -> None:
    env = await begun(laid(tmp_path / "t"), isolated, command_s=3)
    taken = await run(env, f"cd /tmp; {command}")
    assert taken.info.failure is None and not taken.done, taken.info.reason
    again = await run(env, f"cd /app && {SOLVE} && cat answer")
    assert again.info.failure is None and "right\n" in again.observation.text, (taken.observation, again)
    assert (await env.evaluate()).is_success
    await env.aclose()


async def test_a_disk_that_the_agent_filled_is_judged_and_not_excused(isolated: Boxes, tmp_path: Path) -> None:
    env = await begun(laid(tmp_path / "t"), isolated)
    full = await run(env, "head -c 200000000 /dev/zero > /app/fill; head -c 200000000 /dev/zero > /tmp/fill; pwd")
    assert "No space left on device" in full.observation.text and full.info.failure is None
    score = await env.evaluate()
    assert (score.reward, score.failure) == (0.0, None)
    freed = await run(env, f"rm /app/fill /tmp/fill; {SOLVE}")
    assert freed.info.failure is None
    assert (await env.evaluate()).is_success
    await env.aclose()


async def test_a_box_that_dies_in_the_middle_of_a_command_is_nobodys_reward(isolated: Boxes, tmp_path: Path) -> None:
    env = await begun(laid(tmp_path / "t"), isolated)
    async with asyncio.TaskGroup() as group:
        step = group.create_task(run(env, "echo begun; sleep 30"))
        await asyncio.sleep(0.5)
        await env.box.aclose()
    result = step.result()
    assert result.done and result.info.failure is Failure.INFRASTRUCTURE, result
    score = await env.evaluate()
    assert (score.reward, score.failure) == (None, Failure.INFRASTRUCTURE)
    await env.aclose()


@pytest.mark.slow  # it makes boxes with walls itself
async def test_a_machine_that_loses_all_boxes_is_named_and_other_boxes_can_be_made(tmp_path: Path) -> None:
    boxes = await open_boxes()
    assert isinstance(boxes, IsolatedBoxes)
    env = await begun(laid(tmp_path / "t"), boxes)
    os.kill(boxes.keeper_pid, signal.SIGKILL)
    result = await run(env, f"sleep 30; {SOLVE}")  # the boxes end a moment after their keeper
    assert result.done and result.info.failure is Failure.INFRASTRUCTURE, result
    (source,) = find_sources(tmp_path / "t")
    (task,) = source.tasks.values()
    seen = await env.reset(task)
    assert seen.info.failure is Failure.INFRASTRUCTURE
    await env.aclose()
    await boxes.aclose()
    other = await open_boxes()
    env = await begun(tmp_path / "t", other)
    assert (await run(env, "true")).info.failure is None
    await other.aclose()


async def test_a_grader_that_crashes_or_hangs_is_the_tasks_fault_until_it_was_seen_to_work(
    isolated: Boxes, tmp_path: Path
) -> None:
    env = await begun(laid(tmp_path / "crashes", test="exit 9\n"), isolated)
    score = await env.evaluate()
    assert (score.reward, score.failure) == (None, Failure.ENVIRONMENT) and "ended with 9" in score.details
    await env.aclose()
    hangs = 'version = "1.0"\n[verifier]\ntimeout_sec = 1.0\n'
    env = await begun(laid(tmp_path / "hangs", task=hangs, test="sleep 600\n"), isolated)
    score = await env.evaluate()
    assert (score.reward, score.failure) == (None, Failure.ENVIRONMENT) and "timeout" in score.details
    await env.aclose()
    (source,) = find_sources(laid(tmp_path / "trapped", test=f"[ -e trap ] && exit 9\n{FILES['tests/test.sh']}"))
    assert (await check_sources([source], isolated, at_once=1, tell=lambda _: None)).is_good
    env = ShellEnv(source, isolated, EnvOptions(), tools=(BASH, SUBMIT))
    await env.reset(source.tasks["trapped"])
    await run(env, "touch trap")
    score = await env.evaluate()
    assert (score.reward, score.failure) == (0.0, Failure.AGENT)
    await env.aclose()


async def test_a_broken_environment_is_the_tasks_fault_and_the_next_task_begins(
    isolated: Boxes, tmp_path: Path
) -> None:
    laid(tmp_path / "broken", Dockerfile="FROM debian\nRUN echo sorry >&2; exit 3\n")
    laid(tmp_path / "whole")
    laid(tmp_path / "unreadable", task="version =")
    (source,) = find_sources(tmp_path)
    assert list(source.broken) == ["unreadable"]
    env = open_env("terminal", source, isolated)
    for _ in range(2):
        seen = await env.reset(source.tasks["broken"])
        assert seen.info.failure is Failure.ENVIRONMENT and "sorry" in seen.info.reason
    score = await env.evaluate()
    assert (score.reward, score.failure) == (None, Failure.ENVIRONMENT)
    assert (await env.reset(source.tasks["whole"])).info.failure is None
    await env.aclose()


async def test_a_task_whose_solution_fails_is_named_by_the_check(isolated: Boxes, tmp_path: Path) -> None:
    (source,) = find_sources(laid(tmp_path / "t", solve="echo wrong > answer\n"))
    report = await check_sources([source], isolated, at_once=1, tell=lambda _: None)
    assert report.counts == {"solution fails": 1} and not report.is_good


async def test_states_are_dropped_when_there_are_many_and_episodes_that_stand_on_them_go_on(
    isolated: Boxes, tmp_path: Path
) -> None:
    states, made = PreparedStates(most=2), []

    async def make(name: str) -> PreparedState:
        made.append(name)
        box = await isolated.create(spec_of(Resources()))
        await box.write("name", name.encode())
        state = PreparedState(box.spec, await box.snapshot())
        await box.aclose()
        return state

    boxes = {name: await states.box(name, isolated, partial(make, name)) for name in "abcd"}
    for name, box in boxes.items():
        assert await box.read("name") == name.encode()
        await box.aclose()
    for name in "da":
        box = await states.box(name, isolated, partial(make, name))
        assert await box.read("name") == name.encode()
        await box.aclose()
    assert made == [*"abcd", "a"]  # `a` had been dropped
