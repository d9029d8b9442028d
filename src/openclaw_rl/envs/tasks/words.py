"""Word problems and competition mathematics in rows: a question, and an answer that is a number or a formula."""

from __future__ import annotations

from hashlib import blake2b
from importlib.util import find_spec
from math import isfinite
from pathlib import Path

from openclaw_rl.envs.answers.exact import quantity_of
from openclaw_rl.envs.answers.judge import is_formula, judged
from openclaw_rl.envs.answers.verify import MathChecker
from openclaw_rl.envs.box.sandbox import Boxes, Sandbox
from openclaw_rl.envs.task import Score, Split, Task, TaskTimeouts
from openclaw_rl.envs.tasks.rows import Row, read_rows
from openclaw_rl.envs.tasks.source import Attempt, ReadTasks
from openclaw_rl.errors import TaskError

QUESTIONS = ("question", "problem", "Problem", "prompt")
ANSWERS = ("answer", "Answer", "expected_answer", "label")
PASSED_ON = ("source", "licence", "family", "data_source", "url", "year", "tools", "preload", "mcp_servers")
IDS = ("id", "ID", "unique_id", "problem_id")
# What DAPO-Math puts around each problem: the environment says how to write the answer.
DAPO_BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem."
)
DAPO_AFTER = 'Remember to put your answer on its own line after "Answer:".'


class WordTasks(ReadTasks):
    """The problems of a file. They need no box: answers are judged as text. AIME files and folders are for testing."""

    def __init__(self, path: Path) -> None:
        folder = path.parent.parent if path.parent.name == "data" else path.parent
        is_test = "test" in path.stem or "aime" in f"{folder.name} {path.stem}".lower()
        split = Split.TEST if is_test else Split.TRAIN
        self._checker = MathChecker()
        self._rows, broken = read_rows(path, lambda row: read_words(row, split, path.stem))
        super().__init__(folder.name, {name: task for name, (task, _, _) in self._rows.items()}, broken)

    async def start(self, task: Task, boxes: Boxes) -> Sandbox | None:
        """None: a question needs no box."""
        return None

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        """The solution of the row as the answer."""
        return Attempt(attempt.box, self._rows[task.id][2])

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        """The verdict on the answer: on its marked answer, else on its last number."""
        return await judged(attempt.answer, self._rows[task.id][1], self._checker)


def read_words(row: Row, split: Split, file: str) -> tuple[str, tuple[Task, str, str]]:
    """A row of word problems or competition mathematics, with the field names of published files.

    The question: `question`, `problem`, or the user's message of `prompt`. The answer: `answer`, `expected_answer`,
    `label`, or the `ground_truth` of `reward_model`. A row without an id gets a digest of its question as id.
    """
    question, answer = _question(row), _answer(row)
    if quantity_of(answer) is None:
        if not is_formula(answer):
            raise TaskError(f"its answer {answer[:100]!r} is neither a number nor a formula")
        if find_spec("math_verify") is None:
            raise TaskError(f"its answer {answer[:100]!r} is a formula: judging it needs openclaw-rl[math]")
    metadata = {key: row[key] for key in PASSED_ON if key in row}
    name = _id(row) or f"{file}/{blake2b(question.encode('utf-8', 'replace'), digest_size=6).hexdigest()}"
    task = Task(name, question, limits=TaskTimeouts(judge_s=10.0), metadata=metadata, split=split)
    solution = row.get("solution")
    return name, (task, answer, solution if isinstance(solution, str) and solution.strip() else answer)


def _question(row: Row) -> str:
    for name in QUESTIONS:
        value = row.get(name)
        if isinstance(value, list):  # a conversation whose user message is the question
            said = [turn.get("content") for turn in value if isinstance(turn, dict) and turn.get("role") == "user"]
            value = said[-1] if said else None
        if isinstance(value, str) and value.strip():
            return value.strip().removeprefix(DAPO_BEFORE).removesuffix(DAPO_AFTER).strip()
    raise TaskError(f"it has no question: one of {', '.join(QUESTIONS)} is needed")


def _answer(row: Row) -> str:
    model = row.get("reward_model")
    given = [*(row.get(name) for name in ANSWERS), model.get("ground_truth") if isinstance(model, dict) else None]
    for value in given:
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            return str(int(value)) if value == int(value) else str(value)
    raise TaskError(f"`answer` is missing: one of {', '.join((*ANSWERS, 'reward_model'))} is needed")


def _id(row: Row) -> str:
    extra = row.get("extra_info")
    for value in (*(row.get(name) for name in IDS), extra.get("index") if isinstance(extra, dict) else None):
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value):
            return str(value)
    return ""
