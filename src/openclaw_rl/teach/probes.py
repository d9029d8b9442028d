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

STRAY_NATS = 2.0  # a reply the hint makes seven times less likely is one that it would have prevented
LEARNED_NATS = 0.05  # a reply that hints make 5 % likelier at most has nothing left to teach


@dataclass(frozen=True, slots=True)
class Gap:
    """The effect of a hint.

    `said` is how much likelier it makes the reply that was sampled with it, in nats a token. `strays` counts, among
    the `replies` that were sampled without it, those that it makes so unlikely that it would have prevented them.
    """

    said: float
    strays: int
    replies: int

    @property
    def is_closed(self) -> bool:
        """Whether replies were given without the hint, and it would have prevented none."""
        return self.replies > 0 and not self.strays


@dataclass(frozen=True, slots=True)
class _Tried:
    """Replies of the weights' own to a prompt, and by how many nats another prompt makes each less likely."""

    key: tuple[tuple[int, ...], tuple[int, ...], PolicyVersion]
    replies: tuple[SampledReply, ...]
    worth: tuple[float, ...]


@dataclass(slots=True)
class Prober:
    """Asks the weights that are served to a turn's user, as `current(turn)` says. `stop_ids` end an answer."""

    engine: Engine
    current: Callable[[Turn], Awaitable[PolicyVersion]]
    stop_ids: tuple[int, ...]
    settings: TeachSettings
    _last: _Tried | None = field(default=None)

    async def follows(self, turn: Turn, bare: Prompt) -> bool:
        """Whether the weights reply as readily without the hints, and give no reply that the hints would prevent."""
        try:
            gap = await self.gap(turn, turn.prompt, bare)
        except EngineError:
            return False
        return gap.said * len(turn.completion.tokens) <= LEARNED_NATS and gap.is_closed

    async def reply(self, turn: Turn, bare: Prompt) -> SampledReply | None:
        """Of the weights' replies to the bare prompt, the one that the hints change most: it has the most to teach.

        None if the weights cannot be asked now, or `own_replies` is off.
        """
        if not self.settings.own_replies:
            return None
        try:
            tried = await self._try(turn, turn.prompt, bare)
        except EngineError:
            return None
        return max(zip(tried.worth, tried.replies, strict=True), key=lambda pair: pair[0])[1]

    async def gap(self, turn: Turn, behind: Prompt, without: Prompt) -> Gap:
        """The effect of the difference between two prompts of a turn. Raises EngineError if the engine is unavailable.

        If the given reply already shows that much is left to learn, no replies are sampled.
        """
        bound = self.settings.retire_gap
        worth = await self.worth(turn, behind, without) / len(turn.completion.tokens)
        if worth > 2 * bound:
            return Gap(worth, 0, 0)
        tried = await self._try(turn, behind, without)
        strays = sum(
            nats > max(STRAY_NATS, bound * len(own.tokens))
            for nats, own in zip(tried.worth, tried.replies, strict=True)
        )
        return Gap(worth, strays, len(tried.replies))

    async def worth(self, turn: Turn, behind: Prompt, without: Prompt) -> float:
        """By how many nats a reply is likelier after one prompt than after the other. Raises EngineError."""
        said = turn.completion.tokens
        longer, shorter = await asyncio.gather(self._logp(turn, behind, said), self._logp(turn, without, said))
        return _difference(longer, shorter)

    async def _try(self, turn: Turn, behind: Prompt, without: Prompt) -> _Tried:
        """The same again while neither prompts nor weights change."""
        key = (behind.tokens, without.tokens, await self.current(turn))
        if self._last is None or self._last.key != key:
            replies = await asyncio.gather(
                *(self._own(turn, without, key[2], seed) for seed in range(self.settings.replies))
            )
            scored = await asyncio.gather(*(self._logp(turn, behind, own.tokens) for own in replies))
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
