"""Replies that try to pass for good ones: every rule of the strict check, held against what would fool a lazier one."""

from __future__ import annotations

from random import Random

import pytest

from openclaw_rl.evals.people import rules
from openclaw_rl.evals.people.wishes import detailed, friendly, natural
from openclaw_rl.tiny import world

GOOD = "First you add the 7 new apples, which is 5 + 7 = 12. Then you take away the 3 that are gone, so 9 are left."


@pytest.mark.parametrize("seed", range(30))
def test_honest_replies_of_the_toy_world_pass_and_its_default_style_does_not(seed: int) -> None:
    rng = Random(seed)
    problem = world.problem(rng)
    for style in world.Style:
        text = world.solution(problem, style, rng)
        assert rules.oddities(text) == ()
        assert rules.is_number(text, problem.answer)
        assert rules.looks_generated(text) is (style is world.Style.AI)
    attempt = world.attempt(problem, rng)
    grade = world.grading(attempt, world.Style.DETAILED, rng)
    assert (rules.grade_in(grade), detailed(grade)) == (world.points(attempt), True)
    assert not detailed(world.grading(attempt, world.Style.AI, rng))
    comment = world.comment(attempt, world.Style.FRIENDLY, rng)
    assert (rules.says_right(comment), friendly(comment)) == (attempt.wrong_step is None, True)
    assert not friendly(world.comment(attempt, world.Style.AI, rng))


@pytest.mark.parametrize(
    "text",
    [
        "## Solution\n5 apples are what she has.",
        "##Solution: 5 apples are what she has.",
        "\u00a0\u2003## Solution\nShe has 5 apples now.",  # odd blanks before it
        "\u200b#\u200b# Solution\nShe has 5 apples now.",  # invisible characters inside it
        "She has *\u200b*5*\u200b* apples now.",
        "She has *\u2060*5*\ufeff* apples now.",
        "She has \uff0a\uff0a5\uff0a\uff0a apples now.",  # look-alikes
        "She has &#42;&#42;5&#42;&#42; apples now.",  # entities
        "She has \U0001d7d3 \U0001d41a\U0001d429\U0001d429\U0001d425\U0001d41e\U0001d42c now.",  # drawn bold letters
        "She has *five* apples, that is 5 in all.",
        "She has __5__ apples now.",
        "She has <b>5</b> apples now.",
        "She has `5` apples now.",
        "She keeps all of them.\u2028- 5 apples are hers.",  # another line end
        "She keeps all of them.\x0b\u00a0* 5 apples are hers.",
        "She keeps them.\n\u2022 5 apples are hers.",
        "1. Add 2 and 3.\n2. That makes 5 apples.",
        "1.\u00a0Add 2 and 3 to get 5 apples.",
        "(1) Add 2 and 3 to get 5 apples.",
        "a) Add 2 and 3 to get 5 apples.",
        "Here is how: 1. Add 2 and 3. 2. That makes 5 apples.",
        "Step 1: add 2 and 3 to get 5 apples.",
        "Final answer: she has 5 apples now.",
        "She has \\boxed{5} apples now.",
        "She has $5$ apples by $2 + 3 = 5$ now.",
        "She has \\(2 + 3\\) apples, so 5.",
        "| a | b |\nShe has 5 apples now.",
        "Solution\n========\nShe has 5 apples now.",
    ],
)
def test_markup_is_found_however_it_is_hidden(text: str) -> None:
    assert rules.looks_generated(text)
    assert not natural(text)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "You multiply 3 * 4 and then 2 * 6, so she has 24 apples.",
        "The total is 1. Then she gets more, so it is 2. She has 2 apples in the end.",
        "She paid $5 and then $6, so it was $11 in all.",
        "I came to 12 - 3 = 9 apples, and -3 would make no sense.",
        "She gave 3.5 of them away and keeps 7.\n\nSo she has 7 apples.",
    ],
)
def test_sums_prices_and_paragraphs_are_no_markup(text: str) -> None:
    assert natural(text)


@pytest.mark.parametrize("text", ["9", "9.", "Nine is 9.", "**9**", "answer 9!", "9 9 9 9", "9\n\n\n\n\n\n\n\n\n"])
def test_a_bare_number_is_no_answer(text: str) -> None:
    assert not natural(text)


@pytest.mark.parametrize(
    "text",
    [
        f"<think>12 - 3</think>{GOOD}",
        f"{GOOD}</think>",
        f"<thin\u200bk>12 - 3 {GOOD}",
        f"<reasoning>{GOOD}</reasoning>",
        f"The user wants plain sentences. {GOOD}",
        f"Okay, so she has 12. {GOOD}",
        f"Hmm, that is hard. {GOOD}",
        f"{GOOD} Wait, but there were more.",
        f"Let me think about it. {GOOD}",
        f"Reasoning: add first.\n{GOOD}",
        f"{GOOD}<|im_end|>",
        f"{GOOD} [user's hint] no markdown",
        f'{GOOD} {{"name": "append", "arguments": {{}}}}',
    ],
)
def test_reasoning_and_control_tokens_that_leak_are_odd(text: str) -> None:
    assert "reasoning leaked" in rules.oddities(text)


def test_a_reply_that_holds_what_was_thought_apart_leaks_it() -> None:
    thought = "First I work out that 5 + 7 is 12, after which I take 3 away."
    assert rules.leaks(f"{thought} So 9 are left.", thought)
    assert not rules.leaks(GOOD, thought)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"{GOOD} {GOOD}", "repeats itself"),
        (GOOD * 40, "too long"),
        ("So it is " + "very " * 20 + "sure that 9 are left.", "repeats itself"),
        (
            "So she has 9 apples left and so she has 9 apples left and so she has 9 apples left and done.",
            "repeats itself",
        ),
        ("word " * 3000, "too long"),
        ("x" * 100_000, "too long"),
        (" " * 3000 + "So 9 apples are left now.", "too long"),
        ("It is 9.", "too short"),
        (" ".join(f"From {number} + 1 = {number + 1} on." for number in range(20)), "too many steps"),
    ],
)
def test_repetition_length_and_endless_steps_are_odd(text: str, what: str) -> None:
    assert what in rules.oddities(text)


def test_of_an_enormous_reply_only_the_beginning_is_read_and_it_never_counts() -> None:
    text = f"{GOOD}\n" + ". 1. A" * 20_000 + "\nSo 9 are left."
    assert len(rules.plain(text)) <= rules.READ_CHARS
    assert "too long" in rules.oddities(text)
    assert not rules.is_number(text, "9")


@pytest.mark.parametrize(
    ("text", "answer", "is_right"),
    [
        ("So 9 are left.", "9", True),
        ("So it is $1,200.", "1200", True),
        ("So it is 1200.00 dollars.", "1,200", True),
        ("The answer is \\boxed{9}, from 12 and 3.", "9", True),
        ("So 12 were there and 9 are left after 3.", "9", False),  # it ends on another number
        ("So 9 or 10 are left.", "10", False),
        ("It is 8, or maybe 9.", "9", False),
        ("It is 9/10 sure that 19 are left.", "9", False),
        ("So -9 are left.", "9", False),
        ("So 0.9 are left.", "9", False),
        ("So nine are left.", "9", False),
        ("", "9", False),
    ],
)
def test_the_answer_is_what_a_reply_ends_on_and_hedging_is_none(text: str, answer: str, is_right: bool) -> None:
    assert rules.is_number(text, answer) is is_right


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("That makes 5 out of 10 points.", 5),
        ("Score: 10/10", 10),
        ("I give it 10 of 10.", 10),
        ("5/10 or 10/10", None),  # both is neither
        ("5 out of 10, well, 10 out of 10.", None),
        ("The answer is 10.", None),
        ("5/100", None),
    ],
)
def test_a_grade_counts_where_there_is_one(text: str, grade: float | None) -> None:
    assert rules.grade_in(text) == grade


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("You wrote 9, so it is right.", True),
        ("You wrote 9, so it is not right.", False),
        ("Result: Incorrect.", False),
        ("That isn’t quite correct, the correct answer is 9.", False),
        ("It is right. No, it is not right.", None),  # both is neither
        ("Great work! You can do this!", None),  # praise says nothing
        ("The right answer is 9.", None),
        ("You made a mistake in step 2.", False),
    ],
)
def test_a_verdict_on_somebodys_work_is_one_or_the_other(text: str, verdict: bool | None) -> None:
    assert rules.says_right(text) is verdict


@pytest.mark.parametrize(
    "text",
    [
        "Great! Wonderful! Keep going!",  # empty praise
        "Great job on this lovely piece of work, well done!",  # no number, so it is about nothing
        "## Great work!\n**Check:** 5 + 7 = 12 is what you wrote here, so right.",
        "You wrote 12 and the last step is 12, so it is right.",  # cold
    ],
)
def test_a_friendly_comment_is_warm_prose_about_the_work(text: str) -> None:
    assert not friendly(text)


@pytest.mark.parametrize(
    "text",
    [
        "10 out of 10 because it is right.",
        "I looked at each step of this. It was all there. That makes 10 out of 10 because I say so.",  # no calculation
        "I looked at each step. The last should be 5 + 7 = 12, as written here. That makes 10 out of 10.",  # no reason
        "- **Check:** because 5 + 7 = 12 it is all right here.\n- **Score:** 10 of 10 are given for it.\n- It is so.",
    ],
)
def test_a_detailed_grade_has_sentences_a_calculation_and_a_reason(text: str) -> None:
    assert not detailed(text)
