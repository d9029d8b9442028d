"""The server's own account of what it was sent, asked for over HTTP as any user may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from openclaw_rl.core.message import Json
from openclaw_rl.evals.server import Server

POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Account:
    """What the server says of itself."""

    server: Server

    async def status(self) -> dict[str, Json]:
        """Where the loop stands."""
        return await self._asked("GET", "/rl/status")

    async def turns(self) -> list[dict[str, Json]]:
        """All turns in one line each, oldest first."""
        rows = (await self._asked("GET", "/rl/turns?limit=500"))["turns"]
        assert isinstance(rows, list)
        return [row for row in reversed(rows) if isinstance(row, dict)]

    async def of_session(self, session: str) -> list[dict[str, Json]]:
        """A session's turns in full, oldest first."""
        return [await self.turn(str(row["id"])) for row in await self.turns() if row["session"] == session]

    async def turn(self, name: str) -> dict[str, Json]:
        """One turn with all that is known of it."""
        return await self._asked("GET", f"/rl/turns/{name}")

    async def versions(self) -> list[dict[str, Json]]:
        """Every version."""
        rows = (await self._asked("GET", "/rl/versions"))["versions"]
        assert isinstance(rows, list)
        return [row for row in rows if isinstance(row, dict)]

    async def thumb_down(self, turn: str, text: str) -> None:
        """What a user says who presses a button and writes why."""
        await self._asked("POST", "/feedback", {"response_id": turn, "score": -1, "text": text})

    async def until(self, turn: str, holds: Callable[[dict[str, Json]], bool], *, limit_s: float) -> dict[str, Json]:
        """The turn once this holds of it, or as it is after so long."""
        until = time.monotonic() + limit_s
        while True:
            row = await self.turn(turn)
            if holds(row) or time.monotonic() > until:
                return row
            await asyncio.sleep(POLL_S)

    async def _asked(self, method: str, path: str, body: Json = None) -> dict[str, Json]:
        headers = {"Authorization": f"Bearer {self.server.key}"}
        async with (
            aiohttp.ClientSession(headers=headers) as client,
            client.request(method, self.server.base_url + path, json=body) as answer,
        ):
            held = await answer.json()
            assert answer.status == 200, f"{path}: {held}"
            assert isinstance(held, dict)
            return held
