"""The address a server will listen on: taken before anything is loaded, so that one in use is reported at once.

Until `opened` is asked for, clients are refused as where no server runs: one that waits for an open port finds it when
there is somebody to answer.
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
    """Sockets that are bound and do not listen yet, and what speaks TLS on them."""

    sockets: tuple[socket.socket, ...]
    tls: ssl.SSLContext | None

    def opened(self) -> tuple[socket.socket, ...]:
        """The sockets, ready to listen."""
        for one in self.sockets:
            # Connections take this over from it; without, those of the server before would keep the next from starting.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return self.sockets

    @property
    def url(self) -> str:
        """Where clients reach it."""
        host, port = self.sockets[0].getsockname()[:2]
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


@asynccontextmanager
async def taken(settings: ServeSettings) -> AsyncIterator[BoundAddress]:
    """The address in the settings, nobody else's from now on. Raises ConfigError where it cannot be had or used."""
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
    """Binds it, also where connections of a server before are still closing, and lets nobody else do the same.

    Two sockets that may both reuse an address are bound side by side, and the second listens first.
    """
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind(address)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
