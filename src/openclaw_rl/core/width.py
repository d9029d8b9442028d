"""How many questions learning asks the engine at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

BUSY = 2  # while users wait for answers, which should not be slowed
IDLE = 8
TOKENS = 16_384  # of all prompts together: a long one takes its room from users' conversations


@dataclass(frozen=True, slots=True)
class Width:
    """Few while users' requests are being answered, up to `most` while none is.

    Decoding eight answers together takes a small model little longer than two, and a large one on a GPU no longer at
    all: so what follows a correction is served sooner.
    """

    is_idle: Callable[[], bool] = lambda: False  # whether no user's request is being answered
    most: int = IDLE

    def now(self, tokens: int = 0) -> int:
        """How many may be under way together at this moment, if each prompt has so many tokens."""
        most = min(self.most, TOKENS // max(1, tokens)) if self.is_idle() else BUSY
        return max(BUSY, most)

    async def each(
        self, items: Iterable[Item], ask: Callable[[Item], Awaitable[Result]], *, tokens: int = 0
    ) -> list[Result]:
        """What `ask` gives for each of the items, in their order. If one raises, the others are cancelled."""
        tasks = list[asyncio.Future[Result]]()
        running = set[asyncio.Future[Result]]()
        try:
            for item in items:
                while len(running) >= self.now(tokens):
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for one in done:
                        one.result()
                task: asyncio.Future[Result] = asyncio.ensure_future(ask(item))
                tasks.append(task)
                running.add(task)
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
