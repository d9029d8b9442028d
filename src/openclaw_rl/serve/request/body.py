"""A request's body as it arrives: whole, in time and of a size, or refused in words."""

from __future__ import annotations

import asyncio

from aiohttp import web

from openclaw_rl.errors import RequestError
from openclaw_rl.serve.settings import ServeSettings


async def received(request: web.Request, settings: ServeSettings) -> None:
    """Returns once the body is here, so that `request.read()` waits for nothing.

    Raises RequestError for one that comes too slowly or breaks off, and HTTPRequestEntityTooLarge.
    """
    if not request.body_exists:
        return
    if (request.content_length or 0) > settings.max_body_bytes:  # known before a byte of it is kept
        raise web.HTTPRequestEntityTooLarge(settings.max_body_bytes)
    try:
        if request.content.is_eof():
            await request.read()
        else:
            async with asyncio.timeout(settings.body_s):
                await request.read()
    except TimeoutError:
        raise RequestError(
            f"the request body did not arrive within {settings.body_s:g} s",
            fix="send it at once",
            status=408,
            code="body_too_slow",
        ) from None
    except web.RequestPayloadError as problem:
        raise RequestError(
            f"the request body breaks off or is not encoded as its headers say: {problem}",
            fix="send as many bytes as Content-Length names, or whole chunks",
            code="invalid_body",
        ) from problem
