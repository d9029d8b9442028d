"""A judge made of a language model: m votes for the score and m tries for a hint, asked at once."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from openclaw_rl.core.message import Message
from openclaw_rl.core.next_state import NextState
from openclaw_rl.core.protocols import Chat
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.hint import marked_text
from openclaw_rl.judge.keep import taught_hints
from openclaw_rl.judge.prompt import Question, question
from openclaw_rl.judge.settings import HintFrom, HintWhen, JudgeSettings
from openclaw_rl.judge.signals import foreign_messages, owner_messages, tool_status

_DAY_S = 86400
_BOXED = re.compile(r"\\boxed\s*\{\s*([+\-−]?)\s*([0-9]+)\s*\}")


class Budget(Protocol):
    """Who keeps count."""

    async def spend_judge_call(self, day: int, limit: int) -> bool:
        """Counts one more call on this day (UTC, counted from 1970); False if the limit is reached."""


class ForgetfulBudget:
    """A count that restarts with the program, for judges that have no store."""

    def __init__(self) -> None:
        self._day = 0
        self._calls = 0

    async def spend_judge_call(self, day: int, limit: int) -> bool:
        """Counts one more call; False if the limit is reached."""
        if day != self._day:
            self._day, self._calls = day, 0
        if self._calls >= limit:
            return False
        self._calls += 1
        return True


@dataclass(slots=True)
class LlmJudge:
    """Asks a `Chat`; a tool's own error status outranks what it says.

    Each call has a timeout and bounded retries, and all of them share one bound on calls in flight and one daily
    budget. `readable` removes from a conversation what its client wrote around it.
    """

    chat: Chat
    settings: JudgeSettings
    name: str = "judge"
    budget: Budget = field(default_factory=ForgetfulBudget)
    readable: Callable[[Sequence[Message]], Sequence[Message]] = tuple
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    _slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.settings.calls_in_flight)

    async def judge(self, turn: Turn, next_state: NextState) -> Verdict:
        """The verdict on a turn. Raises JudgeError if a question got no answer at all, and then the turn waits."""
        said = owner_messages(next_state)
        status = tool_status(next_state)
        voted_on = said or (foreign_messages(next_state) if self.settings.tool_votes else ())
        wants_score = status is None and bool(voted_on)
        wants_hint = bool(said) and self.settings.hint_source is not HintFrom.FOLLOWUP
        is_late = self.settings.hint_when is HintWhen.CORRECTIVE
        first = await asyncio.gather(
            self._ask(Question.SCORE, turn, voted_on if wants_score else ()),
            self._ask(Question.HINT, turn, said if wants_hint and not is_late else ()),
        )
        scores, hinting = (_or_raise(item) for item in first)
        score = majority([vote.score for vote in scores]) if status is None else status
        if wants_hint and is_late and score != 1:
            hinting = _or_raise(await self._ask(Question.HINT, turn, said))
        return Verdict(
            turn=turn.id,
            score=score,
            source=VerdictSource.VOTES if status is None else VerdictSource.ENVIRONMENT,
            votes=(*scores, *hinting),
            hints=taught_hints(hinting, score, next_state, self.readable(turn.messages), self.settings.hint_source),
            mean=mean_of([vote.score for vote in scores]),
        )

    async def step_score(self, turn: Turn, next_state: NextState, environment: str) -> float | None:
        """How good a step of an episode was, between -1 and 1: the mean of the valid votes, None if there are none.

        A tool's own error status outranks them. Raises JudgeError if there was no answer at all.
        """
        status = tool_status(next_state)
        if status is not None:
            return float(status)
        votes = _or_raise(await self._ask(Question.of_step(environment), turn, next_state.messages))
        return mean_of([vote.score for vote in votes])

    async def _ask(self, asked: Question, turn: Turn, said: Sequence[Message]) -> tuple[Vote, ...] | JudgeError:
        """The answers to one question, asked `votes` times at once, or why there is none.

        Empty if there is nothing to ask about.
        """
        if not said:
            return ()
        messages = question(asked, self.readable(turn.messages), turn.reply, said)
        got = await asyncio.gather(
            *(self._vote(asked, messages, _seed(turn.id, asked, index)) for index in range(self.settings.votes))
        )
        votes = tuple(item for item in got if isinstance(item, Vote))
        return votes or next(item for item in got if isinstance(item, JudgeError))

    async def _vote(self, asked: Question, messages: Sequence[Message], seed: int) -> Vote | JudgeError:
        """One answer, or why there is none: a vote that is missing leaves the others their word."""
        failure = JudgeError("the judge was not asked")
        for attempt in range(self.settings.retries + 1):
            if attempt:
                await self.pause(min(self.settings.retry_s * 2 ** (attempt - 1), self.settings.retry_max_s))
            try:
                return await self._call(asked, messages, seed)
            except JudgeError as problem:
                failure = problem
            except TimeoutError:
                failure = JudgeError(
                    f"the judge did not answer within {self.settings.timeout_s:g} s",
                    fix="check that it is running, or raise judge.timeout_s",
                )
        return failure

    async def _call(self, asked: Question, messages: Sequence[Message], seed: int) -> Vote:
        async with self._slots:
            await self._spend()
            started = self.clock()
            async with asyncio.timeout(self.settings.timeout_s):
                raw = await self.chat.reply(
                    messages, temperature=self.settings.temperature, max_tokens=self.settings.max_tokens, seed=seed
                )
        return Vote(
            asked=asked.value,
            raw=raw,
            score=vote_of(raw),
            hint=marked_text(raw) if asked is Question.HINT else None,
            judge=self.name,
            seconds=self.clock() - started,
        )

    async def _spend(self) -> None:
        limit = self.settings.daily_calls
        if limit and not await self.budget.spend_judge_call(int(self.now() // _DAY_S), limit):
            raise JudgeError(
                f"today's limit of {limit} judge calls is used up",
                fix="wait for tomorrow (UTC), or raise judge.daily_calls",
            )


def _or_raise(got: tuple[Vote, ...] | JudgeError) -> tuple[Vote, ...]:
    if isinstance(got, JudgeError):
        raise got
    return got


def _seed(turn: str, asked: Question, index: int) -> int:
    """The same turn is judged with the same seeds again, each vote with its own."""
    return int.from_bytes(hashlib.blake2b(f"{turn}/{asked.value}/{index}".encode(), digest_size=4).digest()) >> 1


def vote_of(reply: str) -> int | None:
    r"""The last `\boxed{}` integer, or None if there is none or it is not -1, 0 or 1."""
    found = _BOXED.findall(reply)
    if not found:
        return None
    sign, digits = found[-1]
    size = {"0": 0, "1": 1}.get(digits)
    if size is None:
        return None
    return -size if sign in ("-", "−") else size


def majority(votes: Sequence[int | None]) -> int | None:
    """The score most valid votes agree on; 0 for a tie, None if there are no votes, which is not 0."""
    counts = {score: votes.count(score) for score in (-1, 0, 1)}
    most = max(counts.values())
    if most == 0:
        return None
    winners = [score for score, count in counts.items() if count == most]
    return winners[0] if len(winners) == 1 else 0


def mean_of(votes: Sequence[int | None]) -> float | None:
    """The mean of the valid votes, None if there are none."""
    valid = [vote for vote in votes if vote is not None]
    return sum(valid) / len(valid) if valid else None
