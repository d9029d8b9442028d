"""How much a hint still changes the weights' replies: those sampled with it, and those sampled without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.sample import SampledReply
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import EngineError
from openclaw_rl.teach.asking import reply_logp, sampled_reply
from openclaw_rl.teach.settings import TeachSettings

STRAY_NATS = 2.0  # a hint would have prevented a reply that it makes more than seven times less likely
LEARNED_NATS = 0.05  # a reply that the hints make at most 5 % likelier has nothing left to teach


@dataclass(frozen=True, slots=True)
class Gap:
    """The effect of a hint.

    `said` is how much likelier it makes the reply that was sampled with it, in nats a token. `replies` counts the
    replies that were sampled without it, and `strays` those of them that it would have prevented: it makes them much
    less likely.
    """

    said: float
    strays: int
    replies: int

    @property
    def is_closed(self) -> bool:
        """Whether replies were sampled without the hint, and it would have prevented none of them."""
        return self.replies > 0 and not self.strays


@dataclass(frozen=True, slots=True)
class _Tried:
    """Replies that the weights gave to a prompt, and by how many nats another prompt makes each less likely.

    `key` is the ids of the other prompt and of this one, and the version.
    """

    key: tuple[tuple[int, ...], tuple[int, ...], PolicyVersion]
    replies: tuple[SampledReply, ...]
    worth: tuple[float, ...]


@dataclass(slots=True)
class Prober:
    """Asks the weights that are served to a turn's user: the version that `current` returns. `stop_ids` end a reply."""

    engine: Engine
    current: Callable[[Turn], Awaitable[PolicyVersion]]
    stop_ids: tuple[int, ...]
    settings: TeachSettings
    _last: _Tried | None = field(default=None)

    def let_go(self) -> None:
        """Removes what is remembered of the last turn: two prompts and the replies to one of them."""
        self._last = None

    async def follows(self, turn: Turn, bare: Prompt) -> bool:
        """Whether the weights follow a turn's hints without them.

        They must find its reply about as likely without the hints, and reply to the bare prompt with nothing that the
        hints would prevent. False also if the engine is unavailable.
        """
        try:
            gap = await self.gap(turn, turn.prompt, bare)
        except EngineError:
            return False
        return gap.said * len(turn.completion.tokens) <= LEARNED_NATS and gap.is_closed

    async def reply(self, turn: Turn, bare: Prompt) -> SampledReply | None:
        """The reply to the bare prompt that the hints make least likely: it has the most to teach.

        None if the engine is unavailable, or `own_replies` is off.
        """
        if not self.settings.own_replies:
            return None
        try:
            tried = await self._try(turn, turn.prompt, bare)
        except EngineError:
            return None
        return max(zip(tried.worth, tried.replies, strict=True), key=lambda pair: pair[0])[1]

    async def gap(self, turn: Turn, hinted: Prompt, without: Prompt) -> Gap:
        """The effect of a hint that one prompt of a turn has and the other has not.

        If the turn's reply already shows that much is left to learn, more than twice `retire_gap`, no replies are
        sampled. Raises EngineError if the engine is unavailable.
        """
        bound = self.settings.retire_gap
        worth = await self.worth(turn, hinted, without) / len(turn.completion.tokens)
        if worth > 2 * bound:
            return Gap(worth, 0, 0)
        tried = await self._try(turn, hinted, without)
        strays = sum(
            nats > max(STRAY_NATS, bound * len(own.tokens))
            for nats, own in zip(tried.worth, tried.replies, strict=True)
        )
        return Gap(worth, strays, len(tried.replies))

    async def worth(self, turn: Turn, hinted: Prompt, without: Prompt) -> float:
        """By how many nats the turn's whole reply is likelier after the hinted prompt. Raises EngineError."""
        said = turn.completion.tokens
        with_hint, bare = await asyncio.gather(self._logp(turn, hinted, said), self._logp(turn, without, said))
        return _difference(with_hint, bare)

    async def _try(self, turn: Turn, hinted: Prompt, without: Prompt) -> _Tried:
        """Replies to the prompt without the hint. The last result is used again while prompts and version are equal."""
        key = (hinted.tokens, without.tokens, await self.current(turn))
        if self._last is None or self._last.key != key:
            replies = await asyncio.gather(
                *(self._own(turn, without, key[2], seed) for seed in range(self.settings.replies))
            )
            scored = await asyncio.gather(*(self._logp(turn, hinted, own.tokens) for own in replies))
            worth = tuple(_difference(own.logp, logp) for own, logp in zip(replies, scored, strict=True))
            self._last = _Tried(key, tuple(replies), worth)
        return self._last

    async def _logp(self, turn: Turn, prompt: Prompt, said: tuple[int, ...]) -> tuple[float, ...]:
        return await reply_logp(self.engine, prompt, said, await self.current(turn))

    async def _own(self, turn: Turn, prompt: Prompt, version: PolicyVersion, seed: int) -> SampledReply:
        """One reply at temperature 1."""
        longest = min(self.settings.probe_tokens, 2 * len(turn.completion.tokens) + 32)
        sampling = Sampling(max_tokens=longest, temperature=1.0, seed=seed, stop_ids=self.stop_ids)
        return await sampled_reply(self.engine, prompt, sampling, version)


def _difference(logp: Sequence[float], other: Sequence[float]) -> float:
    return sum(one - two for one, two in zip(logp, other, strict=True))
