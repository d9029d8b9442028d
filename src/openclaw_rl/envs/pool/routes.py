"""The pool over HTTP: one handler per route; all errors are made here. docs/pool.md describes the protocol."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from openclaw_rl.envs.pool.calls import ask, begin_call
from openclaw_rl.envs.pool.leases import CLOSED, Lease, gone_as
from openclaw_rl.envs.pool.operations import Operation, OperationResult
from openclaw_rl.envs.pool.pool import Pool
from openclaw_rl.envs.pool.status import metrics_text, status_of
from openclaw_rl.envs.pool.wire import (
    MOST_BODY_BYTES,
    MOST_WAIT_S,
    OPERATION,
    REPLAYED,
    TOKEN,
    CallBody,
    PoolLeaseBody,
    PrewarmBody,
    encoded,
    refusal_body,
)
from openclaw_rl.errors import PoolError, TaskError

log = logging.getLogger(__name__)
# Calls that change nothing need no operation id, and are not recorded.
READS = frozenset({"read", "stats", "download"})
CALLS = frozenset(
    {"reset", "step", "evaluate", "exec", "write", "shell", "shell_run", "shell_close", "upload", "reset_box"}
) | {"fork", "snapshot"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
B = TypeVar("B")


def app_of(pool: Pool, key: str) -> web.Application:
    """The application: every route except /health needs the key."""
    app = web.Application(client_max_size=MOST_BODY_BYTES, middlewares=[_guard(key)])
    routes = Routes(pool)
    app.add_routes(
        [
            web.get("/health", routes.health),
            web.get("/metrics", routes.metrics),
            web.get("/v1/pool", routes.status),
            web.get("/v1/tasks", routes.tasks),
            web.post("/v1/drain", routes.drain),
            web.post("/v1/prewarm", routes.prewarm),
            web.post("/v1/leases", routes.lease),
            web.post("/v1/renew", routes.renew),
            web.get("/v1/leases/{lease}", routes.look),
            web.delete("/v1/leases/{lease}", routes.close),
            web.get("/v1/leases/{lease}/events", routes.events),
            web.post("/v1/leases/{lease}/{call}", routes.call),
            web.get("/v1/operations/{operation}", routes.poll),
            web.get("/v1/operations/{operation}/output", routes.output),
            web.post("/v1/operations/{operation}/cancel", routes.cancel),
        ]
    )
    return app


def _guard(key: str) -> Middleware:
    wanted = f"Bearer {key}".encode()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            if request.path != "/health" and not hmac.compare_digest(given, wanted):
                raise PoolError(
                    "the key is not this pool's" if given else "this pool needs a key",
                    fix="send it as `Authorization: Bearer KEY`; it is in the file api_key of the pool's folder",
                    status=401,
                    code="wrong_key",
                )
            return await handler(request)
        except PoolError as problem:
            return _refused(problem)
        except msgspec.MsgspecError as problem:
            return _refused(PoolError(f"the body cannot be read: {problem}", code="invalid_body"))
        except TaskError as problem:
            return _refused(PoolError(problem.problem, status=422, code="broken_task", failure="environment"))
        except web.HTTPException as problem:
            return _refused(PoolError(problem.reason.lower(), status=problem.status, code="http"))
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return _refused(
                PoolError("the pool failed; see its log", status=500, code="pool_failed", failure="infrastructure")
            )

    return guard


class Routes:
    """The handlers."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def health(self, _request: web.Request) -> web.Response:
        """The health of the server, and whether it gives out leases."""
        return _json({"status": "draining" if self._pool.is_draining else "open"})

    async def metrics(self, _request: web.Request) -> web.Response:
        """For Prometheus."""
        return web.Response(body=metrics_text(self._pool), content_type="text/plain", charset="utf-8")

    async def status(self, _request: web.Request) -> web.Response:
        """How it stands."""
        return _json(status_of(self._pool))

    async def tasks(self, request: web.Request) -> web.Response:
        """The tasks of all sources, or of one."""
        wanted = request.query.get("source")
        sources = self._pool.catalogue.sources.items()
        found = [
            {"source": name, "id": task.id, "split": task.split, "resources": task.resources, "limits": task.limits}
            for name, source in sources
            if wanted in (None, name)
            for task in source.tasks.values()
        ]
        return _json({"tasks": found})

    async def drain(self, request: web.Request) -> web.Response:
        """Stops giving out leases, or starts again (`{"on": false}`)."""
        said = msgspec.json.decode(await request.read() or b"{}", type=dict[str, bool])
        await self._pool.drain(is_on=said.get("on", True))
        return _json(status_of(self._pool))

    async def prewarm(self, request: web.Request) -> web.Response:
        """Prepares tasks' states."""
        return _json({"begun": await self._pool.prewarm(await _body(request, PrewarmBody))})

    async def lease(self, request: web.Request) -> web.Response:
        """A lease, at once or after a wait."""
        raw = await request.read()
        operation = await self._pool.lease(_operation(request), raw, msgspec.json.decode(raw, type=PoolLeaseBody))
        return await self._answered(request, operation)

    async def renew(self, request: web.Request) -> web.Response:
        """Renews many leases at once: `{"leases": {ID: TOKEN}}`; the answer names those that have ended."""
        said = msgspec.json.decode(await request.read(), type=dict[str, dict[str, int]])
        lost = {}
        for name, token in said.get("leases", {}).items():
            try:
                await self._pool.held(name, str(token))
            except PoolError as problem:
                lost[name] = problem.problem
        return _json({"lost": lost})

    async def look(self, request: web.Request) -> web.Response:
        """A lease; reading it renews it."""
        lease = await self._held(request)
        return _json({"lease": lease.id, "run": lease.run, "kind": lease.kind, "ttl_s": lease.ttl_s})

    async def close(self, request: web.Request) -> web.Response:
        """Closes a lease, and answers when its place is free; closing an ended lease succeeds."""
        name, token = request.match_info["lease"], request.headers.get(TOKEN, "")
        lease = self._pool.leases.get(name)
        if lease is not None:
            if lease.ending is None:
                lease.check(token)
            await asyncio.shield(self._pool.end(lease, CLOSED))
            return _json({})
        kept = await self._pool.journal.lease(name)
        if kept is None or str(kept.token) != token:
            raise gone_as(kept, name, token)
        return _json({})

    async def events(self, request: web.Request) -> web.Response:
        """All events of a lease, one JSON object per line; available after its end too."""
        name = request.match_info["lease"]
        kept = await self._pool.journal.lease(name)
        if kept is None:
            raise PoolError(f"there is no lease {name!r}", status=404, code="unknown_lease")
        lines: list[object] = [kept]
        lines += await self._pool.journal.operations_of(name)
        body = b"".join(encoded(_readable(msgspec.to_builtins(line, builtin_types=(bytes,)))) + b"\n" for line in lines)
        return web.Response(body=body, content_type="application/x-ndjson")

    async def call(self, request: web.Request) -> web.Response:
        """A call on a lease."""
        name = request.match_info["call"]
        if name not in CALLS | READS:
            raise PoolError(
                f"there is no call {name!r}", fix=f"there are: {', '.join(sorted(CALLS | READS))}", status=404
            )
        raw = await request.read()
        body = msgspec.json.decode(raw or b"{}", type=CallBody)
        if name in READS:
            lease = await self._held(request)
            answer = await ask(self._pool, lease, name, body, within_s=body.deadline_s or MOST_WAIT_S)
            return web.Response(body=answer, content_type="application/json")
        try:
            lease = await self._held(request)
        except PoolError:
            operation = await self._known(request, name)
            if operation is None:
                raise
        else:
            operation = await begin_call(self._pool, lease, _operation(request), call=name, request=raw, body=body)
        return await self._answered(request, operation)

    async def _known(self, request: web.Request, call: str) -> Operation | None:
        """The answer to an operation that began before its lease ended, if there is one."""
        with suppress(PoolError):
            operation = await self._pool.operations.find(_operation(request))
            kept = await self._pool.journal.lease(operation.lease)
            is_own = kept is not None and str(kept.token) == request.headers.get(TOKEN)
            if is_own and operation.call == call and operation.lease == request.match_info["lease"]:
                return operation
        return None

    async def poll(self, request: web.Request) -> web.Response:
        """The result of an operation."""
        operation = await self._pool.operations.find(request.match_info["operation"])
        return await self._answered(request, operation)

    async def output(self, request: web.Request) -> web.StreamResponse:
        """The output of a running command, from `?from=` on."""
        operation = await self._pool.operations.find(request.match_info["operation"])
        start = request.query.get("from", "0")
        at = int(start) if start.isdecimal() else 0
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream", OPERATION: operation.id})
        await response.prepare(request)
        while True:
            operation.output.changed.clear()
            is_done = operation.done.done()
            data, at = operation.output.after(at)
            if data:
                await response.write(data)
            if is_done:
                return response
            await operation.output.changed.wait()

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancels an operation; its answer says so, or is the result that came before."""
        operation = await self._pool.operations.find(request.match_info["operation"])
        operation.cancel(PoolError(f"{operation.call} was cancelled", status=409, code="cancelled"))
        return await self._answered(request, operation)

    async def _held(self, request: web.Request) -> Lease:
        return await self._pool.held(request.match_info["lease"], request.headers.get(TOKEN, ""))

    async def _answered(self, request: web.Request, operation: Operation) -> web.Response:
        """The answer, or 202 if it takes longer than this request waits."""
        try:
            wanted_s = float(request.query.get("wait_s", MOST_WAIT_S))
        except ValueError as problem:
            raise PoolError("wait_s is not a number", code="invalid_body") from problem
        lease = self._pool.leases.get(operation.lease)
        ttl_s = lease.ttl_s if lease is not None else self._pool.options.ttl_s
        if lease is not None:
            lease.renew()
        answer = await operation.wait(max(0.0, min(wanted_s, MOST_WAIT_S, ttl_s / 2)))
        if answer is None:
            return _json({"operation": operation.id, "state": "running"}, status=202)
        return _answer(answer, operation)


def _answer(answer: OperationResult, operation: Operation) -> web.Response:
    headers = {OPERATION: operation.id} | ({REPLAYED: "true"} if answer.is_replayed else {})
    return web.Response(body=answer.body, status=answer.status, content_type="application/json", headers=headers)


def _refused(problem: PoolError) -> web.Response:
    headers = {"Retry-After": str(problem.retry_s)} if problem.retry_s is not None else {}
    return web.Response(
        body=refusal_body(problem), status=problem.status, content_type="application/json", headers=headers
    )


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=encoded(value), status=status, content_type="application/json")


def _operation(request: web.Request) -> str:
    return request.headers.get(OPERATION, "")


async def _body(request: web.Request, kind: type[B]) -> B:
    return msgspec.json.decode(await request.read(), type=kind)


def _readable(line: object) -> object:
    """A line of the events with what was sent and answered as JSON, if it is JSON."""
    if not isinstance(line, dict):
        return line
    return {name: _as_json(value) if isinstance(value, bytes) else value for name, value in line.items()}


def _as_json(data: bytes) -> object:
    try:
        found: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return data.decode("utf-8", "replace")
    return found
