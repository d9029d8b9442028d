"""A proxy that only copies bytes to and from a server: what any program in front of it costs on the same cores.

python -m benchmarks.vllm_copy PORT, with the server on this machine; prints the port that it listens on.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial


class _To(asyncio.Protocol):
    """One side of a connection; what it receives is written to the other."""

    def __init__(self, peer: _To | None = None) -> None:
        self.peer = peer
        self.waiting: list[bytes] = []
        self.transport: asyncio.Transport | None = None
        self.has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Writes what came before there was a connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.writelines(self.waiting)
        if self.has_ended:
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Copies."""
        assert self.peer is not None
        self.peer.write(data)

    def write(self, data: bytes) -> None:
        """Writes now or once there is a connection."""
        if self.transport is None:
            self.waiting.append(data)
        else:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the other side, too, or as soon as it is connected."""
        assert self.peer is not None
        self.peer.has_ended = True
        if self.peer.transport is not None:
            self.peer.transport.close()


class _From(_To):
    """The client's side, which opens the server's."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self._opening: asyncio.Task[object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Opens the connection to the server."""
        super().connection_made(transport)
        self.peer = server = _To(self)
        loop = asyncio.get_running_loop()
        self._opening = loop.create_task(loop.create_connection(lambda: server, "127.0.0.1", self._port))


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(partial(_From, port), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
