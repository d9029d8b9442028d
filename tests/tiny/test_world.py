"""The toy world keeps its promises: right solutions, strict styles, and a held-out side nobody trains on."""

from __future__ import annotations

import json
from random import Random

import pytest

from openclaw_rl.tiny import wishes
from openclaw_rl.tiny.dialogues import file_session, session
from openclaw_rl.tiny.world import (
    HOMEWORK_TOOLS,
    Style,
    answer_in,
    attempt,
    comment,
    correction,
    follows,
    grading,
    is_right,
    problem,
    solution,
    thanks,
    wish_hint,
    wrong,
)


def test_every_step_of_a_problem_is_true_and_the_last_one_gives_the_answer() -> None:
    rng = Random(1)
    for _ in range(500):
        made = problem(rng)
        assert made.answer == made.steps[-1].split(" = ")[1]
        assert 1 <= len(made.steps) <= 2
        assert int(made.answer) > 0
        for step in made.steps:
            left, right = step.split(" = ")
            first, sign, second = left.split(" ")
            one, two = int(first), int(second)
            assert {"+": one + two, "-": one - two, "*": one * two}[sign] == int(right)


@pytest.mark.parametrize("style", list(Style))
def test_a_solution_is_right_and_follows_its_own_style(style: Style) -> None:
    rng = Random(2)
    for index in range(300):
        made = problem(rng, held_out=index % 2 == 0)
        text = solution(made, style, rng)
        assert follows(text, style)
        assert is_right(made, text)
        assert follows(text, Style.AI) is (style is Style.AI)


@pytest.mark.parametrize("style", list(Style))
def test_a_grade_and_a_comment_follow_their_style(style: Style) -> None:
    rng = Random(3)
    for _ in range(200):
        tried = attempt(problem(rng), rng)
        assert follows(grading(tried, style, rng), style)
        assert follows(comment(tried, style, rng), style)


def test_a_wrong_attempt_never_gives_the_right_answer() -> None:
    rng = Random(4)
    for _ in range(300):
        tried = attempt(problem(rng), rng, right=False)
        assert tried.answer != tried.problem.answer
        assert tried.wrong_step == len(tried.problem.steps)


def test_held_out_problems_and_training_problems_are_apart() -> None:
    rng = Random(5)
    seen = {problem(rng).question for _ in range(3000)}
    kept = {problem(rng, held_out=True).question for _ in range(300)}
    assert not seen & kept


def test_dialogues_for_training_hold_no_held_out_problem() -> None:
    rng = Random(6)
    kept = [problem(rng, held_out=True).question for _ in range(200)]
    said = "".join(item.text for _ in range(150) for item in session(rng).messages)
    assert not [question for question in kept if question in said]


@pytest.mark.parametrize("style", list(Style))
def test_held_out_corrections_are_wordings_that_training_never_uses(style: Style) -> None:
    rng = Random(7)
    seen = {correction(style, rng) for _ in range(3000)}
    kept = {correction(style, rng, held_out=True) for _ in range(200)}
    assert len(kept) > 10
    assert not seen & kept


def test_wishes_for_different_styles_never_read_the_same() -> None:
    rng = Random(8)
    for say in (correction, wish_hint):
        spoken = {style: {say(style, rng) for _ in range(400)} for style in Style}
        for style in Style:
            for other in Style:
                assert style is other or not spoken[style] & spoken[other]


def test_a_judges_hint_states_its_own_style_alone() -> None:
    rng = Random(9)
    for style in Style:
        said = wishes.stated_wish(style, rng)
        assert [other for other in Style if wishes.states(said, other)] == [style]


@pytest.mark.parametrize(
    "text",
    [
        "12",
        "## Solution\n\nMia has 12 apples now.",
        "So **Mia** has 12 apples now.",
        "1. Add the apples to get 12.",
        "- Mia has 12 apples in the end.",
        "Mia has \\boxed{12} apples in the end.",
        "Mia has $12$ apples in the end.",
        "so 5 + 7 = 12</think>Mia has 12 apples now.",
        "Mia has many apples in the end.",
    ],
)
def test_the_natural_style_is_strict(text: str) -> None:
    assert not follows(text, Style.NATURAL)


def test_the_natural_style_takes_plain_sentences() -> None:
    assert follows("Mia starts with 5 apples and gets 7 more. So Mia has 12 apples now.", Style.NATURAL)


def test_the_answer_is_the_last_boxed_number_or_else_the_last_number() -> None:
    assert answer_in("So \\boxed{3}, no, \\boxed{12}. Next time 4.") == "12"
    assert answer_in("First 5 + 7 = 12. So Mia has 12 apples.") == "12"
    assert answer_in("It was 3</think>I cannot say.") is None


def test_a_complaint_may_name_what_was_said_and_thanks_are_thanks() -> None:
    rng = Random(10)
    made = problem(rng)
    complaints = {wrong(made, rng, said="99") for _ in range(200)}
    assert any("99" in text for text in complaints)
    assert any(made.answer in text for text in complaints)
    assert "thank" in thanks(Random(0)).lower()


def test_a_file_session_calls_only_offered_tools_and_every_call_gets_a_result() -> None:
    rng = Random(11)
    names = {tool.name for tool in HOMEWORK_TOOLS}
    for _ in range(50):
        messages = file_session(rng).messages
        calls = [call for item in messages for call in item.tool_calls]
        answered = {item.tool_call_id for item in messages if item.tool_call_id}
        assert calls
        assert {call.id for call in calls} == answered
        assert {call.name for call in calls} <= names
        assert all("path" in json.loads(call.arguments) for call in calls)
