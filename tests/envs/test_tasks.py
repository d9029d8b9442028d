"""Tasks read, built, solved and judged; the bad ones named, and nothing else stopped by them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.envs.screen.desktop.desktop import missing_programs
from openclaw_rl.envs.task import Failure
from openclaw_rl.envs.tasks.check import TaskReport, TaskVerdict, check_sources
from openclaw_rl.envs.tasks.dockerfile import parse, recipe_of
from openclaw_rl.envs.tasks.harbor import FolderTasks
from openclaw_rl.envs.tasks.source import Attempt, UnsupportedTaskError
from openclaw_rl.envs.tasks.sources import find_sources
from openclaw_rl.errors import TaskError

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "tasks"
GOOD = {
    "task.toml": 'version = "1.0"\n[verifier]\ntimeout_sec = 5.0\n',
    "instruction.md": "Write `right` to /app/answer.",
    "environment/Dockerfile": "FROM debian:bookworm-slim\nENV NAME=ann\nWORKDIR /app\nRUN echo $NAME > given\n",
    "tests/test.sh": 'if [ "$(cat answer)" = right ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n',
    "solution/solve.sh": "[ $(cat given) = ann ] && echo right > answer\n",
}

DOCKERFILE = r"""# a
FROM debian:12
RUN apt-get update && \
  # why
  apt-get install -y git python3-yaml && rm -rf /var/lib/apt/lists/* \
  && echo done
RUN <<EOF
first
second
EOF
ENV A=1 B="two words"
ARG C=x
WORKDIR /app/${C}
COPY --chmod=755 run.sh sub/
CMD ["bash"]
"""


def laid(folder: Path, **changed: str | None) -> Path:
    """A task; what is None is left out."""
    names = {name.rpartition("/")[2].partition(".")[0]: name for name in GOOD}
    for name, text in {**GOOD, **{names[key]: text for key, text in changed.items()}}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return folder


async def checked(folder: Path, boxes: Boxes) -> TaskReport:
    return await check_sources(find_sources(folder), boxes, at_once=2, tell=lambda _: None)


async def test_each_kind_of_bad_task_is_named_and_the_good_ones_are_checked(walled: Boxes, tmp_path: Path) -> None:
    laid(tmp_path / "good")
    laid(tmp_path / "cannot-be-read", task="version =")
    laid(tmp_path / "without-tests", test=None)
    laid(tmp_path / "does-not-build", Dockerfile="FROM debian\nRUN echo sorry >&2; exit 3\n")
    laid(tmp_path / "wants-an-image", Dockerfile="FROM node:20\n")
    laid(
        tmp_path / "wants-packages", Dockerfile="FROM debian\nRUN apt-get update && apt-get install -y no-such-thing\n"
    )
    laid(tmp_path / "solved-already", test="echo 1 > /logs/verifier/reward.txt\n")
    laid(tmp_path / "solution-fails", solve="echo wrong > answer\n")
    laid(tmp_path / "no-solution", solve=None)
    laid(tmp_path / "grader-crashes", test="exit 9\n")
    laid(tmp_path / "grader-hangs", task="[verifier]\ntimeout_sec = 1.0\n", test="sleep 600\n")
    laid(tmp_path / "grader-babbles", test="echo maybe > /logs/verifier/reward.txt\n")
    report = await checked(tmp_path, walled)
    found = {one.id: (one.verdict, one.reason) for one in report.checked}
    assert {name: verdict for name, (verdict, _) in found.items()} == {
        "good": TaskVerdict.SOUND,
        "cannot-be-read": TaskVerdict.BROKEN,
        "without-tests": TaskVerdict.BROKEN,
        "does-not-build": TaskVerdict.BROKEN,
        "wants-an-image": TaskVerdict.SKIPPED,
        "wants-packages": TaskVerdict.SKIPPED,
        "solved-already": TaskVerdict.START_PASSES,
        "solution-fails": TaskVerdict.SOLUTION_FAILS,
        "no-solution": TaskVerdict.NO_SOLUTION,
        "grader-crashes": TaskVerdict.GRADER_FAILS,
        "grader-hangs": TaskVerdict.GRADER_FAILS,
        "grader-babbles": TaskVerdict.GRADER_FAILS,
    }
    assert "tests/test.sh is missing" in found["without-tests"][1]
    assert "ended with status 3: sorry" in found["does-not-build"][1]
    assert "FROM node:20" in found["wants-an-image"][1]
    assert "no-such-thing" in found["wants-packages"][1]
    assert "timeout" in found["grader-hangs"][1]
    assert not report.is_good
    assert report.counts["grader fails"] == 3


async def test_a_grader_that_is_known_to_work_is_broken_by_the_agent(walled: Boxes, tmp_path: Path) -> None:
    laid(tmp_path / "t", test=f"[ -e crash ] && exit 9\n{GOOD['tests/test.sh']}")
    (source,) = find_sources(tmp_path)
    assert isinstance(source, FolderTasks)
    task = source.tasks["t"]
    box = await source.start(task, walled)
    await box.exec("touch crash", timeout_s=20)
    before = await source.judge(task, Attempt(box))
    assert (before.reward, before.failure) == (None, Failure.ENVIRONMENT)
    assert (await check_sources([source], walled, at_once=1, tell=lambda _: None)).is_good
    after = await source.judge(task, Attempt(box))
    assert (after.reward, after.failure) == (0.0, Failure.AGENT)


async def test_judging_leaves_the_box_as_it_is_and_believes_no_verdict_but_its_own(
    walled: Boxes, tmp_path: Path
) -> None:
    laid(tmp_path / "t")
    (source,) = find_sources(tmp_path)
    task = source.tasks["t"]
    box = await source.start(task, walled)
    assert box is not None
    await box.exec(
        "mkdir -p /logs/verifier /app/mine; echo 1 > /logs/verifier/reward.txt; ln -s /app/mine /tests", timeout_s=20
    )
    assert (await source.judge(task, Attempt(box))).reward == 0.0
    assert (await box.exec("ls /app/mine; find / -xdev -name test.sh", timeout_s=60)).stdout.text == ""
    await source.solve(task, Attempt(box))
    assert (await source.judge(task, Attempt(box))).is_success


async def test_the_examples_are_sound_wherever_boxes_have_walls(walled: Boxes) -> None:
    report = await checked(EXAMPLES, walled)
    has_desktops = not missing_programs()  # two of the four are done on one
    assert report.counts == ({"sound": 4} if has_desktops else {"sound": 2, "box failed": 2})


async def test_code_that_leaves_before_its_tests_end_is_not_rewarded(boxes: Boxes) -> None:
    (source,) = find_sources(EXAMPLES / "code")
    (task,) = source.tasks.values()
    box = await source.start(task, boxes)
    assert box is not None
    await box.write("solution.py", b"import os\nos._exit(0)\n")
    assert (await source.judge(task, Attempt(box))).reward == 0.0
    await source.solve(task, Attempt(box))
    assert (await source.judge(task, Attempt(box))).is_success


async def test_terminal_bench_1_is_read_and_its_fetching_test_script_replaced(walled: Boxes, tmp_path: Path) -> None:
    folder = tmp_path / "hello"
    (folder / "tests").mkdir(parents=True)
    (folder / "task.yaml").write_text(
        "instruction: |-\n  Write right to /app/answer.\nmax_agent_timeout_sec: 60\ndifficulty: easy\n"
    )
    (folder / "Dockerfile").write_text("FROM ubuntu:24.04\nWORKDIR /app\n")
    (folder / "run-tests.sh").write_text('[ "$(cat answer)" = right ]\n')
    (folder / "solution.sh").write_text("echo right > answer\n")
    report = await checked(tmp_path, walled)
    assert report.counts == {"sound": 1}
    (folder / "docker-compose.yaml").write_text("services:\n  client: {}\n  database: {}\n")
    (other,) = (await checked(tmp_path, walled)).checked
    assert (other.verdict, other.reason) == (TaskVerdict.SKIPPED, "it needs several containers: client, database")


async def test_tasks_that_need_a_root_are_skipped_where_there_is_none(tmp_path: Path) -> None:
    from openclaw_rl.envs.box.plain import PlainBoxes

    laid(tmp_path / "t")
    boxes = PlainBoxes.open()
    (one,) = (await checked(tmp_path, boxes)).checked
    await boxes.aclose()
    assert (one.verdict, one.reason) == (TaskVerdict.SKIPPED, "the task needs a box with its own root file system")


def test_rows_that_are_broken_are_named_by_their_line(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "question": "1+1?", "answer": "2"},
        {"id": "b", "question": "?"},
        {"id": "a", "question": "?", "answer": "3"},
    ]
    lines = [json.dumps(row) for row in rows] + ["{", json.dumps({"id": "c", "question": "?", "answer": "many"})]
    (tmp_path / "test.jsonl").write_text("\n".join(lines))
    (source,) = find_sources(tmp_path)
    assert list(source.tasks) == ["a"]
    assert [name for name in source.broken] == ["test.jsonl:2", "test.jsonl:3", "test.jsonl:4", "test.jsonl:5"]
    assert "`answer` is missing" in source.broken["test.jsonl:2"]


def test_a_folder_without_tasks_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"task\.toml or task\.yaml"):
        find_sources(tmp_path)


def test_a_dockerfile_is_read_with_its_joined_lines_and_here_documents(tmp_path: Path) -> None:
    assert [one.keyword for one in parse(DOCKERFILE)] == ["FROM", "RUN", "RUN", "ENV", "ARG", "WORKDIR", "COPY", "CMD"]
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "run.sh").write_text("")
    recipe = recipe_of(tmp_path)
    assert recipe.packages == ["git", "python3-yaml"]
    assert [step.command for step in recipe.steps[:2]] == ["echo done", "first\nsecond"]
    assert (recipe.env, recipe.workdir) == ({"A": "1", "B": "two words"}, "/app/x")
    assert (recipe.steps[-1].target, recipe.steps[-1].mode) == ("/app/x/sub/run.sh", "755")


@pytest.mark.parametrize(
    "line",
    [
        "FROM a AS b",
        "COPY --from=b x y",
        "ADD https://x.invalid/y /y",
        "USER ann",
        "ONBUILD RUN true",
        "FROM alpine",
        "COPY --chown=ann Dockerfile /",
    ],
)
def test_what_needs_an_engine_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    first = "" if line.startswith("FROM") else "FROM debian\n"
    (tmp_path / "Dockerfile").write_text(f"{first}{line}\n")
    with pytest.raises(UnsupportedTaskError, match=f"line {2 if first else 1} of the Dockerfile") as problem:
        recipe_of(tmp_path)
    assert line.split(maxsplit=1)[0] in problem.value.problem


def test_a_dockerfile_copies_nothing_from_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "Dockerfile").write_text("FROM debian\nCOPY ../secret /\n")
    (tmp_path / "secret").write_text("")
    with pytest.raises(TaskError, match="not in its folder"):
        recipe_of(tmp_path / "in")
