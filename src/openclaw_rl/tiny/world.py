"""The toy world that the bundled model was taught: exports its problems, styles, people and tasks."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from openclaw_rl.tiny.homework import (
    HOMEWORK_TOOLS,
    PATHS,
    StudentSolution,
    append_request,
    attempt,
    comment,
    comment_request,
    confirmation,
    filed,
    grading,
    grading_request,
    path,
    points,
    read_request,
    write_request,
)
from openclaw_rl.tiny.manners import Aspect, Manner, TaskKind, Wish, words_first, words_last
from openclaw_rl.tiny.problems import Problem, answer_in, is_right, problem
from openclaw_rl.tiny.styles import Style, follows, has_markup, solution
from openclaw_rl.tiny.wishes import (
    correction,
    next_request,
    remark,
    request,
    system_wish,
    thanks,
    welcome,
    wish,
    wish_hint,
    wrong,
)

__all__ = [
    "HOMEWORK_TOOLS",
    "PATHS",
    "Aspect",
    "Manner",
    "Problem",
    "StudentSolution",
    "Style",
    "TaskKind",
    "Wish",
    "answer_in",
    "append_request",
    "attempt",
    "bundled_model",
    "comment",
    "comment_request",
    "confirmation",
    "correction",
    "filed",
    "follows",
    "grading",
    "grading_request",
    "has_markup",
    "is_right",
    "next_request",
    "path",
    "points",
    "problem",
    "read_request",
    "remark",
    "request",
    "solution",
    "system_wish",
    "thanks",
    "welcome",
    "wish",
    "wish_hint",
    "words_first",
    "words_last",
    "write_request",
    "wrong",
]


def bundled_model() -> Path:
    """The folder of the model that ships with the package."""
    return Path(str(files("openclaw_rl.tiny").joinpath("weights")))
