"""What one session is about, and whether a reply to it counts: wish followed, answer right, nothing malformed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from openai.types.chat import ChatCompletionMessageParam

from openclaw_rl.evals.people import rules
from openclaw_rl.evals.people.agent import AgentAnswer
from openclaw_rl.evals.people.exercises import Exercises, GradedWork
from openclaw_rl.evals.people.wishes import HiddenWish, WishKind
from openclaw_rl.tiny import world

MOST_FAILED_CALLS = 2
SHORTEST = {WishKind.THANKS: 2, WishKind.FILED: 2}  # characters; for other wishes a sentence
OTHER_FILE = ("timetable.txt", "Monday: maths\nTuesday: music\n")


@dataclass(frozen=True, slots=True)
class Assessment:
    """The result of a user's strict rule for one answer. `odd` lists its defects."""

    follows: bool
    right: bool
    odd: tuple[str, ...]

    @property
    def is_met(self) -> bool:
        """Whether the user is content."""
        return self.follows and self.right and not self.odd


@dataclass(frozen=True, slots=True)
class Job:
    """One task. `words` draws the user's messages, in order; `before` are the messages before the opening."""

    wish: HiddenWish
    problem: world.Problem
    opening: str
    words: Random
    work: GradedWork | None = None
    path: str | None = None
    before: tuple[ChatCompletionMessageParam, ...] = ()

    @property
    def files(self) -> Mapping[str, str]:
        """The workspace at the start of the session."""
        name, text = OTHER_FILE
        return {name: text} | ({self.path: "Homework\n"} if self.path else {})

    def assess(self, answer: AgentAnswer, *, holds: bool = False) -> Assessment:
        """The strict rule applied to an answer; `holds` says whether the file now contains the result."""
        text = answer.text
        odd = [*rules.oddities(text, answer.reasoning, shortest=SHORTEST.get(self.wish.kind, rules.SANE_CHARS[0]))]
        odd += ["no steps"] if self.wish.kind is WishKind.SOLVE and not rules.shows_steps(text) else []
        odd += ["cut off"] if not answer.is_finished else []
        odd += ["reasoning leaked"] if any(rules.leaks(reply.text) for reply in answer.replies[:-1]) else []
        odd += ["failing tools"] if answer.failed_calls > MOST_FAILED_CALLS else []
        odd += ["changed a file unasked"] if answer.changed_files and self.wish.kind is not WishKind.FILED else []
        return Assessment(self.wish.follows(text), self._is_right(text, holds=holds), tuple(dict.fromkeys(odd)))

    def _is_right(self, text: str, *, holds: bool) -> bool:
        if self.wish.kind is WishKind.THANKS:
            return True
        if self.wish.kind is WishKind.FILED:
            return holds
        if self.work is None:
            return rules.is_number(text, self.problem.answer)
        called_right = rules.says_right(text)
        if self.wish.kind is WishKind.COMMENT:
            return called_right is self.work.is_right
        grade, (least, most) = rules.grade_in(text), self.work.grades
        # A grade with a verdict that contradicts it does not count as a grade.
        return grade is not None and least <= grade <= most and called_right in (None, self.work.is_right)


@dataclass(frozen=True, slots=True)
class Person:
    """A user with task after task and one constant wish.

    With `keeps_file`, a content user asks to append the answer to a file. Several wishes may be
    one user's: `user` is the name for the server.
    """

    name: str
    wish: HiddenWish
    exercises: Exercises
    seed: int
    keeps_file: bool = False
    user: str = ""

    @property
    def user_id(self) -> str:
        """The user's name for the server, by default their own."""
        return self.user or self.name

    def job(self, number: int, *, held_out: bool = False) -> Job:
        """The task of a session; the same number gives the same task and the same words."""
        words = Random(f"{self.name} {self.seed} {number} {held_out}")
        kind = self.wish.kind
        if kind in (WishKind.GRADE, WishKind.COMMENT):
            work = self.exercises.work(words, held_out=held_out)
            if kind is WishKind.GRADE:
                asked = world.grading_request(work.attempt, words) + self.exercises.marking
            else:
                asked = world.comment_request(work.attempt, words)
            return Job(self.wish, work.attempt.problem, asked, words, work=work)
        problem = self.exercises.problem(words, held_out=held_out)
        path = words.choice(world.PATHS) if self.keeps_file or kind is WishKind.FILED else None
        asked = world.request(problem, words)
        if kind is WishKind.SOLVE:
            return Job(self.wish, problem, asked, words, path=path)
        before: tuple[ChatCompletionMessageParam, ...] = (
            {"role": "user", "content": asked},
            {"role": "assistant", "content": world.solution(problem, world.Style.AI, words)},
        )
        opening = world.thanks(words) if path is None else world.append_request(path, words)
        return Job(self.wish, problem, opening, words, path=path, before=before)
