"""Simulated users: people with a hidden wish who ask, look at a reply, and correct it until they are content."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol

from openclaw_rl.tiny import world

SANE_CHARS = (20, 1200)  # a reply shorter than a sentence or longer than any solution is not an honest answer


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a user's strict rule for one reply: wish followed, answer right, no defects."""

    follows: bool
    right: bool
    sane: bool

    @property
    def is_met(self) -> bool:
        """Whether the user is content."""
        return self.follows and self.right and self.sane


class UserTask(Protocol):
    """What one session is about, as its user sees it."""

    @property
    def opening(self) -> str:
        """The user's first message."""

    def check(self, reply: str) -> Check:
        """The user's rule applied to a reply."""

    def answer(self, reply: str, check: Check) -> str:
        """The user's message after the reply: thanks, or what is wrong. Each call draws new words."""


class User(Protocol):
    """A user with task after task and one constant wish."""

    @property
    def name(self) -> str:
        """Who this is."""

    @property
    def wish(self) -> str:
        """The hidden wish, in words for a report."""

    def task(self, session: int, *, held_out: bool = False) -> UserTask:
        """The task of a session; the same number gives the same task and the same words."""


@dataclass(frozen=True, slots=True)
class Homework:
    """One word problem that a student wants solved in a certain style. `words` draws the messages, in order."""

    problem: world.Problem
    style: world.Style
    opening: str
    words: Random

    def check(self, reply: str) -> Check:
        """Style and answer by the strict rules of the toy world, length by `SANE_CHARS`."""
        shortest, longest = SANE_CHARS
        return Check(
            follows=world.follows(reply, self.style),
            right=world.is_right(self.problem, reply),
            sane=shortest <= len(reply) <= longest,
        )

    def answer(self, reply: str, check: Check) -> str:
        """A complaint about a wrong answer comes first, then about the style; a reply right in both gets thanks."""
        if not check.right:
            return world.wrong(self.problem, self.words, said=world.answer_in(reply) or "")
        if not check.is_met:
            return world.correction(self.style, self.words)
        return world.thanks(self.words)


@dataclass(frozen=True, slots=True)
class Student:
    """A student who hands in what the model writes, so it must not look like AI."""

    seed: int
    style: world.Style = world.Style.NATURAL
    name: str = "student"
    wish: str = "no AI-looking style: plain sentences, no markdown, no lists, no boxed answer"

    def task(self, session: int, *, held_out: bool = False) -> Homework:
        """A fresh problem; held-out ones come from the part of the world that is never taught."""
        words = Random(f"{self.name} {self.seed} {session} {held_out}")
        made = world.problem(words, held_out=held_out)
        return Homework(made, self.style, world.request(made, words), words)
