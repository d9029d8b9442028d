"""One request as its reader has it: tokens that came, and what is needed to go on should the engine's process die."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
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
    is_submitted: bool = False  # to the process that runs now
    tokens_at_death: int | None = None  # how many there were when the process last died under it
    _unread: list[SampledToken] = field(default_factory=list)
    _error: EngineError | None = None
    _waiter: asyncio.Future[None] | None = None

    def submit(self) -> Submit:
        """The request from where it stands: what was sampled is prompt now, and its random numbers are used up."""
        count = len(self.tokens)
        self.is_submitted = True
        return Submit(
            self.id,
            (*self.prompt, *self.tokens),
            replace(self.sampling, max_tokens=self.sampling.max_tokens - count) if count else self.sampling,
            self.version,
            self.seed,
            drawn=count,
        )

    def outlived(self) -> bool:
        """Notes that the process died; False where it did so twice under this stream without a token in between."""
        if not self.is_submitted or self.has_ended:
            return True
        self.is_submitted = False
        is_suspect = self.tokens_at_death == len(self.tokens)
        self.tokens_at_death = len(self.tokens)
        return not is_suspect

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


class StreamResumer:
    """Submits what was open when the process died, one after the other: each once the one before has got a token.

    Should it die again, what was under way then is the cause, and not all that was open.
    """

    def __init__(self, send: Callable[[Submit], None], all_run: Callable[[], None]) -> None:
        self._send = send
        self._all_run = all_run
        self._waiting: deque[Stream] = deque()
        self._tried: Stream | None = None

    def begin(self, streams: Iterable[Stream]) -> None:
        """Submits those the process did not die under, and the first of the others."""
        self.clear()
        for stream in streams:
            if not stream.has_ended and not stream.is_submitted:
                if stream.tokens_at_death is None:
                    self._send(stream.submit())
                else:
                    self._waiting.append(stream)
        self._next()

    def went_on(self, stream: Stream) -> None:
        """The stream has got a token, or is over: it is the next one's turn if it was this one's."""
        if stream is self._tried:
            self._next()
        elif self._waiting and stream.has_ended and stream in self._waiting:
            self._waiting.remove(stream)

    def clear(self) -> None:
        """The process has died again, or nobody waits any more."""
        self._waiting.clear()
        self._tried = None

    def _next(self) -> None:
        self._tried = self._waiting.popleft() if self._waiting else None
        if self._tried is not None:
            self._send(self._tried.submit())
        else:
            self._all_run()
