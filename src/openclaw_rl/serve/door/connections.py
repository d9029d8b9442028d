"""How many connections may be open at once: one too many is asked to come again, before anything is read from it.

And how many files and connections the process may have open at all.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass

from aiohttp import web

log = logging.getLogger(__name__)
OWN = 128  # for the store, children's pipes, adapters being read, and what else is no connection
_BODY = (
    b'{"error":{"message":"the server has as many connections as it takes. Try again in a moment",'
    b'"type":"server_error","param":null,"code":"too_many_connections"}}'
)
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


def room_for(connections: int) -> int:
    """How many connections there are handles for, at most those asked for; the process's bound is raised for them."""
    if sys.platform == "win32":
        return connections
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OWN
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        told = "connections=%d instead of %d: the system allows this process %d open files"
        log.warning(told, most - OWN, connections, most)
    return max(1, most - OWN)


@dataclass(slots=True)
class Door:
    """Called for each connection: whoever answers it. `refused` counts those for whom there was no place."""

    server: web.Server
    most: int
    refused: int = 0

    def __call__(self) -> asyncio.BaseProtocol:
        """The server's protocol, or one that answers 503 and hangs up."""
        if self.open < self.most:
            return self.server()
        self.refused += 1
        return _Full()

    @property
    def open(self) -> int:
        """Connections the server holds."""
        return len(self.server.connections)


class _Full(asyncio.Protocol):
    """Says that there is no place. Its base class is how asyncio calls back."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(_ANSWER)
        transport.close()
