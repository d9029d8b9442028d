"""Sources of word problems (the toy world, or a file in GSM8K's form), and students' work on them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from openclaw_rl.errors import ConfigError
from openclaw_rl.evals.people import rules
from openclaw_rl.tiny import world
from openclaw_rl.tiny.problems import is_one_in

HELD_OUT_IN = 3  # one in this many problems of a file is kept for measuring
FULL_MARKS = 10


@dataclass(frozen=True, slots=True)
class GradedWork:
    """A student's work on a problem, and the range of fair grades out of ten."""

    attempt: world.StudentSolution
    grades: tuple[float, float]  # from, to

    @property
    def is_right(self) -> bool:
        """Whether the student's work is right."""
        return self.attempt.wrong_step is None


class Exercises(Protocol):
    """A source of problems. Held-out problems are never used in a session."""

    @property
    def name(self) -> str:
        """Its name in reports."""

    @property
    def marking(self) -> str:
        """Text added to a request for a grade, so that points out of ten are meant."""

    def problem(self, rng: Random, *, held_out: bool) -> world.Problem:
        """A problem."""

    def work(self, rng: Random, *, held_out: bool) -> GradedWork:
        """A student's work, right in half of the cases."""


@dataclass(frozen=True, slots=True)
class ToyExercises:
    """The bundled model's own kind: small numbers, one or two steps, and grades that are 10 or 5."""

    name: str = "toy world"
    marking: str = ""  # the bundled model only knows points out of ten

    def problem(self, rng: Random, *, held_out: bool) -> world.Problem:
        """A fresh problem; held-out ones come from the part of the world that is never taught."""
        return world.problem(rng, held_out=held_out)

    def work(self, rng: Random, *, held_out: bool) -> GradedWork:
        """Right work is worth 10, work that errs in the last step 5."""
        attempt = world.attempt(self.problem(rng, held_out=held_out), rng)
        grade = float(world.points(attempt))
        return GradedWork(attempt, (grade, grade))


@dataclass(frozen=True, slots=True)
class FileExercises:
    """Problems of a JSONL file: `question`, and `answer` ending in `#### 42` (or `answer` and `solution` apart)."""

    name: str
    problems: tuple[world.Problem, ...]
    measured: tuple[world.Problem, ...]
    marking: str = "\nGive points out of 10."

    def problem(self, rng: Random, *, held_out: bool) -> world.Problem:
        """A problem of the file; the questions' digests choose the held-out part."""
        return rng.choice(self.measured if held_out else self.problems)

    def work(self, rng: Random, *, held_out: bool) -> GradedWork:
        """The file's solution, or the same with a wrong result; wrong work deserves less than 9 of 10."""
        problem = self.problem(rng, held_out=held_out)
        steps = [*problem.steps]
        if rng.random() < 0.5:
            text = f"{' '.join(steps)} Answer: {problem.answer}."
            return GradedWork(world.StudentSolution(problem, text, problem.answer, None, ""), (FULL_MARKS, FULL_MARKS))
        value = rules.number_in(problem.answer)
        assert value is not None
        wrong = str(int(value) + rng.choice((-2, -1, 1, 2, 10)))
        steps[-1] = _with_result(steps[-1], problem.answer, wrong)
        text = f"{' '.join(steps)} Answer: {wrong}."
        return GradedWork(world.StudentSolution(problem, text, wrong, len(steps), steps[-1]), (0.0, 8.5))


def read_exercises(file: Path) -> FileExercises:
    """The problems of a file whose answer is a whole number. Raises ConfigError if the file is not usable."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError as problem:
        raise ConfigError(
            f"{file} cannot be read: {problem.strerror}", fix="name a JSONL file with --problems"
        ) from problem
    found = [_problem(line, f"{file}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    whole = [problem for problem in found if problem is not None]
    measured = tuple(problem for problem in whole if is_one_in(HELD_OUT_IN, problem.question))
    rest = tuple(problem for problem in whole if not is_one_in(HELD_OUT_IN, problem.question))
    if not measured or not rest:
        raise ConfigError(
            f"{file} holds {len(whole)} problems", fix="give it a few dozen: a third of them is used for measuring only"
        )
    return FileExercises(file.name, rest, measured)


def _problem(line: str, where: str) -> world.Problem | None:
    """The problem of a line; None if its answer is not a whole number."""
    try:
        body = json.loads(line)
        question, answer, solution = str(body["question"]), str(body["answer"]), str(body.get("solution", ""))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ConfigError(
            f"{where} is not a problem in GSM8K's format: {problem}",
            fix='write {"question": ..., "answer": "... #### 42"}',
        ) from problem
    told, _, result = (solution if "####" in solution else answer).rpartition("####")
    value = rules.number_in(result.strip() or answer)
    if value is None or value.denominator != 1:
        return None
    number = str(int(value))
    steps = tuple(step for step in (_calculated(item) for item in told.splitlines()) if step) or (
        f"The result is {number}.",
    )
    return world.Problem(question.strip(), number, steps, steps, f"the answer is {number}", "", "")


def _calculated(step: str) -> str:
    """A line of a solution as a sentence, without the calculator's marks."""
    bare = re.sub(r"<<[^>]*>>", "", step).strip()
    return bare if not bare or bare.endswith((".", "!", "?")) else f"{bare}."


def _with_result(step: str, answer: str, wrong: str) -> str:
    """The step with its last mention of the answer changed; a wrong result is appended if it has none."""
    said = re.compile(rf"(?<![\d.,]){re.escape(answer)}(?!\d)(?!.*(?<![\d.,]){re.escape(answer)}(?!\d))")
    bare = re.sub(r"(?<=\d),(?=\d{3})", "", step)
    changed = said.sub(wrong, bare, count=1)
    return changed if changed != bare else f"{step} So it is {wrong}."
