"""The address a server will listen on: bound before anything is loaded, so that one in use is reported at once.

Until `opened` is called, connections are refused as if no server ran: a client that waits for an open port finds it
when requests can be answered.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from openclaw_rl.errors import ConfigError
from openclaw_rl.home.exposure import check_exposure, tls_of
from openclaw_rl.serve.settings import ServeSettings

Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


@dataclass(frozen=True, slots=True)
class BoundAddress:
    """Sockets that are bound and do not listen yet, and their TLS context."""

    sockets: tuple[socket.socket, ...]
    tls: ssl.SSLContext | None

    def opened(self) -> tuple[socket.socket, ...]:
        """The sockets, ready to listen."""
        for one in self.sockets:
            # Connections inherit this option; without it, those of an earlier server would keep the next from starting.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return self.sockets

    @property
    def url(self) -> str:
        """The URL for clients."""
        host, port = self.sockets[0].getsockname()[:2]
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


@asynccontextmanager
async def taken(settings: ServeSettings) -> AsyncIterator[BoundAddress]:
    """The address in the settings, bound exclusively. Raises ConfigError if it is not available or not usable."""
    check_exposure(settings)
    tls = await asyncio.to_thread(tls_of, settings)
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        try:
            found = await asyncio.to_thread(_addresses, settings)
            for at, (family, address) in enumerate(found):
                one = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
                try:
                    _bind(one, family, address)
                except OSError as problem:
                    is_needed = at == len(found) - 1 and not sockets
                    if problem.errno in _NOT_HERE and not is_needed:
                        continue  # `localhost` may have an address of a kind that this machine does not
                    raise
                sockets.append(one)
        except OSError as problem:
            raise ConfigError(
                f"the server cannot listen on {settings.host}:{settings.port}: {problem.strerror or problem}",
                fix="stop the program that uses this port, or give another --port (0: any free port)",
            ) from problem
        yield BoundAddress(tuple(sockets), tls)


def _addresses(settings: ServeSettings) -> list[tuple[socket.AddressFamily, Address]]:
    found = socket.getaddrinfo(settings.host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, address) for family, _, _, _, address in found]


def _bind(one: socket.socket, family: socket.AddressFamily, address: Address) -> None:
    """Binds it, even if connections of an earlier server are still closing, and prevents others from doing the same.

    Two sockets that may both reuse an address can both be bound, and the second may listen first.
    """
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind(address)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
