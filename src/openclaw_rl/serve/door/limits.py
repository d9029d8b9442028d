"""How many connections may be open at once, and how much each key may use."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from openclaw_rl.core.rights import NO_LIMITS, Limits
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.door.auth import Caller

log = logging.getLogger(__name__)

OWN = 128  # for the store, children's pipes, adapters being read, and other files that are not connections
_BODY = (
    b'{"error":{"message":"the server has as many connections as it takes. Try again in a moment",'
    b'"type":"server_error","param":null,"code":"too_many_connections"}}'
)
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


@dataclass(slots=True)
class Allowance:
    """N a minute: full at first, refilled evenly, and negative if more was taken than was left."""

    a_minute: int
    left: float
    at_s: float

    def fill(self, now_s: float) -> None:
        """Adds what was refilled since the last call."""
        self.left = min(float(self.a_minute), self.left + max(0.0, now_s - self.at_s) * self.a_minute / 60.0)
        self.at_s = now_s

    def wait_s(self, wanted: float) -> float:
        """Seconds until `wanted` are available."""
        return max(0.0, (wanted - self.left) * 60.0 / self.a_minute)


@dataclass(slots=True)
class Meter:
    """How much each key may use: requests and tokens a minute, and the size of a request.

    `usual` applies to keys without their own limits. 0 is no limit.

    Tokens are known only when an answer has ended: a key that has used more than a minute's share waits until it is
    refilled. `feedback_a_minute` limits thumbs and corrections only. `refused` counts by kind.
    """

    usual: Limits = NO_LIMITS
    feedback_a_minute: int = 0
    clock: Callable[[], float] = time.monotonic
    refused: dict[str, int] = field(default_factory=lambda: {"requests": 0, "tokens": 0, "feedback": 0, "size": 0})
    _held: dict[tuple[str, str], Allowance] = field(default_factory=dict)  # keys are few: they are made by hand
    _own: dict[str, Limits] = field(default_factory=dict)

    def request(self, caller: Caller, *, is_feedback: bool = False) -> None:
        """Counts one more. Raises RequestError (429) if it is too many."""
        self._own[caller.name] = caller.limits
        tokens = self._of("tokens", caller.name)
        if tokens is not None and tokens.left <= 0:
            raise self._too_many("tokens", tokens, 1.0)
        for kind in ("feedback", "requests") if is_feedback else ("requests",):
            held = self._of(kind, caller.name)
            if held is not None and held.left < 1.0:
                raise self._too_many(kind, held, 1.0)
        for kind in ("feedback", "requests") if is_feedback else ("requests",):
            held = self._of(kind, caller.name)
            if held is not None:
                held.left -= 1.0

    def spend(self, name: str, tokens: int) -> None:
        """Counts the tokens of an answer for this key, those of its prompt included."""
        held = self._of("tokens", name)
        if held is not None:
            held.left -= tokens

    def size(self, caller: Caller, size_bytes: int) -> None:
        """Raises HTTPRequestEntityTooLarge if a request of this key is too large."""
        most = caller.limits.max_body_bytes or self.usual.max_body_bytes
        if most and size_bytes > most:
            self.refused["size"] += 1
            raise web.HTTPRequestEntityTooLarge(most)

    def _of(self, kind: str, name: str) -> Allowance | None:
        own = self._own.get(name, NO_LIMITS)
        a_minute = {
            "requests": own.requests_a_minute or self.usual.requests_a_minute,
            "tokens": own.tokens_a_minute or self.usual.tokens_a_minute,
            "feedback": self.feedback_a_minute,
        }[kind]
        if not a_minute:
            return None
        now_s = self.clock()
        held = self._held.get((kind, name))
        if held is None or held.a_minute != a_minute:
            held = self._held[kind, name] = Allowance(a_minute, float(a_minute), now_s)
        held.fill(now_s)
        return held

    def _too_many(self, kind: str, held: Allowance, wanted: float) -> RequestError:
        self.refused[kind] += 1
        wait_s = max(1, math.ceil(held.wait_s(wanted)))
        return RequestError(
            f"this key has used its {held.a_minute} {kind} a minute",
            fix=f"try again in {wait_s} s",
            status=429,
            code="rate_limit_exceeded",
            retry_s=wait_s,
        )


def room_for(connections: int) -> int:
    """The number of connections that file handles allow, at most `connections`; raises the process's limit for them."""
    if sys.platform == "win32":
        return connections
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OWN
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        message = "connections=%d instead of %d: the system allows this process %d open files"
        log.warning(message, most - OWN, connections, most)
    return max(1, most - OWN)


@dataclass(slots=True)
class Door:
    """How many connections may be open at once: a further one is asked to try again, before anything is read from it.

    Called for each connection, it returns the protocol that answers it. `refused` counts connections without a place.
    """

    server: web.Server
    most: int
    refused: int = 0

    def __call__(self) -> asyncio.BaseProtocol:
        """The server's protocol, or one that answers 503 and closes."""
        if self.open < self.most:
            return self.server()
        self.refused += 1
        return _Full()

    @property
    def open(self) -> int:
        """The number of open connections."""
        return len(self.server.connections)


class _Full(asyncio.Protocol):
    """Answers that there is no place. Its base class is how asyncio calls back."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(_ANSWER)
        transport.close()
