"""GET /v1/rl/export: all turns as lines of JSON, from one state of the store, while serving goes on."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from aiohttp import web

from openclaw_rl.errors import OpenClawRLError, RequestError
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.store.export import ExportFilter, pieces
from openclaw_rl.store.forms import ExportForm

FORGOTTEN = "x-openclaw-rl-forgotten"  # how much was forgotten when the records were read
_MOST_PATH_CHARS = 4096
_SAID = {"true": True, "false": False}


async def export(request: web.Request, parts: ServeParts, key_name: str) -> web.StreamResponse:
    """Every turn with next state, votes, score and hints, one line of JSON each, oldest first.

    `user` or `session` choose whose; `side=false` leaves side requests out; `form` is another form, as `openclaw-rl
    export --help` lists them. `to` is the file they are written to, which
    is remembered for when something is forgotten. Where something is forgotten meanwhile, the answer is broken off.
    """
    wanted, to = _asked(request)
    if to is not None:
        await parts.store.exports.note(to, at_s=parts.clock())
    begun, known = parts.store.forgettings.begun, len(await parts.store.forgettings.all())
    response = web.StreamResponse(headers={FORGOTTEN: str(known)})
    response.content_type = "application/x-ndjson"
    try:
        async with parts.store.exports.snapshot() as snapshot:
            read_s = time.monotonic()
            async for piece in pieces(snapshot, wanted):
                # what is forgotten now must not be sent any more, nor the log be kept for a state that contains it
                if parts.store.forgettings.begun != begun or parts.is_stopping():
                    return _broken_off(request, response)
                # as long as reading took others have the interpreter
                await asyncio.sleep(time.monotonic() - read_s)
                if not response.prepared:
                    await response.prepare(request)
                async with asyncio.timeout(parts.settings.stalled_s):
                    await response.write(piece.lines)
                read_s = time.monotonic()
    except (OpenClawRLError, TimeoutError):
        if not response.prepared:
            raise
        return _broken_off(request, response)
    if not response.prepared:
        await response.prepare(request)
    await response.write_eof()
    return response


def _asked(request: web.Request) -> tuple[ExportFilter, Path | None]:
    query = request.query
    side, to, form = query.get("side", "true"), query.get("to"), query.get("form", ExportForm.RECORDS)
    if form not in set(ExportForm):
        raise RequestError(f"form is {form!r}", fix=f"send one of {', '.join(ExportForm)}", param="form")
    if side not in _SAID:
        raise RequestError(f"side is {side!r}", fix="send true or false", param="side")
    if to is not None and (len(to) > _MOST_PATH_CHARS or "\0" in to or not Path(to).is_absolute()):
        raise RequestError(
            "to is not an absolute file path", fix="send one that begins with /, or leave it out", param="to"
        )
    wanted = ExportFilter(query.get("session"), query.get("user"), with_side=_SAID[side], form=ExportForm(form))
    return wanted, None if to is None else Path(to)


def _broken_off(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """The end of an incomplete answer: its client sees a broken connection."""
    if not response.prepared:
        raise RequestError(
            "something was forgotten during the export, or the server is stopping",
            fix="ask again",
            status=503,
            code="changed",
        )
    if request.transport is not None:
        request.transport.abort()
    return response
