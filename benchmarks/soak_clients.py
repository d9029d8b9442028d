"""The clients of `benchmarks.soak`: ordinary conversations, and all that goes wrong with clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from benchmarks.http import KEY
from benchmarks.raw_http import Line, request

CHAT = "/v1/chat/completions"
TURN = re.compile(rb"x-openclaw-rl-turn: ([^\r]+)", re.IGNORECASE)
LINES_KEPT = 50  # requests on a connection before a client opens another
HALF_OPEN = 150  # connections on which no request ever becomes whole
ENDED_SHARE = 0.1  # of conversations, those whose client says that they are over
THUMB_SHARE = 0.02
SLOW_TOKENS = 4000
HUGE_BYTES = 100_000_000


@dataclass(slots=True)
class Talk:
    """A conversation as its client holds it; messages are JSON already."""

    name: str
    turns: int
    messages: list[str] = field(default_factory=list)
    done: int = 0

    def body(self, asked: str, *, most: int = 200) -> bytes:
        """The next request."""
        self.messages.append(json.dumps({"role": "user", "content": asked}))
        return (
            f'{{"model":"default","stream":true,"max_tokens":{most},"messages":[{",".join(self.messages)}]}}'.encode()
        )

    def heard(self, reply: str) -> None:
        """The reply joins the conversation."""
        self.messages.append(json.dumps({"role": "assistant", "content": reply}))
        self.done += 1


@dataclass(slots=True)
class Book:
    """What came of all requests. `answered` holds (when, seconds) of ordinary turns; `turns` ids of whole answers."""

    answered: list[tuple[float, float]] = field(default_factory=list)
    turns: set[str] = field(default_factory=set)
    sessions: int = 0
    refused: int = 0  # ordinary requests that were not answered whole
    odd: dict[str, int] = field(default_factory=dict)  # the others, by kind

    def note(self, kind: str) -> None:
        """One more of a kind."""
        self.odd[kind] = self.odd.get(kind, 0) + 1


@dataclass(slots=True)
class Clients:
    """All clients of one server."""

    port: int
    turns_each: int
    sessions: int
    open_at_once: int
    book: Book = field(default_factory=Book)
    words: random.Random = field(default_factory=lambda: random.Random(7))
    _pool: list[Talk] = field(default_factory=list)

    async def talk(self) -> None:
        """One worker: turns of conversations picked at random, until all have had theirs."""
        line: Line | None = None
        used = 0
        while (talk := self._picked()) is not None:
            if line is None or used >= LINES_KEPT:
                if line is not None:
                    line.close()
                line, used = await Line.open(self.port), 0
            used += 1
            try:
                await self._turn(line, talk)
            except ConnectionError:
                line = None
                if used > 1:  # the server may close a kept connection just as it is used: clients ask once more
                    self.book.note("asked again")
                    talk.messages.pop()
                else:
                    self.book.refused += 1
                    talk.done += 1
            if talk.done < talk.turns:
                self._pool.append(talk)
        if line is not None:
            line.close()

    def _picked(self) -> Talk | None:
        """A conversation nobody else is at; new ones begin while there are fewer open than there may be."""
        if self.book.sessions < self.sessions and len(self._pool) < self.open_at_once:
            self.book.sessions += 1
            # those that begin together are to end apart
            first = self.book.sessions <= self.open_at_once
            turns = 1 + self.book.sessions * 7 % (2 * self.turns_each - 1) if first else self.turns_each
            self._pool.append(Talk(f"s{self.book.sessions}", turns))
        if not self._pool:
            return None
        at = self.words.randrange(len(self._pool))
        self._pool[at], self._pool[-1] = self._pool[-1], self._pool[at]
        return self._pool.pop()

    async def _turn(self, line: Line, talk: Talk) -> None:
        headers = {"x-session-id": talk.name}
        if talk.done + 1 == talk.turns and self.words.random() < ENDED_SHARE:
            headers["x-session-done"] = "1"
        asked = f"{talk.done} of {talk.name}: please work out {self.words.random()} " + "and tell how. " * 6
        body = talk.body(asked)
        begin = time.perf_counter()
        turn, reply = await asked_on(line, body, headers)
        if turn is None:
            self.book.refused += 1
            talk.done += 1
            return
        talk.heard(reply)
        self.book.answered.append((begin, time.perf_counter() - begin))
        self.book.turns.add(turn)
        if self.words.random() < THUMB_SHARE:
            await self.thumb(turn)

    async def thumb(self, turn: str) -> None:
        """A thumb up."""
        body = json.dumps({"response_id": turn, "score": 1}).encode()
        await self.sent("POST", "/v1/feedback", body)
        self.book.note("thumbs")

    async def sent(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The whole answer, on a connection of its own."""
        async with self.connected() as (reader, writer):
            head = f"{method} {path} HTTP/1.1\r\nHost: soak\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            return await reader.read()

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection, hung up on leaving."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    # -- what goes wrong
    async def cancelled(self) -> None:
        """A client that leaves in the middle of its stream."""
        talk = Talk("leaver", 1)
        async with self.connected() as (reader, writer):
            writer.write(request(CHAT, talk.body("A long story, please.", most=SLOW_TOKENS), _headers("leaver")))
            await reader.read(2000)
        self.book.note("cancelled")

    async def slow(self) -> None:
        """A client that reads a long stream a little at a time, and then not at all."""
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.setblocking(False)
        loop = asyncio.get_running_loop()
        talk = Talk("slow", 1)
        try:
            await loop.sock_connect(line, ("127.0.0.1", self.port))
            body = talk.body("A long story, please.", most=SLOW_TOKENS)
            await loop.sock_sendall(line, request(CHAT, body, _headers("slow")))
            for _ in range(40):
                await loop.sock_recv(line, 1024)
                await asyncio.sleep(0.05)
            await asyncio.sleep(5)
        except ConnectionError:
            self.book.note("slow, cut off")
        finally:
            line.close()
        self.book.note("slow")

    async def half_open(self) -> None:
        """Connections whose request never ends, opened again as the server closes them; until cancelled."""
        while True:
            with contextlib.suppress(ConnectionError):
                async with self.connected() as (reader, writer):
                    writer.write(
                        f"POST {CHAT} HTTP/1.1\r\nHost: soak\r\n".encode() if self.words.random() < 0.7 else b""
                    )
                    await reader.read()
                    self.book.note("half open, hung up on")

    async def huge(self) -> None:
        """A body of 100 MB."""
        with contextlib.suppress(ConnectionError):
            async with self.connected() as (reader, writer):
                writer.write(request(CHAT, b"", _headers("huge") | {"content-length": str(HUGE_BYTES)}))
                line = await reader.readline()
                self.book.note("100 MB, refused" if b" 413 " in line else "100 MB, not refused")

    async def big(self, name: str, *, chars: int) -> None:
        """A conversation of two turns whose first message has this many characters."""
        sentence = f"{name} says that the file holds a number and a word. "
        talk = Talk(name, 2)
        await self._apart(talk, sentence * (chars // len(sentence)), "big body")

    async def long(self, name: str, *, messages: int) -> None:
        """A conversation of two turns whose history has this many messages already."""
        talk = Talk(name, 2)
        for at in range(messages):
            text = {"role": ("user", "assistant")[at % 2], "content": f"word {at} of {name}"}
            talk.messages.append(json.dumps(text))
        await self._apart(talk, "And then?", "10,000 messages")

    async def _apart(self, talk: Talk, asked: str, kind: str) -> None:
        line = await Line.open(self.port)
        try:
            for words in (asked, "Go on, please."):
                turn, reply = await asked_on(line, talk.body(words), {"x-session-id": talk.name})
                self.book.note(kind if turn else f"{kind}, refused")
                if turn is None:
                    return
                talk.heard(reply)
                self.book.turns.add(turn)
        finally:
            line.close()


async def asked_on(line: Line, body: bytes, headers: dict[str, str]) -> tuple[str | None, str]:
    """The turn's id and the reply; None where there was no whole answer."""
    seen = await line.ask(request(CHAT, body, {"authorization": f"Bearer {KEY}", **headers}))
    found = TURN.search(bytes((seen.data or b"")[:2000]))
    return (found[1].decode(), seen.text) if found else (None, "")


def _headers(session: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEY}", "x-session-id": session}
