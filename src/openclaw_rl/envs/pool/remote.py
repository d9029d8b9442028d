"""One pool server on the client's side: requests are repeated until answered, and still done once."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp
import msgspec

from openclaw_rl.envs.pool.status import PoolStatus
from openclaw_rl.envs.pool.wire import MOST_WAIT_S, OPERATION, TOKEN, Granted, encoded, refusal_of
from openclaw_rl.envs.task import Failure
from openclaw_rl.errors import ConfigError, PoolError

AWAY_S = 5.0  # pause in new leases for a server that did not answer
FIRST_PAUSE_S, MOST_PAUSE_S = 0.05, 1.0
CONNECT_S = 5.0
STATUS_S = 5.0
MARGIN_S = 15.0  # in addition to the time that a server may wait
IS_AWAY = "pool_away"


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease as its client holds it."""

    server: RemotePool
    granted: Granted

    @property
    def path(self) -> str:
        """The path for its calls."""
        return f"/v1/leases/{self.granted.lease}"


class RemotePool:
    """A server. PoolError if it refuses, or does not answer within `patience_s`."""

    def __init__(self, url: str, key: str, session: aiohttp.ClientSession, *, patience_s: float) -> None:
        self.url = url.rstrip("/")
        self._bearer = {"Authorization": f"Bearer {key}"}
        self._session = session
        self._patience_s = patience_s
        self._status: PoolStatus | None = None
        self._status_s = 0.0
        self._away_until = 0.0
        self.lacks: set[str] = set()  # tasks that it does not have

    @property
    def is_away(self) -> bool:
        """Whether it recently failed to answer."""
        return time.monotonic() < self._away_until

    async def status(self, *, fresh_s: float, even_if_away: bool = True) -> PoolStatus | None:
        """Its status, at most this many seconds old; None if it does not answer, or recently failed to."""
        if self._status is not None and time.monotonic() - self._status_s < fresh_s:
            return self._status
        if self.is_away and not even_if_away:
            return None
        try:
            body = await self._once("GET", "/v1/pool", b"", {}, STATUS_S)
        except PoolError as problem:
            if problem.code != IS_AWAY:
                raise
            return None
        self._status, self._status_s = msgspec.json.decode(body, type=PoolStatus), time.monotonic()
        return self._status

    async def _once(self, method: str, path: str, body: bytes, headers: Mapping[str, str], within_s: float) -> bytes:
        """The body of an answer of 200; PoolError for any other."""
        timeout = aiohttp.ClientTimeout(total=within_s, sock_connect=CONNECT_S)
        try:
            async with self._session.request(
                method,
                self.url + path,
                data=body or None,
                headers={**self._bearer, **headers},
                timeout=timeout,
            ) as answer:
                said = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            self._away_until = time.monotonic() + AWAY_S
            raise PoolError(
                f"the pool at {self.url} does not answer: {problem or type(problem).__name__}",
                fix="check that it runs and can be reached",
                status=0,
                code=IS_AWAY,
                failure=Failure.INFRASTRUCTURE,
            ) from problem
        self._away_until = 0.0
        if answer.status in (200, 202):
            return said if answer.status == 200 else b""
        retry = answer.headers.get("Retry-After", "")
        refusal = refusal_of(answer.status, said, int(retry) if retry.isdecimal() else None)
        if answer.status == 401:
            raise ConfigError(f"the pool at {self.url} refuses the key", fix=refusal.fix)
        raise refusal

    async def ask(
        self, method: str, path: str, body: object = None, *, token: int | None = None, within_s: float | None = None
    ) -> bytes:
        """The answer to a request that changes nothing or may be done twice. Repeated while the server is away."""
        headers = {} if token is None else {TOKEN: str(token)}
        data = b"" if body is None else encoded(body)
        limit_s = within_s or STATUS_S
        until, pause_s = time.monotonic() + (self._patience_s if within_s is None else within_s), FIRST_PAUSE_S
        while True:
            try:
                return await self._once(method, path, data, headers, limit_s)
            except PoolError as problem:
                if problem.code != IS_AWAY or time.monotonic() + pause_s > until:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MOST_PAUSE_S)

    async def operate(
        self,
        path: str,
        body: object,
        *,
        token: int | None = None,
        within_s: float,
        watch: Callable[[bytes], None] | None = None,
    ) -> bytes:
        """The result of an operation, which gets its own id and is repeated and polled until there is a result.

        `watch` gets the output of a command as it is printed.

        PoolError: `pool_away` if the server did not answer for `patience_s`, `deadline_exceeded` after `within_s`.
        """
        name = uuid.uuid4().hex
        headers = {OPERATION: name} | ({} if token is None else {TOKEN: str(token)})
        data = encoded(body)
        until = time.monotonic() + within_s
        heard_s, pause_s, is_begun = time.monotonic(), FIRST_PAUSE_S, False
        while True:
            left_s = max(0.0, min(MOST_WAIT_S, until - time.monotonic()))
            try:
                if is_begun:
                    target = f"/v1/operations/{name}?wait_s={left_s:.3f}"
                    said = await self._once("GET", target, b"", headers, left_s + MARGIN_S)
                else:
                    target = f"{path}?wait_s={left_s if watch is None else 0.0:.3f}"
                    said = await self._once("POST", target, data, headers, left_s + MARGIN_S)
                if said:
                    return said
                heard_s, pause_s, is_begun = time.monotonic(), FIRST_PAUSE_S, True
                if watch is not None:
                    await self._watched(name, watch, until)
                    watch = None
            except PoolError as problem:
                if problem.code != IS_AWAY or time.monotonic() - heard_s > self._patience_s:
                    raise
                is_begun = False  # it may have been killed before it recorded the operation
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MOST_PAUSE_S)
            if time.monotonic() > until:
                await self._give_up(name)
                raise PoolError(
                    f"the pool at {self.url} did not end {path.rpartition('/')[2]} in {within_s:.1f} s",
                    status=504,
                    code="deadline_exceeded",
                    failure=Failure.INFRASTRUCTURE,
                )

    async def _watched(self, name: str, watch: Callable[[bytes], None], until: float) -> None:
        """Passes on an operation's output until it or the connection ends."""
        timeout = aiohttp.ClientTimeout(total=max(0.1, until - time.monotonic()), sock_connect=CONNECT_S)
        target = f"{self.url}/v1/operations/{name}/output"
        try:
            async with self._session.get(target, headers=self._bearer, timeout=timeout) as answer:
                async for piece in answer.content.iter_any():
                    watch(piece)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return  # the result is polled anyway, and says what is wrong

    async def _give_up(self, name: str) -> None:
        try:
            await self._once("POST", f"/v1/operations/{name}/cancel?wait_s=0", b"", {}, STATUS_S)
        except PoolError:
            return  # it is away or does not know it: then nothing runs, or the lease expires

    async def lease(self, body: object, *, within_s: float) -> HeldLease:
        """A lease, after waiting in the server's queue."""
        said = await self.operate("/v1/leases", body, within_s=within_s)
        if self._status is not None:
            self._status.taken += 1
        return HeldLease(self, msgspec.json.decode(said, type=Granted))
