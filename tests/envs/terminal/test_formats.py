"""Each format that a user's tasks come in is served alike; what cannot be had here is named when an episode begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.envs.open import open_env
from openclaw_rl.envs.task import Action, Failure
from openclaw_rl.envs.tasks.sources import find_sources

EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples" / "tasks"


async def solved(folder: Path, boxes: Boxes, command: str) -> None:
    """The one task of a folder: failed at the start, and solved by a command of the agent's."""
    (source,) = find_sources(folder)
    (task,) = source.tasks.values()
    env = open_env("terminal", source, boxes)
    assert (await env.reset(task)).info.failure is None
    assert (await env.evaluate()).reward == 0.0
    result = await env.step([Action("bash", {"command": command}), Action("submit", {})])
    assert result.done, result
    score = await env.evaluate()
    assert score.is_success, (result.observation.text, score.details)
    await env.aclose()


async def test_harbors_layout_is_served(isolated: Boxes) -> None:
    (folder,) = (path.parent for path in EXAMPLES.rglob("task.toml"))
    await solved(folder, isolated, (folder / "solution" / "solve.sh").read_text("utf-8"))


async def test_terminal_bench_1_is_served(isolated: Boxes, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "task.yaml").write_text("instruction: Write the sum of numbers.txt to /app/sum.\n")
    (tmp_path / "Dockerfile").write_text("FROM python:3.12-slim\nWORKDIR /app\nCOPY numbers.txt .\n")
    (tmp_path / "numbers.txt").write_text("1\n2\n39\n")
    (tmp_path / "run-tests.sh").write_text("uv init && uv add pytest\nuv run pytest $TEST_DIR/test_outputs.py -rA\n")
    (tmp_path / "tests" / "test_outputs.py").write_text(
        "from pathlib import Path\n\ndef test_sum():\n    assert Path('/app/sum').read_text().strip() == '42'\n"
    )
    await solved(tmp_path, isolated, "awk '{s+=$1} END {print s}' numbers.txt > sum; ls /tests 2>/dev/null; true")


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        ("FROM node:20\n", "line 1 of the Dockerfile is not supported without a container engine: FROM node:20"),
        (
            "FROM debian\nRUN apt-get install -y no-such-thing\n",
            "needs no-such-thing, which this machine does not have",
        ),
        ("FROM debian\nUSER ann\n", "USER ann"),
        ("FROM debian\nADD https://x.invalid/a /a\n", "ADD of an archive or an address"),
    ],
)
async def test_what_an_environment_cannot_have_here_is_named(
    isolated: Boxes, tmp_path: Path, recipe: str, why: str
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "task.yaml").write_text("instruction: Do it.\n")
    (tmp_path / "Dockerfile").write_text(recipe)
    (source,) = find_sources(tmp_path)
    env = open_env("terminal", source, isolated)
    seen = await env.reset(next(iter(source.tasks.values())))
    assert seen.info.failure is Failure.ENVIRONMENT and why in seen.info.reason
    await env.aclose()
