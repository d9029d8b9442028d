"""Puts a simulated user's messages into words: a script of the toy world, or a model at an OpenAI-style endpoint.

They do not decide what a user thinks of a reply: the strict rule does.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from openai import AsyncOpenAI, OpenAIError

from openclaw_rl.errors import EngineError
from openclaw_rl.evals.people import rules
from openclaw_rl.evals.people.jobs import Assessment, Job
from openclaw_rl.evals.people.wishes import WishKind
from openclaw_rl.tiny import world

KEY = "OPENAI_API_KEY"  # for the endpoint of a played user
WAIT_S = 120.0
_WRONG_COMMENT = (
    "That is not right. Please check it again.",
    "You made a mistake, try again.",
    "The result is not correct.",
)
_ODD = {
    "too short": "That is too short to be of use.",
    "too long": "That is far too long. Please keep it short.",
    "too many steps": "That takes far too many steps. Please make it simpler.",
    "no steps": "Please show how you get there.",
    "repeats itself": "You said the same thing again and again. Please say it once.",
    "reasoning leaked": "I only want the answer itself, not your notes. Please write it again.",
    "cut off": "You did not finish. Please give me the whole answer.",
    "failing tools": "Please answer without those failing tool calls.",
    "changed a file unasked": "Please leave my files alone and just answer.",
}


class Voice(Protocol):
    """Words for what a user thinks."""

    async def correction(self, job: Job, text: str, found: Assessment) -> str:
        """The message that says what is wrong with a reply."""

    async def thanks(self, job: Job) -> str:
        """The message of a content user, who then leaves."""


@dataclass(frozen=True, slots=True)
class ScriptedVoice:
    """The toy world's own words, drawn again each time from the job's random numbers."""

    async def correction(self, job: Job, text: str, found: Assessment) -> str:
        """A complaint about a wrong answer comes first, then the wish, then other defects."""
        if not found.right:
            return _wrong(job, text)
        return job.wish.correction(job.words) if not found.follows else _ODD[found.odd[0]]

    async def thanks(self, job: Job) -> str:
        """Thanks."""
        return world.thanks(job.words)


@dataclass(slots=True)
class ModelVoice:
    """A model plays the user. It gets what is wrong and puts that into its own words."""

    client: AsyncOpenAI
    model: str

    async def correction(self, job: Job, text: str, found: Assessment) -> str:
        """One or two sentences of a user who is not content."""
        plainly = await ScriptedVoice().correction(job, text, found)
        return await self._said(
            f"You asked: {job.opening}\n\nThe assistant wrote:\n{text}\n\n"
            f"You are not content. What is wrong: {plainly}\nWrite your next message to the assistant."
        )

    async def thanks(self, job: Job) -> str:
        """A few words of a content user."""
        return await self._said(
            f"You asked: {job.opening}\n\nThe assistant's answer is just right. Say thanks in a few words."
        )

    async def _said(self, situation: str) -> str:
        rule = (
            "You play a person who uses an assistant. Answer with that person's next message alone, one or two short "
            "sentences, in everyday words. Never answer the question yourself and never state rules for the future."
        )
        try:
            answer = await self.client.chat.completions.create(
                model=self.model,
                messages=[{"role": "system", "content": rule}, {"role": "user", "content": situation}],
                temperature=0.7,
                max_tokens=200,
            )
        except OpenAIError as problem:
            raise EngineError(
                f"the model that plays the user does not answer: {problem}", fix="check that its endpoint is running"
            ) from problem
        said = (answer.choices[0].message.content or "").strip()
        if not said:
            raise EngineError(
                "the model that plays the user returned an empty reply", fix="choose another model for --users"
            )
        return said


@asynccontextmanager
async def playing(url: str) -> AsyncIterator[ModelVoice]:
    """A played user behind the endpoint; the first model it offers. The key comes from the environment."""
    async with AsyncOpenAI(base_url=url, api_key=os.environ.get(KEY, "none"), timeout=WAIT_S) as client:
        try:
            offered = await client.models.list()
        except OpenAIError as problem:
            raise EngineError(
                f"no model answers at {url}: {problem}", fix=f"give an OpenAI-style base URL, and its key in {KEY}"
            ) from problem
        yield ModelVoice(client, offered.data[0].id)


def _wrong(job: Job, text: str) -> str:
    """A complaint that the answer, the grade or the judgement is wrong; it may name the right one."""
    if job.wish.kind is WishKind.FILED:
        return f"Again: {world.append_request(job.path or '', job.words)}"
    if job.work is None:
        said = rules.number_in(text)
        return world.wrong(job.problem, job.words, said="" if said is None else str(said))
    if job.wish.kind is WishKind.COMMENT:
        return job.words.choice(_WRONG_COMMENT)
    grade = rules.grade_in(text)
    meant = replace(job.problem, answer=str(round(job.work.grades[1])))
    return world.wrong(meant, job.words, said="" if grade is None else f"{grade:g}")
