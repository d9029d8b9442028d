"""How much a hint still changes what the weights say: on what they said behind it, and on what they say without it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from openclaw_rl.carry.settings import HintsSettings
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.sample import OwnReply
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import EngineError, RequestError


@dataclass(frozen=True, slots=True)
class Gap:
    """What a hint is worth, in nats a token; both are 0 where it changes nothing.

    `said` is how much likelier it makes the reply that was sampled behind it, `own` how much less likely the reply
    that the weights give without it. Their means estimate KL(with || without) and KL(without || with).
    """

    said: float
    own: float


@dataclass(slots=True)
class Prober:
    """Asks the weights that are served to a turn's user, as `current(turn)` says. `stop_ids` end an answer."""

    engine: Engine
    current: Callable[[Turn], Awaitable[PolicyVersion]]
    stop_ids: tuple[int, ...]
    settings: HintsSettings
    _last: tuple[str, PolicyVersion, OwnReply] | None = field(default=None)

    async def follows(self, turn: Turn, bare: Prompt) -> bool:
        """Whether they say what was said, and of themselves the same, as readily without the hints."""
        bound = self.settings.retire_gap
        try:
            gap = await self.gap(turn, turn.prompt, bare, most=bound)
        except EngineError:
            return False
        return max(gap.said, gap.own) <= bound

    async def reply(self, turn: Turn, bare: Prompt) -> OwnReply | None:
        """What they say to the bare prompt; None where they cannot be asked now, or are not to be."""
        if not self.settings.own_replies:
            return None
        try:
            return await self._own(turn, bare)
        except (EngineError, RequestError):
            return None

    async def gap(self, turn: Turn, behind: Prompt, without: Prompt, *, most: float) -> Gap:
        """What the difference between two prompts of a turn is worth. Raises EngineError where the engine is away.

        Where `said` alone is above `most`, no reply is sampled and `own` is taken to be the same.
        """
        try:
            said = turn.completion.tokens
            worth = _mean_gap(await self._logp(turn, behind, said), await self._logp(turn, without, said))
            if worth > most:
                return Gap(worth, worth)
            own = await self._own(turn, without)
            return Gap(worth, _mean_gap(own.logp, await self._logp(turn, behind, own.tokens)))
        except RequestError as problem:  # its queue is full
            raise EngineError(str(problem)) from problem

    async def _logp(self, turn: Turn, prompt: Prompt, said: tuple[int, ...]) -> tuple[float, ...]:
        whole = Prompt(prompt.tokens + said, images=prompt.images)
        version = await self.current(turn)
        return (await self.engine.score(whole, start=len(prompt), version=version)).logp

    async def _own(self, turn: Turn, prompt: Prompt) -> OwnReply:
        """One reply at temperature 1, the same again while neither prompt nor weights change."""
        version = await self.current(turn)
        key = hashlib.blake2b(f"{turn.id} {prompt.tokens}".encode(), digest_size=16).hexdigest()
        if self._last is not None and self._last[:2] == (key, version):
            return self._last[2]
        longest = min(self.settings.probe_tokens, 2 * len(turn.completion.tokens) + 32)
        sampling = Sampling(max_tokens=longest, temperature=1.0, seed=int(key[:7], 16), stop_ids=self.stop_ids)
        sampled = [item async for item in self.engine.generate(prompt, sampling, version)]
        own = OwnReply(tuple(item.token for item in sampled), tuple(item.logp for item in sampled), version)
        self._last = (key, version, own)
        return own


def _mean_gap(logp: Sequence[float], other: Sequence[float]) -> float:
    return sum(one - two for one, two in zip(logp, other, strict=True)) / len(logp)
