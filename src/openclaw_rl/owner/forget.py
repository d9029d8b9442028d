"""The calls of `openclaw-rl forget` to the running server, which does the forgetting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from openclaw_rl.core.message import Json
from openclaw_rl.home.reach import asked
from openclaw_rl.remake.forget_plan import Certificate
from openclaw_rl.store.forget.selection import ForgetTarget

PATH = "/v1/rl/forget"
LIMIT = aiohttp.ClientTimeout(total=900)  # a large store is searched before its rows are erased
POLL_S = 0.5
DONE, ERASING, REBUILDING, AT_GATE = "done", "erasing", "rebuilding", "at_gate"


@dataclass(frozen=True, slots=True)
class ForgettingStatus:
    """The progress of a forgetting: its phase, the versions made again and in total, and what prevents it."""

    id: str
    phase: str
    made: int
    of: int
    problem: str
    is_made_here: bool
    certificate: Certificate

    @property
    def is_erased(self) -> bool:
        """Whether every byte is gone, even if versions must still be made again."""
        return self.phase != ERASING

    @property
    def words(self) -> str:
        """For people."""
        return {
            ERASING: "erasing: the rows are gone; what is held in memory, files and the store's free pages go now",
            REBUILDING: f"erased; versions are made again without it: {self.made} of {self.of}",
            AT_GATE: f"erased; {self.of} versions were made again and wait at the gate",
        }.get(self.phase, "done")


async def preview(home: Path, what: ForgetTarget) -> dict[str, int]:
    """Counts of what would be erased; empty if nothing. Raises ConfigError if nothing of that name is there."""
    found = await asked(home, "POST", PATH, _body(what) | {"dry_run": True}, limit=LIMIT)
    return {} if found["is_nothing"] else msgspec.convert(found["goes"], dict[str, int])


async def begin(home: Path, what: ForgetTarget, *, has_records: bool) -> str:
    """The id of the forgetting; the server finishes it even if the caller ends."""
    return str((await asked(home, "POST", PATH, _body(what) | {"records": has_records}, limit=LIMIT))["id"])


async def standing(home: Path) -> list[ForgettingStatus]:
    """Every forgetting, oldest first."""
    return msgspec.convert((await asked(home, "GET", PATH))["forgettings"], list[ForgettingStatus])


async def followed(home: Path, name: str, *, until_made: bool) -> AsyncIterator[ForgettingStatus]:
    """Its progress at each change, until its certificate is complete or its bytes are gone.

    It also ends if the versions cannot be made again now, or not by this server.
    """
    before = ""
    while True:
        now = next(item for item in await standing(home) if item.id == name)
        is_over = now.phase == DONE or (now.is_erased and not until_made)
        is_stuck = now.phase == REBUILDING and (bool(now.problem) or not now.is_made_here)
        if is_over or is_stuck or now.words != before:
            yield now
        if is_over or is_stuck:
            return
        before = now.words
        await asyncio.sleep(POLL_S)


def _body(what: ForgetTarget) -> dict[str, Json]:
    named: dict[str, Json] = {
        "session": what.session,
        "user": what.user,
        "turn": what.turn,
        "before": what.before_s,
        "episode": what.episode,
    }
    return {name: value for name, value in named.items() if value is not None}
