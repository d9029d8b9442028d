"""What the commands besides `serve` read and do: from the running server if there is one, else from the store."""

from __future__ import annotations

import asyncio
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import aiohttp

from openclaw_rl.core.disk import is_read_only
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError, StoreError
from openclaw_rl.home.folder import address_of
from openclaw_rl.home.reach import answer_of, asked, asking, opened
from openclaw_rl.serve.answers import turn_of_response
from openclaw_rl.serve.control.overruling import MOST_ROWS, overruled_json
from openclaw_rl.serve.control.views import episode_json, episode_line, turn_json, turn_line
from openclaw_rl.store.forms import ExportForm

if TYPE_CHECKING:
    from openclaw_rl.store.export import ExportFilter

STREAMED = aiohttp.ClientTimeout(total=None, sock_read=60)
PARQUET = ".parquet"
SIDE = b'"kind": "side"'  # in a record; text of people appears with escaped quotation marks


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
    """The newest turns, one per line: kind, verdict, state and reason."""
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
    """One turn with all its details. Raises ConfigError if there is none."""
    if address_of(home) is not None:
        return await asked(home, "GET", f"/v1/rl/turns/{quote(name, safe='')}")
    async with opened(home, to_read=True) as store:
        row = await store.row(turn_of_response(name))
    if row is None:
        raise ConfigError(f"there is no turn {name}", fix="`openclaw-rl turns` lists the turns")
    return turn_json(row)


async def overruled_of(home: Path, *, most: int = MOST_ROWS) -> list[dict[str, Json]]:
    """The newest verdicts that owners gave in the judge's place, as `/v1/rl/overruled` lists them."""
    if address_of(home) is not None:
        found = await asked(home, "GET", f"/v1/rl/overruled?limit={most}")
    else:
        async with opened(home, to_read=True) as store:
            found = await overruled_json(store, limit=most)
    rows = found["overruled"]
    assert isinstance(rows, list)
    return [row for row in rows if isinstance(row, dict)]


async def episode_of(home: Path, name: str) -> dict[str, Json]:
    """One episode, turn by turn. Raises ConfigError if there is none."""
    if address_of(home) is not None:
        return await asked(home, "GET", f"/v1/rl/episodes/{quote(name, safe='')}")
    async with opened(home, to_read=True) as store:
        row = await store.episodes.find(name)
        if row is None:
            raise ConfigError(f"there is no episode {name}", fix="`openclaw-rl inspect --episodes` lists them")
        return await episode_json(store, row)


async def episodes_of(home: Path, *, limit: int) -> list[dict[str, Json]]:
    """The newest episodes, one per line."""
    if address_of(home) is not None:
        rows = (await asked(home, "GET", f"/v1/rl/episodes?limit={limit}"))["episodes"]
        assert isinstance(rows, list)
        return [row for row in rows if isinstance(row, dict)]
    async with opened(home, to_read=True) as store:
        return [episode_line(row) for row in await store.episodes.page(limit=limit)]


async def export_to(
    home: Path,
    out: Path,
    *,
    user: str | None = None,
    with_side: bool = True,
    form: ExportForm = ExportForm.RECORDS,
) -> tuple[int, int]:
    """How many turns and side requests were written to `out`: a user's, or everybody's. The server does it if one runs.

    For formats other than records: the number of rows, and 0. A name that ends in .parquet is written as Parquet.

    Raises StoreError, also if something was forgotten meanwhile; the file is then removed.
    """
    from openclaw_rl.store.export import ExportFilter, export

    wanted = ExportFilter(user=user, with_side=with_side, form=form)
    if address_of(home) is not None:
        written = await _received(home, await asyncio.to_thread(out.resolve), wanted)
    else:
        async with opened(home, to_read=True) as store:
            if await asyncio.to_thread(notes_exports, home):
                await store.exports.note(out, at_s=time.time())  # a later forgetting cleans it
            written = await export(store, out, wanted)
    if out.suffix == PARQUET and written != (0, 0):
        await asyncio.to_thread(_as_parquet, out)
    return written


def check_parquet(out: Path) -> None:
    """Raises ConfigError if `out` should be a Parquet file and its library is not installed."""
    if out.suffix == PARQUET and find_spec("pyarrow") is None:
        raise ConfigError(
            f"{out} is to be a Parquet file, which needs pyarrow",
            fix='install it: pip install "openclaw-rl[parquet]", or name a .jsonl file',
        )


def _as_parquet(out: Path) -> None:
    """Rewrites a file of JSON lines as Parquet."""
    import pyarrow.json
    import pyarrow.parquet

    options = pyarrow.json.ReadOptions(block_size=max(1 << 20, out.stat().st_size + 1))  # one block has one schema
    table = pyarrow.json.read_json(out, read_options=options)
    fresh = out.with_name(f"{out.name}.part")
    try:
        fresh.touch(mode=0o600)
        pyarrow.parquet.write_table(table, fresh)
        fresh.replace(out)
    finally:
        fresh.unlink(missing_ok=True)


def notes_exports(home: Path) -> bool:
    """Whether the folder can record where records were written; a read-only folder cannot."""
    return address_of(home) is not None or not is_read_only(home)


async def _received(home: Path, out: Path, wanted: ExportFilter) -> tuple[int, int]:
    """As `export_to`, from the running server."""
    from openclaw_rl.serve.control.export import FORGOTTEN
    from openclaw_rl.store.export import written

    asked_for = {"to": str(out), "side": "true" if wanted.with_side else "false", "form": wanted.form.value}
    asked_for |= {} if wanted.user is None else {"user": wanted.user}
    main = side = 0
    rest = b""
    async with asking(home, "GET", "/v1/rl/export", limit=STREAMED, query=asked_for) as response:
        if response.status != 200:
            await answer_of(response)
        with written(out) as lines:
            async for data in response.content.iter_any():
                lines.write(data)
                *whole, rest = (rest + data).split(b"\n")
                sides = sum(SIDE in line for line in whole) if wanted.form is ExportForm.RECORDS else 0
                main, side = main + len(whole) - sides, side + sides
        known = int(response.headers[FORGOTTEN])
    forgotten = (await asked(home, "GET", "/v1/rl/forget"))["forgettings"]
    if not isinstance(forgotten, list) or len(forgotten) != known:
        await asyncio.to_thread(out.unlink, missing_ok=True)
        raise StoreError("something was forgotten while the records were written", fix="export again")
    return main, side
