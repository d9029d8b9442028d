"""What the commands beside `serve` read and do: from the running server where there is one, else from the store."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from urllib.parse import quote, urlencode

import aiohttp

from openclaw_rl.core.disk import is_read_only
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError, StoreError
from openclaw_rl.home.folder import address_of
from openclaw_rl.home.reach import answer_of, asked, asking, opened
from openclaw_rl.serve.control.views import episode_json, episode_line, turn_json, turn_line
from openclaw_rl.serve.ids import turn_of_response

STREAMED = aiohttp.ClientTimeout(total=None, sock_read=60)
SIDE = b'"kind": "side"'  # in a record; what people wrote stands in it with its quotation marks escaped


async def ledger_of(home: Path) -> dict[str, Json]:
    """Turns by state and drops by reason."""
    if address_of(home) is not None:
        status = await asked(home, "GET", "/v1/rl/status")
        ledger = status["ledger"]
        assert isinstance(ledger, dict)
        return ledger
    async with opened(home, to_read=True) as store:
        return dict(await store.counts())


async def turns_of(
    home: Path, *, limit: int, session: str | None = None, state: str | None = None
) -> list[dict[str, Json]]:
    """The newest turns, each in a line: what it was, how it was judged, what became of it and why."""
    if state is not None and state not in set(State):
        raise ConfigError(f"{state!r} is not a state of a turn", fix=f"use one of {', '.join(State)}")
    if address_of(home) is not None:
        query = {"limit": str(limit), "session": session, "state": state}
        words = urlencode({name: value for name, value in query.items() if value is not None})
        rows = (await asked(home, "GET", f"/v1/rl/turns?{words}"))["turns"]
        assert isinstance(rows, list)
        return [row for row in rows if isinstance(row, dict)]
    async with opened(home, to_read=True) as store:
        found = await store.rows(limit=limit, session=session, state=None if state is None else State(state))
        return [turn_line(row) for row in found]


async def turn_of(home: Path, name: str) -> dict[str, Json]:
    """One turn with all that is known of it. Raises ConfigError where there is none."""
    if address_of(home) is not None:
        return await asked(home, "GET", f"/v1/rl/turns/{quote(name, safe='')}")
    async with opened(home, to_read=True) as store:
        row = await store.row(turn_of_response(name))
    if row is None:
        raise ConfigError(f"there is no turn {name}", fix="`openclaw-rl turns` lists the turns")
    return turn_json(row)


async def episode_of(home: Path, name: str) -> dict[str, Json]:
    """One episode, turn by turn. Raises ConfigError where there is none."""
    if address_of(home) is not None:
        return await asked(home, "GET", f"/v1/rl/episodes/{quote(name, safe='')}")
    async with opened(home, to_read=True) as store:
        row = await store.episodes.find(name)
        if row is None:
            raise ConfigError(f"there is no episode {name}", fix="`openclaw-rl inspect --episodes` lists them")
        return await episode_json(store, row)


async def episodes_of(home: Path, *, limit: int) -> list[dict[str, Json]]:
    """The newest episodes, each in a line."""
    if address_of(home) is not None:
        rows = (await asked(home, "GET", f"/v1/rl/episodes?limit={limit}"))["episodes"]
        assert isinstance(rows, list)
        return [row for row in rows if isinstance(row, dict)]
    async with opened(home, to_read=True) as store:
        return [episode_line(row) for row in await store.episodes.page(limit=limit)]


async def export_to(home: Path, out: Path, *, user: str | None = None, with_side: bool = True) -> tuple[int, int]:
    """How many turns and side requests were written to `out`: a user's, or everybody's. By the server where one runs.

    Raises StoreError, also where something was forgotten meanwhile; then nothing is left of the file.
    """
    from openclaw_rl.store.export import ExportFilter, export

    if address_of(home) is not None:
        return await _received(home, await asyncio.to_thread(out.resolve), user=user, with_side=with_side)
    async with opened(home, to_read=True) as store:
        if await asyncio.to_thread(notes_exports, home):
            await store.exports.note(out, at_s=time.time())  # what is forgotten is taken out of it
        return await export(store, out, ExportFilter(user=user, with_side=with_side))


def notes_exports(home: Path) -> bool:
    """Whether the folder remembers where records were written to; one that cannot be written does not."""
    return address_of(home) is not None or not is_read_only(home)


async def _received(home: Path, out: Path, *, user: str | None, with_side: bool) -> tuple[int, int]:
    """As `export_to`, from the running server."""
    from openclaw_rl.serve.control.export import FORGOTTEN
    from openclaw_rl.store.export import written

    asked_for = {"to": str(out), "side": "true" if with_side else "false"}
    asked_for |= {} if user is None else {"user": user}
    main = side = 0
    rest = b""
    async with asking(home, "GET", "/v1/rl/export", limit=STREAMED, query=asked_for) as response:
        if response.status != 200:
            await answer_of(response)
        with written(out) as lines:
            async for data in response.content.iter_any():
                lines.write(data)
                *whole, rest = (rest + data).split(b"\n")
                sides = sum(SIDE in line for line in whole)
                main, side = main + len(whole) - sides, side + sides
        known = int(response.headers[FORGOTTEN])
    forgotten = (await asked(home, "GET", "/v1/rl/forget"))["forgettings"]
    if not isinstance(forgotten, list) or len(forgotten) != known:
        await asyncio.to_thread(out.unlink, missing_ok=True)
        raise StoreError("something was forgotten while the records were written", fix="export again")
    return main, side
