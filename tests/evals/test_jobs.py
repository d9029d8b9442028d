"""When a first reply counts: wish, answer, sanity, and files left alone until they are asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from openclaw_rl.errors import ConfigError
from openclaw_rl.evals.client import ClientReply
from openclaw_rl.evals.people.agent import AgentAnswer
from openclaw_rl.evals.people.exercises import ToyExercises, read_exercises
from openclaw_rl.evals.people.jobs import Job
from openclaw_rl.evals.people.voices import ScriptedVoice
from openclaw_rl.evals.people.wishes import WishKind
from openclaw_rl.evals.personalization.plan import three
from openclaw_rl.tiny import world

STUDENT, ASSISTANT, TEACHER = three(ToyExercises(), 0)


def said(text: str, **changes: object) -> AgentAnswer:
    return AgentAnswer((replace(ClientReply(text, "t", "shared.0", "stop"), **changes),))  # type: ignore[arg-type]


def good(job: Job) -> str:
    """The reply a user wants."""
    rng = Random(0)
    if job.work is None:
        return world.solution(job.problem, world.Style.NATURAL, rng)
    if job.wish.kind is WishKind.GRADE:
        return world.grading(job.work.attempt, world.Style.DETAILED, rng)
    return world.comment(job.work.attempt, world.Style.FRIENDLY, rng)


@pytest.mark.parametrize("person", [STUDENT, ASSISTANT, TEACHER], ids=lambda person: str(person.name))
@pytest.mark.parametrize("number", range(8))
def test_each_is_content_with_what_they_wish_for(person: object, number: int) -> None:
    job = next(one for one in (STUDENT, ASSISTANT, TEACHER) if one == person).job(number)
    assert job.assess(said(good(job))).is_met


def test_a_reply_that_was_cut_leaked_beside_a_call_or_touched_a_file_is_odd() -> None:
    job = STUDENT.job(1)
    text = good(job)
    assert job.assess(said(text, finish="length")).odd == ("cut off",)
    thought = ClientReply("<think>12 - 3</think>", "t", "shared.0", "tool_calls")
    assert job.assess(AgentAnswer((thought, *said(text).replies))).odd == ("reasoning leaked",)
    assert job.assess(AgentAnswer(said(text).replies, changed_files=True)).odd == ("changed a file unasked",)
    assert job.assess(AgentAnswer(said(text).replies, failed_calls=3)).odd == ("failing tools",)
    assert not job.assess(said(text, finish="length")).is_met


def test_a_solution_that_says_only_its_result_shows_no_steps() -> None:
    job = STUDENT.job(1)
    conclusion = f"So we see that {job.problem.conclusion}."
    assert job.assess(said(conclusion)).right
    assert job.assess(said(conclusion)).odd == ("no steps",)


def test_reasoning_that_is_repeated_in_the_reply_is_odd_and_reasoning_apart_is_not() -> None:
    job = STUDENT.job(1)
    text = good(job)
    assert job.assess(said(text, reasoning="Some other thought about the numbers in this problem.")).is_met
    assert job.assess(said(text, reasoning=text)).odd == ("reasoning leaked",)


def wrong_work(person_number: int) -> Job:
    """A grading job on work that is wrong."""
    return next(
        job for job in map(ASSISTANT.job, range(person_number, 50)) if job.work is not None and not job.work.is_right
    )


def test_a_grade_must_be_the_right_one_and_agree_with_what_is_said_beside_it() -> None:
    job = wrong_work(0)
    text = good(job)
    assert job.assess(said(text)).right
    assert not job.assess(said(text.replace("5 out of 10", "10 out of 10"))).right
    assert not job.assess(said(text.replace("not right", "right"))).right  # 5 of 10 for work that is called right
    assert not job.assess(said(f"{text} Or is it 10/10?")).right


def test_a_comment_must_say_whether_the_work_was_right() -> None:
    job = next(job for job in map(TEACHER.job, range(50)) if job.work is not None and not job.work.is_right)
    text = good(job)
    assert job.assess(said(text)).right
    assert not job.assess(said(text.replace("not right", "right"))).right
    assert not job.assess(said("Great that you tried this! You wrote 9 and you can do this!")).right


async def test_what_is_wrong_is_said_in_this_order_answer_wish_oddity() -> None:
    job, voice = STUDENT.job(1), ScriptedVoice()
    wrong = job.assess(said("**999**"))
    words = await voice.correction(job, "**999**", wrong)
    assert words in {world.wrong(job.problem, Random(seed), said="999") for seed in range(200)}
    styled = world.solution(job.problem, world.Style.AI, Random(0))
    words = await voice.correction(job, styled, job.assess(said(styled)))
    assert words in {world.correction(world.Style.NATURAL, Random(seed)) for seed in range(20_000)}
    text = good(job)
    assert "whole answer" in await voice.correction(job, text, job.assess(said(text, finish="length")))


async def test_a_wrong_grade_is_corrected_with_the_right_one_or_none() -> None:
    job = wrong_work(0)
    text = good(job).replace("5 out of 10", "10 out of 10")
    heard = [await ScriptedVoice().correction(job, text, job.assess(said(text))) for _ in range(60)]
    assert any("should be 5" in words or "must be 5" in words for words in heard)
    assert not any("{" in words for words in heard)


def jsonl(folder: Path, lines: list[dict[str, str]]) -> Path:
    file = folder / "problems.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines), "utf-8")
    return file


def test_problems_of_a_file_are_read_in_both_forms_and_some_are_held_out(tmp_path: Path) -> None:
    told = [
        {
            "question": f"Tom has {n} and gets 1,00{n % 10}. How many?",
            "answer": f"{n}+1000=<<{n}+1000=1>>\n#### 1,0{n:02}",
        }
        for n in range(10, 40)
    ]
    told += [{"question": "Half of 5?", "answer": "It is 2.5.\n#### 2.5"}]  # no whole number, so left out
    told += [{"question": "What is 2 + 3?", "answer": "5", "solution": "2 + 3 = <<2+3=5>>5\n#### 5"}]
    exercises = read_exercises(jsonl(tmp_path, told))
    assert len(exercises.problems) + len(exercises.measured) == 31
    assert not {p.question for p in exercises.problems} & {p.question for p in exercises.measured}
    everything = {problem.question: problem for problem in (*exercises.problems, *exercises.measured)}
    assert everything["What is 2 + 3?"].answer == "5"
    assert everything["What is 2 + 3?"].steps == ("2 + 3 = 5.",)
    assert everything["Tom has 12 and gets 1,002. How many?"].answer == "1012"
    assert three(exercises, 0)[1].job(1).opening.endswith("Give points out of 10.")


def test_wrong_work_on_a_files_problem_ends_on_another_number_and_right_work_does_not(tmp_path: Path) -> None:
    told = [
        {"question": f"What is {n} + 3?", "answer": f"{n} + 3 = <<{n}+3={n + 3}>>{n + 3}\n#### {n + 3}"}
        for n in range(30)
    ]
    exercises = read_exercises(jsonl(tmp_path, told))
    works = [exercises.work(Random(seed), held_out=False) for seed in range(40)]
    assert {work.is_right for work in works} == {True, False}
    for work in works:
        assert (work.attempt.answer == work.attempt.problem.answer) is work.is_right
        assert work.attempt.text.endswith(f"Answer: {work.attempt.answer}.")
        if not work.is_right:
            assert f"= {work.attempt.answer}." in work.attempt.text  # the wrong result stands in the step, too


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "holds 0 problems"),
        ("{", "not a problem in GSM8K's format"),
        ('{"question": "?"}', "not a problem in GSM8K's format"),
    ],
)
def test_a_file_that_cannot_serve_is_refused_with_the_reason(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=problem):
        read_exercises(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_exercises(tmp_path / "none.jsonl")
