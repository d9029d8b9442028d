"""When somebody was last served, for the stages that wait for quiet."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler


@dataclass(slots=True)
class Activity:
    """Counts the requests being answered."""

    running: int = 0
    last_s: float = float("-inf")  # monotonic
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._quiet.set()

    async def quiet(self) -> None:
        """Until nobody is being served."""
        await self._quiet.wait()

    @property
    def is_idle(self) -> bool:
        """Whether nobody is being served."""
        return self.running == 0

    def idle_s(self) -> float:
        """Seconds since the last answer ended; 0 while one is being given."""
        return 0.0 if self.running else time.monotonic() - self.last_s

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Notes when an answer begins and ends."""
        if request.method != "POST":
            return await handler(request)
        self.running += 1
        self._quiet.clear()
        try:
            return await handler(request)
        finally:
            self.running -= 1
            self.last_s = time.monotonic()
            if not self.running:
                self._quiet.set()
