"""Rows as SWE-bench and SWE-Gym publish them: read, refused with the reason, and judged where an engine is."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.docker import DockerBoxes
from openclaw_rl.envs.box.plain import PlainBoxes
from openclaw_rl.envs.tasks.check import TaskVerdict, check_sources
from openclaw_rl.envs.tasks.source import Attempt, TaskSource, UnsupportedTaskError
from openclaw_rl.envs.tasks.sources import find_sources

FAKE = Path(__file__).parent.parent / "fake_engine.py"
BROKEN, WHOLE = "def double(a):\n    return a + 2\n", "def double(a):\n    return a * 2\n"
PATCH = "--- a/lib.py\n+++ b/lib.py\n@@ -1,2 +1,2 @@\n def double(a):\n-    return a + 2\n+    return a * 2\n"
OLD_TEST = "from lib import double\n\ndef test_two():\n    assert double(2) == 4\n"
TEST_PATCH = (
    "--- a/test_lib.py\n+++ b/test_lib.py\n@@ -2,3 +2,6 @@\n \n def test_two():\n     assert double(2) == 4\n"
    "+\n+def test_three():\n+    assert double(3) == 6\n"
)
ROW: dict[str, Json] = {
    "instance_id": "ann__lib-1",
    "repo": "ann/lib",
    "base_commit": "HEAD",
    "patch": PATCH,
    "test_patch": TEST_PATCH,
    "problem_statement": "double(3) is 5.",
    "FAIL_TO_PASS": '["test_lib.py::test_three"]',
    "PASS_TO_PASS": ["test_lib.py::test_two"],
    "image": "debian",
    "workdir": "/app",
}


def source_of(folder: Path, *rows: dict[str, Json]) -> TaskSource:
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (source,) = find_sources(folder)
    return source


def committed(folder: Path) -> None:
    """Makes a repository of a folder, with a tag as of a later commit."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"], ["tag", "later"]):
        subprocess.run([*git, *words], cwd=folder, check=True)


@pytest.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DockerBoxes]:
    """The stand-in for docker, with an image that holds the repository."""
    place = tmp_path / "engine"
    for name in ("bin", "images/debian", "containers"):
        (place / name).mkdir(parents=True)
    image = place / "images" / "debian"
    (image / "lib.py").write_text(BROKEN)
    (image / "test_lib.py").write_text(OLD_TEST)
    await asyncio.to_thread(committed, image)
    program = place / "bin" / "docker"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(FAKE))} "$@"\n')
    program.chmod(0o755)
    (place / "bin" / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_ENGINE", str(place))
    boxes = await DockerBoxes.open("docker")
    yield boxes
    await boxes.aclose()
    shutil.rmtree(place)


@pytest.mark.slow  # a process for each call of the engine
async def test_a_row_is_judged_by_the_tests_it_names(engine: DockerBoxes, tmp_path: Path) -> None:
    test_cmd = f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider"
    source = source_of(tmp_path, {**ROW, "test_cmd": test_cmd})
    (task,) = source.tasks.values()
    box = await source.start(task, engine)
    assert box is not None
    assert (await box.exec("git tag; git branch --list", timeout_s=20)).stdout.text.count("\n") == 1  # no ref is left
    start = await source.judge(task, Attempt(box))
    assert (start.reward, start.components["passed"], start.components["newly_broken"]) == (0.0, 0.0, 0.0)
    await box.write("lib.py", b"def double(a):\n    return 6\n")  # what must pass does, what passed does not
    half = await source.judge(task, Attempt(box))
    assert (half.reward, half.components["passed"], half.components["newly_broken"]) == (0.0, 1.0, 1.0)
    await box.write("lib.py", BROKEN.encode())
    await box.write("test_lib.py", b"def test_two(): pass\ndef test_three(): pass\n")
    assert (await source.judge(task, Attempt(box))).reward == 0.0  # the tests are put back first
    await source.solve(task, Attempt(box))
    assert (await source.judge(task, Attempt(box))).is_success


async def test_a_row_is_skipped_with_the_reason_where_no_engine_is(tmp_path: Path) -> None:
    boxes = PlainBoxes.open()
    source = source_of(tmp_path, ROW, {**ROW, "instance_id": "django__django-1", "repo": "django/django", "image": ""})
    report = await check_sources([source], boxes, at_once=1, tell=lambda _: None)
    await boxes.aclose()
    assert [one.verdict for one in report.checked] == [TaskVerdict.SKIPPED, TaskVerdict.SKIPPED]
    assert report.checked[0].reason == "the task needs the image debian"
    assert "swebench/sweb.eval.x86_64.django_1776_django-1:latest" in report.checked[1].reason


async def test_tests_that_pytest_does_not_name_are_refused(tmp_path: Path) -> None:
    boxes = PlainBoxes.open()
    source = source_of(tmp_path, {**ROW, "FAIL_TO_PASS": ["test_x (a.b.C)"]})
    with pytest.raises(UnsupportedTaskError, match=r"tests do not have pytest.s names: test_x \(a\.b\.C\)"):
        await source.start(source.tasks["ann__lib-1"], boxes)
    await boxes.aclose()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"FAIL_TO_PASS": "[]"}, "names no test"),
        ({"FAIL_TO_PASS": "no list"}, "`FAIL_TO_PASS` is not a list"),
        ({"PASS_TO_PASS": [1]}, "`PASS_TO_PASS` is not a list of names"),
        ({"patch": None}, "`patch` is missing"),
        ({"problem_statement": " "}, "has no id or no instruction"),
    ],
)
def test_a_row_that_is_broken_is_named(tmp_path: Path, change: dict[str, Json], why: str) -> None:
    source = source_of(tmp_path, {**ROW, **change})
    assert source.tasks == {} and why in source.broken["rows.jsonl:1"]
