"""A client that costs next to nothing: whole requests as bytes, answers only searched for their events."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass

END = b"data: [DONE]\n\n"
_WORD = re.compile(rb'"content":"[^"]')


@dataclass(slots=True)
class Seen:
    """What came of one request."""

    sent_s: float
    first_s: float = 0.0  # when the first piece of text came
    data: bytearray | None = None

    @property
    def events(self) -> int:
        """Events that carried text."""
        return len(_WORD.findall(self.data or b""))

    @property
    def text(self) -> str:
        """All pieces of text as one."""
        found = re.findall(rb'"content":"((?:[^"\\]|\\.)*)"', self.data or b"")
        return b"".join(found).decode().replace("\\n", "\n").replace('\\"', '"')


def request(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """The bytes of a POST."""
    lines = {"host": "bench", "content-type": "application/json", "content-length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


class Line(asyncio.Protocol):
    """A connection that sends one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._seen = Seen(0.0)
        self._done: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, port: int) -> Line:
        """Connected to this machine's port."""
        _, line = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return line

    async def ask(self, asked: bytes) -> Seen:
        """Sends the request and waits for the mark of the end."""
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._seen = Seen(time.perf_counter(), data=bytearray())
        self._transport.write(asked)
        await self._done
        return self._seen

    def close(self) -> None:
        """Hangs up."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It may send."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Notes the first piece of text, and the end."""
        seen = self._seen
        if seen.data is None:
            return
        seen.data += data
        if not seen.first_s and _WORD.search(seen.data):
            seen.first_s = time.perf_counter()
        if self._done is not None and not self._done.done() and seen.data.find(END, -64) >= 0:
            self._done.set_result(None)

    def connection_lost(self, problem: Exception | None) -> None:
        """Whoever waits is told."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(problem or ConnectionError("the server hung up"))
