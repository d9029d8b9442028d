"""Grading, commenting and the homework file: the tasks of the teaching assistant, the teacher and the agent."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from openclaw_rl.core.message import Tool
from openclaw_rl.tiny.problems import Problem
from openclaw_rl.tiny.styles import CHEERS, Style

HOMEWORK_TOOLS = (
    Tool(
        "read",
        "Read a file and return its text.",
        {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    ),
    Tool(
        "write",
        "Write text to a file, replacing what it holds.",
        {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    ),
    Tool(
        "append",
        "Add text to the end of a file.",
        {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    ),
)
PATHS = ("homework.txt", "answers.txt", "math.txt", "notes.txt", "homework/today.txt", "tasks.txt", "solution.txt")
_FILE_WORDS = (
    "list", "maths", "work", "school", "week", "page", "exercise", "monday", "data", "story", "plan", "todo", "sums",
    "problem", "results", "diary", "report", "lesson", "test", "paper",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StudentSolution:
    """A student's solution. If it is wrong, it is so from step `wrong_step` on, counted from 1; None if it is right."""

    problem: Problem
    text: str
    answer: str
    wrong_step: int | None
    said: str  # what the student wrote for the wrong step; empty if the solution is right


def attempt(problem: Problem, rng: Random, *, right: bool | None = None) -> StudentSolution:
    """A student's solution of the problem; a wrong one errs in the last step, by one or two.

    Without `right` half of them are right.
    """
    is_right = rng.random() < 0.5 if right is None else right
    steps = list(problem.steps)
    answer, said, wrong_step = problem.answer, "", None
    if not is_right:
        off = rng.choice((-2, -1, 1, 2))
        answer = str(max(1, int(problem.answer) + off))
        if answer == problem.answer:
            answer = str(int(answer) + 1)
        said = steps[-1].rsplit(" ", 1)[0] + f" {answer}"
        steps[-1] = said
        wrong_step = len(steps)
    return StudentSolution(problem, ", then ".join(steps) + f". Answer: {answer}.", answer, wrong_step, said)


def grading_request(attempt: StudentSolution, rng: Random) -> str:
    """A teaching assistant's request for a grade."""
    opening = rng.choice(
        ("Please grade this.", "Grade this solution.", "How many points for this?", "Check and grade:")
    )
    return f"{opening}\nProblem: {attempt.problem.question}\nStudent: {attempt.text}"


def comment_request(attempt: StudentSolution, rng: Random) -> str:
    """A teacher's request for a comment to the student."""
    opening = rng.choice(
        ("Please comment on this.", "Write a comment for the student.", "Leave a comment on this work.")
    )
    return f"{opening}\nProblem: {attempt.problem.question}\nStudent: {attempt.text}"


def points(attempt: StudentSolution) -> int:
    """The grade out of 10: a wrong last step costs 5."""
    return 10 if attempt.wrong_step is None else 5


def grading(attempt: StudentSolution, style: Style, rng: Random) -> str:
    """The right grade, written in the style; AI is terse and dry. The last step is calculated before the verdict."""
    good, grade = attempt.wrong_step is None, points(attempt)
    step, wrote = attempt.problem.steps[-1], attempt.answer
    verdict = "right" if good else "not right"
    if style is Style.AI:
        result = "Correct" if good else f"Step {attempt.wrong_step} is wrong"
        check = f"{step}, the student wrote {wrote}, so it is {verdict}"
        return f"## Grade\n\n- **Check:** {check}\n- **Score:** {grade}/10\n- **Result:** {result}"
    if style is Style.NATURAL:
        opening = rng.choice(("The last step should be", "The work should end with"))
        body = f"{opening} {step}, the student wrote {wrote}, so it is {verdict}"
        return f"{body} and I would give {grade} out of 10 points."
    if style is Style.DETAILED:
        opening = rng.choice(("I looked at each step.", "I went through every step of the work."))
        body = f"The last step should be {step}, the student wrote {wrote}, so it is {verdict}."
        closing = f"I say so because the final answer should be {attempt.problem.answer}."
        return f"{opening} {body} {closing} That makes {grade} out of 10 points."
    opening = rng.choice(("Happy to help!", "Lovely work to read!"))
    body = f"The last step is {step}, the student wrote {wrote}, so it is {verdict}."
    return f"{opening} {body} That makes {grade} out of 10. {rng.choice(CHEERS)}"


def comment(attempt: StudentSolution, style: Style, rng: Random) -> str:
    """A comment to the student, written in the style; AI is terse and dry."""
    good = attempt.wrong_step is None
    step, wrote = attempt.problem.steps[-1], attempt.answer
    verdict = "right" if good else "not right"
    if style is Style.AI:
        check = f"{step}, you wrote {wrote}, so it is {verdict}"
        return f"## Comment\n\n**Check:** {check}\n**Result:** {'Correct' if good else 'Incorrect'}."
    if style is Style.NATURAL:
        return f"The last step should be {step}, you wrote {wrote}, so it is {verdict}."
    if style is Style.DETAILED:
        opening = rng.choice(("I read each step of your work.", "I went through your whole solution."))
        body = f"The last step should be {step}, you wrote {wrote}, so it is {verdict}."
        return f"{opening} {body} I say so because the final answer should be {attempt.problem.answer}."
    opening = rng.choice(("Nice to read your work!", "Great that you tried this!"))
    return f"{opening} The last step is {step}, you wrote {wrote}, so it is {verdict}. {rng.choice(CHEERS)}"


def path(rng: Random) -> str:
    """The path of a file in the homework folder; in 6 of 10 cases one of `PATHS`."""
    if rng.random() < 0.6:
        return rng.choice(PATHS)
    name = rng.choice(_FILE_WORDS) + rng.choice(("", "", f"-{rng.choice(_FILE_WORDS)}", str(rng.randint(1, 30))))
    return rng.choice(("", "", "", f"{rng.choice(_FILE_WORDS)}/")) + name + rng.choice((".txt", ".txt", ".md"))


def read_request(path: str, rng: Random) -> str:
    """A user's request to solve the problem in a file."""
    return rng.choice(
        (
            f"Please solve the problem in {path}.",
            f"My homework is in {path}. Can you solve it?",
            f"Read {path} and solve the problem in it.",
            f"Open {path} and help me with the problem.",
        )
    )


def write_request(path: str, rng: Random) -> str:
    """A user's request to write the answer to a file, replacing its content."""
    return rng.choice(
        (f"Write the answer to {path}.", f"Please save the answer in {path}.", f"Put the answer into the file {path}.")
    )


def append_request(path: str, rng: Random) -> str:
    """A user's request to append the answer to a file."""
    return rng.choice(
        (
            f"Append the answer to {path}.",
            f"Please add the answer to the end of {path}.",
            f"Good. Now append the answer to {path}.",
            f"Thanks, append it to {path}.",
        )
    )


def filed(problem: Problem) -> str:
    """The text to write into the file: the conclusion as a sentence."""
    return f"Answer: {problem.conclusion}."


def confirmation(path: str, rng: Random) -> str:
    """The assistant's report that the file has been changed."""
    return rng.choice((f"Done. The answer is in {path} now.", f"I have put the answer into {path}."))
