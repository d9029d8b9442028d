from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from openclaw_rl.evals.people.users import Student
from openclaw_rl.tiny import world


@pytest.mark.parametrize("number", range(20))
def test_a_student_is_content_with_natural_right_replies_alone(number: int) -> None:
    task = Student(0).task(number)
    natural = world.solution(task.problem, world.Style.NATURAL, Random(number))
    assert task.check(natural).is_met
    assert not task.check(world.solution(task.problem, world.Style.AI, Random(number))).follows
    assert not task.check(task.problem.answer).is_met  # a bare number is no homework
    assert not task.check(natural + "</think>").is_met
    assert not task.check(natural * 20).sane


def test_a_wrong_answer_is_not_met_however_it_is_written() -> None:
    task = Student(0).task(1)
    wrong = replace(task.problem, conclusion=f"the answer is {int(task.problem.answer) + 1}")
    check = task.check(world.solution(wrong, world.Style.NATURAL, Random(0)))
    assert check.follows
    assert not check.right
    assert not check.is_met


def test_a_wrong_answer_is_complained_about_before_the_style() -> None:
    task = Student(0).task(1)
    reply = "**999**"
    said = task.answer(reply, task.check(reply))
    assert "999" in said or "check" in said or "wrong" in said or task.problem.answer in said or "mistake" in said


def test_the_same_seed_and_number_make_the_same_task_and_the_same_words() -> None:
    first, second = Student(3).task(5), Student(3).task(5)
    reply = world.solution(first.problem, world.Style.AI, Random(0))
    assert first.opening == second.opening
    assert [first.answer(reply, first.check(reply)) for _ in range(3)] == [
        second.answer(reply, second.check(reply)) for _ in range(3)
    ]


def test_corrections_change_their_words() -> None:
    task = Student(0).task(2)
    reply = world.solution(task.problem, world.Style.AI, Random(0))
    assert len({task.answer(reply, task.check(reply)) for _ in range(6)}) > 3


def test_measured_problems_are_held_out_and_those_of_sessions_are_not() -> None:
    student = Student(1)
    assert all(student.task(number, held_out=True).problem.is_held_out for number in range(10))
    assert not any(student.task(number).problem.is_held_out for number in range(10))
