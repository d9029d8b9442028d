"""One request as its reader has it: tokens that came, and what is needed to go on should the engine's process die."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.local.wire import Submit
from openclaw_rl.errors import EngineError


@dataclass(slots=True, eq=False)
class Stream:
    """What was asked and what came. Its list is bounded by `max_tokens`; a slow reader delays nobody."""

    id: int
    prompt: tuple[int, ...]
    sampling: Sampling
    version: PolicyVersion
    seed: int
    tokens: list[int] = field(default_factory=list)
    has_ended: bool = False
    _unread: list[SampledToken] = field(default_factory=list)
    _error: EngineError | None = None
    _waiter: asyncio.Future[None] | None = None

    def submit(self) -> Submit:
        """The request from where it stands: what was sampled is prompt now, and its random numbers are used up."""
        count = len(self.tokens)
        return Submit(
            self.id,
            (*self.prompt, *self.tokens),
            replace(self.sampling, max_tokens=self.sampling.max_tokens - count) if count else self.sampling,
            self.version,
            self.seed,
            drawn=count,
        )

    async def items(self) -> list[SampledToken]:
        """What came since the last call, at least one token. Raises EngineError once all that came was read."""
        if not self._unread:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            if not self._unread and self._error is not None:
                raise self._error
        unread, self._unread = self._unread, []
        return unread

    def add(self, item: SampledToken) -> None:
        """One more token."""
        self._unread.append(item)
        self.tokens.append(item.token)
        if item.finish is not None:
            self.has_ended = True
        self._tell()

    def fail(self, error: EngineError) -> None:
        """No more tokens will come."""
        if not self.has_ended:
            self.has_ended = True
            self._error = error
            self._tell()

    def _tell(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
