"""A scripted judge and a scripted chat model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Message
from openclaw_rl.core.next_state import NextState
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.errors import JudgeError

Opinion = int | None | tuple[int | None, str] | JudgeError


class ScriptedJudge:
    """Gives the opinions in turn, or those of a function of turn and next state.

    An opinion is a score, a score with a hint, or the JudgeError to raise. `judged` records the calls.
    """

    def __init__(self, opinions: Sequence[Opinion] | Callable[[Turn, NextState], Opinion]) -> None:
        self._opinions = opinions if callable(opinions) else _in_turn(opinions)
        self.judged: list[tuple[Turn, NextState]] = []

    async def judge(self, turn: Turn, next_state: NextState) -> Verdict:
        """The verdict of one vote."""
        self.judged.append((turn, next_state))
        opinion = self._opinions(turn, next_state)
        if isinstance(opinion, JudgeError):
            raise opinion
        score, hint = opinion if isinstance(opinion, tuple) else (opinion, None)
        return Verdict(
            turn.id,
            score,
            VerdictSource.VOTES,
            votes=(Vote("score", f"\\boxed{{{score}}}", score, hint, "scripted"),),
            hints=() if hint is None else (Hint(hint),),
            mean=None if score is None else float(score),
        )


class ScriptedChat:
    """Gives the replies in turn, or those of a function of the messages. `asked` records the messages."""

    def __init__(self, replies: Sequence[str | JudgeError] | Callable[[Sequence[Message]], str | JudgeError]) -> None:
        self._replies = replies if callable(replies) else _said_in_turn(replies)
        self.asked: list[tuple[Message, ...]] = []

    async def reply(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int | None = None
    ) -> str:
        """The next reply."""
        self.asked.append(tuple(messages))
        reply = self._replies(messages)
        if isinstance(reply, JudgeError):
            raise reply
        return reply


def _in_turn(opinions: Sequence[Opinion]) -> Callable[[Turn, NextState], Opinion]:
    rest = iter(opinions)
    over = JudgeError(f"the script is over: it held {len(opinions)} opinions")
    return lambda turn, next_state: next(rest, over)


def _said_in_turn(replies: Sequence[str | JudgeError]) -> Callable[[Sequence[Message]], str | JudgeError]:
    rest = iter(replies)
    over = JudgeError(f"the script is over: it held {len(replies)} replies")
    return lambda messages: next(rest, over)
