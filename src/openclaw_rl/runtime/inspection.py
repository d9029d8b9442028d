"""What the commands beside `serve` read and do: from the running server where there is one, else from the store."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from openclaw_rl.core.message import Json
from openclaw_rl.core.version import parse_version
from openclaw_rl.errors import ConfigError, StoreError
from openclaw_rl.runtime.home import KEY, address_of
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionStatus

TIMEOUT = aiohttp.ClientTimeout(total=60)


async def ledger_of(home: Path) -> dict[str, Json]:
    """Turns by state and drops by reason."""
    if address_of(home) is not None:
        status = await asked(home, "GET", "/v1/rl/status")
        ledger = status["ledger"]
        assert isinstance(ledger, dict)
        return ledger
    async with opened(home) as store:
        return dict(await store.counts())


async def server_status(home: Path) -> dict[str, Json]:
    """The whole status of the running server."""
    return await asked(home, "GET", "/v1/rl/status")


async def roll_back(home: Path, name: str) -> str:
    """Serves an earlier version again and says so. Raises ConfigError for one that cannot be served."""
    try:
        version = parse_version(name)
    except ValueError:
        raise ConfigError(f"{name!r} is no version", fix="write a number, or a name such as shared.3") from None
    if address_of(home) is not None:
        await asked(home, "POST", "/v1/rl/rollback", {"version": str(version)})
        return f"version {version} is being served"
    async with opened(home) as store:
        pinned = await store.orders.pinned(version.scope)
        if pinned is not None:
            raise ConfigError(f"version {pinned} is pinned", fix="`openclaw-rl unpin` first, or pin another version")
        rows = {row.version: row for row in await store.versions()}
        row = rows.get(version)
        if not version.is_base and (row is None or row.status is not VersionStatus.LIVE):
            raise ConfigError(f"version {version} cannot be served", fix="`openclaw-rl versions` lists those that can")
        await store.set_current(version, why="rolled back by hand")
    return f"version {version} will be served from the next start on"


async def export_to(home: Path, out: Path, *, user: str | None = None) -> int:
    """How many turns were written to `out`: a user's, or everybody's."""
    from openclaw_rl.store.export import export

    if address_of(home) is not None:
        raise StoreError(f"{home} is in use by a running server", fix="stop it first; then export")
    async with opened(home) as store:
        await store.exports.note(out, at_s=time.time())  # what is forgotten is taken out of it
        return await export(store, out, Wanted(user=user, with_side=with_side))


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Store]:
    """The store of a folder that no server runs on. Raises StoreError."""
    store = await Store.open(home)
    try:
        yield store
    finally:
        await store.aclose()


async def asked(
    home: Path, method: str, path: str, body: Json = None, *, limit: aiohttp.ClientTimeout = TIMEOUT
) -> dict[str, Json]:
    """What the running server answers."""
    address = address_of(home)
    assert address is not None
    key = (home / KEY).read_text("utf-8").strip() if (home / KEY).is_file() else ""
    headers = {"Authorization": f"Bearer {key}"}
    try:
        async with (
            aiohttp.ClientSession(headers=headers, timeout=limit) as session,
            session.request(method, address.url + path, json=body) as response,
        ):
            answer = await response.json(content_type=None)
            status = response.status
    except (aiohttp.ClientError, ValueError, TimeoutError) as problem:
        raise StoreError(
            f"the server at {address.url} does not answer: {problem}", fix="see whether it runs"
        ) from problem
    if status == 401:
        raise ConfigError(
            "the running server was given another key than the home folder keeps",
            fix="start the server without --api-key, or ask it over HTTP with that key",
        )
    if status != 200 or not isinstance(answer, dict):
        detail = answer.get("error", {}).get("message", answer) if isinstance(answer, dict) else answer
        raise ConfigError(f"the server says: {detail}")
    return answer
