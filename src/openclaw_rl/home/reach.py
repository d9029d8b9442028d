"""Access to an installation: the server that runs on its folder, over HTTP, or else its store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import aiohttp

from openclaw_rl.core.disk import is_read_only
from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError, StoreError
from openclaw_rl.home.folder import KEY, address_of
from openclaw_rl.store.db import Store

TIMEOUT = aiohttp.ClientTimeout(total=60)


async def server_status(home: Path) -> dict[str, Json]:
    """The whole status of the running server."""
    return await asked(home, "GET", "/v1/rl/status")


@asynccontextmanager
async def opened(home: Path, *, to_read: bool = False) -> AsyncIterator[Store]:
    """The store of a folder without a running server; with `to_read`, also of a read-only folder. Raises StoreError."""
    only_reads = to_read and await asyncio.to_thread(is_read_only, home)
    store = await (Store.open_to_read(home) if only_reads else Store.open(home))
    try:
        yield store
    finally:
        await store.aclose()


async def asked(
    home: Path,
    method: str,
    path: str,
    body: Json = None,
    *,
    limit: aiohttp.ClientTimeout = TIMEOUT,
    key: str | None = None,
) -> dict[str, Json]:
    """The running server's answer. `key` is that of a command that takes one: empty if none was given."""
    async with asking(home, method, path, body, limit=limit, key=key or "") as response:
        if response.status == 401 and key is not None:
            raise ConfigError(
                "the running server does not take the API key that was given"
                if key
                else "the running server uses another API key than the one in its home folder",
                fix="give --api-key, or set SGLANG_API_KEY, to the key that the server was started with or another "
                "one with the scope `admin`",
            )
        return await answer_of(response)


@asynccontextmanager
async def asking(
    home: Path,
    method: str,
    path: str,
    body: Json = None,
    *,
    limit: aiohttp.ClientTimeout,
    query: Mapping[str, str] = MappingProxyType({}),
    key: str = "",
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The running server's response. Without a `key` the home folder's is sent. Raises StoreError if it breaks off."""
    address = address_of(home)
    if address is None:
        raise StoreError(f"no server runs on {home} any more", fix="run the command again")
    if not key and (home / KEY).is_file():
        key = (home / KEY).read_text("utf-8").strip()
    headers = {"Authorization": f"Bearer {key}"}
    try:
        async with (
            aiohttp.ClientSession(headers=headers, timeout=limit) as session,
            session.request(method, address.url + path, json=body, params=query) as response,
        ):
            yield response
    except (aiohttp.ClientError, ValueError, TimeoutError) as problem:
        raise StoreError(
            f"the server at {address.url} does not answer: {problem}", fix="check that it is running, and try again"
        ) from problem


async def answer_of(response: aiohttp.ClientResponse) -> dict[str, Json]:
    """The body. Raises ConfigError for an error."""
    answer = await response.json(content_type=None)
    if response.status == 401:
        raise ConfigError(
            "the running server uses another API key than the one in its home folder",
            fix="start the server without --api-key, or call its HTTP API with that key",
        )
    if response.status != 200 or not isinstance(answer, dict):
        error = answer.get("error") if isinstance(answer, dict) else None
        if not isinstance(error, dict) or "message" not in error:
            raise ConfigError(f"the server says: {answer}")
        fix = str(error.get("fix", ""))
        problem = str(error["message"]).removesuffix(str(ConfigError("", fix=fix)))
        raise ConfigError(f"the server says: {problem}", fix=fix)
    return answer
