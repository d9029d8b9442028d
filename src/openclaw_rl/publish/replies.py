"""Short trial replies of a version, and what is wrong with them: none, no end, a loop, more words, more of the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.core.protocols import Renderer
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import RequestError
from openclaw_rl.publish.base_replies import BaseReplies, ScoredReply

RUN = 4  # tokens: a run of this many that was in the reply before is a repetition


@dataclass(frozen=True, slots=True)
class TrialReply:
    """A reply to a turn's prompt; `fault` is empty if nothing is wrong with it."""

    turn: Turn
    said: ScoredReply
    fault: str

    @property
    def tokens(self) -> tuple[int, ...]:
        """The reply's ids."""
        return self.said.tokens


@dataclass(frozen=True, slots=True)
class Trials:
    """Lets versions reply."""

    renderer: Renderer
    base: BaseReplies

    async def replies(self, turns: Sequence[Turn], version: PolicyVersion) -> list[TrialReply]:
        """A reply to each turn's prompt. Raises EngineError or RequestError where the engine cannot be asked now."""
        return await asyncio.gather(*(self._reply(turn, version) for turn in turns))

    async def _reply(self, turn: Turn, version: PolicyVersion) -> TrialReply:
        exploded = 2 * len(turn.completion.tokens) + 32
        said = await self.base.reply(turn.prompt, version, most=min(self.base.most, exploded))
        never_ends = len(said.tokens) >= exploded and not said.has_ended
        return TrialReply(turn, said, self._fault(said.tokens, never_ends=never_ends))

    def _fault(self, tokens: tuple[int, ...], *, never_ends: bool) -> str:
        try:
            reply, _ = self.renderer.decode(tokens)
        except (RequestError, ValueError):
            return "cannot be read"
        if not reply.text.strip() and not reply.tool_calls and not (reply.reasoning or "").strip():
            return "empty"
        if is_loop(tokens):
            return "a loop"
        return "does not end" if never_ends else ""


def lengths(trials: Sequence[TrialReply]) -> tuple[float, float]:
    """The mean tokens of the replies, and of those that were given to the same prompts before."""
    given = [len(trial.turn.completion.tokens) for trial in trials]
    return sum(len(trial.tokens) for trial in trials) / len(trials), sum(given) / len(trials)


def repetitions(trials: Sequence[TrialReply]) -> tuple[float, float]:
    """The mean repetition of the replies, and of those that were given to the same prompts before."""
    given = [repetition(trial.turn.completion.tokens) for trial in trials]
    return sum(repetition(trial.tokens) for trial in trials) / len(trials), sum(given) / len(trials)


def repetition(tokens: Sequence[int]) -> float:
    """The share of runs of `RUN` tokens that occur earlier in the reply, from 0 to 1."""
    runs = [tuple(tokens[at : at + RUN]) for at in range(len(tokens) - RUN + 1)]
    return 1.0 - len(set(runs)) / len(runs) if runs else 0.0


def is_loop(tokens: Sequence[int], *, longest: int = 40, times: int = 4, least: int = 24) -> bool:
    """Whether the tokens end in the same run of up to `longest`, `times` over or more, `least` tokens in all."""
    for period in range(1, longest + 1):
        span = max(times * period, least)
        tail = tokens[-span:]
        if len(tail) == span and all(tail[index] == tail[index - period] for index in range(period, span)):
            return True
    return False
