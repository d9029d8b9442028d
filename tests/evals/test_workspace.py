"""The folder of a session: what tools may do there, and whether a file came to hold the answer and lost nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from openclaw_rl.core.message import ToolCall
from openclaw_rl.evals.people.workspace import MOST_CHARS, Workspace, workspace

FILES = {"homework.txt": "Homework\n", "timetable.txt": "Monday: maths\n"}


@pytest.fixture
def place() -> Iterator[Workspace]:
    with workspace(FILES) as made:
        yield made


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall("c", name, json.dumps(arguments))


def append(text: str, path: str = "homework.txt") -> ToolCall:
    return call("append", path=path, content=text)


def test_the_tools_read_write_and_append_real_files(place: Workspace) -> None:
    assert place.run(append("Answer: Mia has 9 apples.")) == "Successfully wrote homework.txt"
    assert place.run(call("read", path="homework.txt")) == "Homework\nAnswer: Mia has 9 apples.\n"
    assert place.run(call("write", path="new/one.txt", content="a")) == "Successfully wrote new/one.txt"
    assert place.files()["new/one.txt"] == "a\n"
    assert place.failed == 0


@pytest.mark.parametrize(
    "bad",
    [
        call("read", path="nowhere.txt"),
        call("read", path="../secret.txt"),
        call("write", path="/tmp/outside.txt", content="a"),
        call("read", path="."),
        call("read", path="a\0b"),
        call("read"),
        call("append", path="homework.txt"),
        call("delete", path="homework.txt", content="a"),
        call("write", path="homework.txt", content="a" * (MOST_CHARS + 1)),
        ToolCall("c", "read", "not json"),
        ToolCall("c", "read", "[1]"),
        call("write", path="homework.txt/below.txt", content="a"),
    ],
)
def test_a_call_that_cannot_be_run_says_so_and_changes_nothing(place: Workspace, bad: ToolCall) -> None:
    assert place.run(bad).startswith("Error: ")
    assert place.failed == 1
    assert place.files() == FILES


def test_a_file_that_ends_with_the_answer_and_lost_nothing_counts(place: Workspace) -> None:
    assert not place.holds("homework.txt", "9")
    place.run(append("Answer: Mia has 9 apples."))
    assert place.has_changed
    assert place.holds("homework.txt", "9")


@pytest.mark.parametrize(
    "calls",
    [
        [call("write", path="homework.txt", content="Answer: Mia has 9 apples.")],  # the homework is lost
        [append("Answer: Mia has 8 apples.")],  # a wrong answer
        [append("Answer: 8 or 9 apples.")],  # a guess
        [append("Answer: 9 apples.", path="answers.txt")],  # the wrong file
        [append("Answer: 9 apples."), append("Answer: 9 apples.", path="answers.txt")],  # both
        [append("Answer: 9 apples."), append("9", path="timetable.txt")],  # another file was touched
        [append("Answer: 9 apples."), call("write", path="timetable.txt", content="")],  # another file was lost
        [append("Mia has 9 apples. " * 30)],  # far too much
        [append("<think>12 - 3</think> Answer: Mia has 9 apples.")],  # reasoning in the file
        [append("")],
        [],
    ],
)
def test_anything_else_does_not(place: Workspace, calls: list[ToolCall]) -> None:
    for each in calls:
        place.run(each)
    assert not place.holds("homework.txt", "9")


def test_writing_the_whole_file_anew_with_all_it_held_is_as_good_as_appending(place: Workspace) -> None:
    place.run(call("write", path="homework.txt", content="Homework\nAnswer: 9 apples."))
    assert place.holds("homework.txt", "9")


def test_what_was_there_before_the_mark_is_not_what_was_asked_for(place: Workspace) -> None:
    place.run(append("Answer: Mia has 9 apples."))
    place.mark()
    assert not place.has_changed
    assert not place.holds("homework.txt", "9")
