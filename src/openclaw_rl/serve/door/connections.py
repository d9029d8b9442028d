"""How many connections may be open at once: one too many is told to come again, before anything is read from it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import web

_BODY = (
    b'{"error":{"message":"the server has as many connections as it takes. Try again in a moment",'
    b'"type":"server_error","param":null,"code":"too_many_connections"}}'
)
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


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
