"""What capture adds to serving: time to the first token, and CPU for each streamed chunk at 8 paced streams.

The server runs in a process of its own on a scripted engine of 50 tokens a second a stream; everything of capture is on
(keys, sessions, rendering with a real tokenizer, parsing, the store on disk, the last event held until the turn is in
it). Each round measures the engine alone, a bare aiohttp pass-through of the same chunks, a plain server that renders
and encodes messages and reads ids back as whatever serves a chat must, and the product, one after the other. The
engine's own CPU is taken out; its first token is due at once. What the product takes beyond the plain server is what
capture alone adds. Two requests are measured: a short one,
and the second turn of a conversation of 51,000 characters, each time of another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from statistics import median

from benchmarks.common import Figures, conditions, finish, is_quick, progress, quantile
from benchmarks.http import KEY
from benchmarks.raw_http import Line, Seen, request

STREAMS = 8
GAP_S = 0.02
CHAT, THROUGH, PLAIN, ENGINE = "/v1/chat/completions", "/through", "/plain", "/engine"
ARMS = (ENGINE, THROUGH, PLAIN, CHAT)
SHORT, LONG = "short", "second_turn_51k"
SYSTEM_CHARS, TOOL_CHARS = 39_500, 10_000


@dataclass(slots=True)
class Run:
    """What was measured of one arm and one kind of request."""

    ttft_ms: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)  # for each chunk, one value a round


def main() -> None:
    """Prints the figures."""
    finish(asyncio.run(_measured()))


async def _measured() -> Figures:
    rounds, tokens, asks = (2, 100, 40) if is_quick() else (7, 200, 100)
    runs = {(kind, arm): Run() for kind in (SHORT, LONG) for arm in ARMS}
    async with _server() as (pid, port):
        bodies = Bodies()
        lines = [await Line.open(port) for _ in range(STREAMS)]
        for turn in range(rounds + 1):  # the first one warms up
            for kind in (SHORT, LONG):
                for arm in ARMS:
                    asked = [await bodies.make(kind, arm, lines[0], tokens) for _ in lines]
                    cpu_us = await _paced(pid, lines, asked, arm, tokens)
                    times = [] if arm == ENGINE else await _first_tokens(bodies, kind, arm, lines[0], asks)
                    if turn:
                        runs[kind, arm].cpu_us.append(cpu_us)
                        runs[kind, arm].ttft_ms += times
            progress(f"round {turn} of {rounds}: " + _line(runs))
        for line in lines:
            line.close()
    return _figures(runs, rounds=rounds, tokens=tokens)


async def _paced(pid: int, lines: list[Line], asked: list[bytes], arm: str, tokens: int) -> float:
    """CPU of the server, in microseconds for each chunk, while all streams run."""
    before = _cpu_s(pid)
    async with asyncio.TaskGroup() as group:
        pairs = enumerate(zip(lines, asked, strict=True))
        streams = [group.create_task(_later(line, ask, at)) for at, (line, ask) in pairs]
    spent = _cpu_s(pid) - before
    for stream in streams:
        if arm != ENGINE and stream.result().events < tokens - 8:  # a chunk may hold several tokens of one character
            raise RuntimeError(f"{arm} streamed {stream.result().events} of {tokens} tokens")
    return spent * 1e6 / (len(lines) * tokens)


async def _later(line: Line, asked: bytes, at: int) -> Seen:
    """Streams do not run in step: each begins an eighth of a gap after the one before."""
    await asyncio.sleep(at * GAP_S / STREAMS)
    return await line.ask(asked)


async def _first_tokens(bodies: Bodies, kind: str, arm: str, line: Line, asks: int) -> list[float]:
    """Milliseconds to the first token of one request after another; nothing else runs."""
    found: list[float] = []
    for _ in range(asks if kind == SHORT else asks // 2):
        asked = await bodies.make(kind, arm, line, 2)
        seen = await line.ask(asked)
        found.append((seen.first_s - seen.sent_s) * 1e3)
    return found


class Bodies:
    """Requests; no two are of the same conversation."""

    def __init__(self) -> None:
        self._count = 0
        self._words = random.Random(7)
        self._system = self._prose(SYSTEM_CHARS)
        self._tools = [self._tool(at) for at in range(20)]

    async def make(self, kind: str, arm: str, line: Line, tokens: int) -> bytes:
        """The bytes of a request for that many tokens; a second turn's first one is served here, before any clock."""
        self._count += 1
        messages = [{"role": "user", "content": f"Question {self._count}: {self._prose(120)}"}]
        extra: dict[str, object] = {}
        if kind == LONG:
            messages.insert(0, {"role": "system", "content": self._system})
            extra = {"tools": self._tools}
            reply = "The first part is worked out."
            if arm == CHAT:
                reply = (await line.ask(self._bytes(arm, messages, extra, 8))).text
            messages += [
                {"role": "assistant", "content": reply},
                {"role": "user", "content": f"And then? {self._prose(120)}"},
            ]
        return self._bytes(arm, messages, extra, tokens)

    def _bytes(self, arm: str, messages: list[dict[str, str]], extra: dict[str, object], tokens: int) -> bytes:
        asked = {"model": "default", "messages": messages, **extra, "max_tokens": tokens, "stream": True}
        headers = {"authorization": f"Bearer {KEY}", "x-session-id": f"s{self._count}", "x-tokens": str(tokens)}
        return request(arm, json.dumps(asked).encode(), headers)

    def _prose(self, chars: int) -> str:
        words = ("the", "agent", "reads", "file", "before", "it", "writes", "answer", "and", "tells", "user", "why")
        text = ""
        while len(text) < chars:
            text += self._words.choice(words) + self._words.choice((" ", " ", " ", ", ", ".\n"))
        return text[:chars]

    def _tool(self, at: int) -> dict[str, object]:
        shape = {
            "type": "object",
            "properties": {
                name: {"type": "string", "description": self._prose(70)} for name in ("path", "text", "mode")
            },
            "required": ["path"],
        }
        about = self._prose(TOOL_CHARS // 20 - len(json.dumps(shape)) - 60)
        return {"type": "function", "function": {"name": f"tool_{at}", "description": about, "parameters": shape}}


def _cpu_s(pid: int) -> float:
    """CPU time of another process with all its threads, to the nanosecond (Linux)."""
    return time.clock_gettime((~pid << 3) | 2)


@contextlib.asynccontextmanager
async def _server() -> AsyncIterator[tuple[int, int]]:
    """Process id and port of the server."""
    with tempfile.TemporaryDirectory() as home:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.capture_server",
            home,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdin is not None and child.stdout is not None
        try:
            yield child.pid, int(await child.stdout.readline())
        finally:
            child.stdin.close()
            await child.wait()


def _figures(runs: dict[tuple[str, str], Run], *, rounds: int, tokens: int) -> Figures:
    short, plain = _arm(runs, SHORT, CHAT), _arm(runs, SHORT, PLAIN)
    figures: Figures = {
        "added_ttft_ms_p50": short["added_ttft_ms_p50"],
        "cpu_us_per_chunk": short["cpu_us_per_chunk"],
        "beyond_plain_ttft_ms": round(short["added_ttft_ms_p50"] - plain["added_ttft_ms_p50"], 3),
        "beyond_plain_cpu_us_per_chunk": round(short["cpu_us_per_chunk"] - plain["cpu_us_per_chunk"], 1),
        "pass_through": _arm(runs, SHORT, THROUGH),
        "plain": plain,
        SHORT: short,
        LONG: _arm(runs, LONG, CHAT),
        "pass_through_" + LONG: _arm(runs, LONG, THROUGH),
        "plain_" + LONG: _arm(runs, LONG, PLAIN),
        "streams": STREAMS,
        "tokens_per_s_a_stream": 1 / GAP_S,
        "tokens_a_stream": tokens,
        "conditions": conditions(
            "bundled tokenizer and template, scripted engine", threads=1, seeds=[7], repeats=rounds
        ),
    }
    return figures


def _arm(runs: dict[tuple[str, str], Run], kind: str, arm: str) -> dict[str, float]:
    """One arm's figures; CPU by the median of the rounds' differences to the engine alone in the same round."""
    run, engine = runs[kind, arm], runs[kind, ENGINE]
    added = [mine - its for mine, its in zip(run.cpu_us, engine.cpu_us, strict=True)]
    return {
        "added_ttft_ms_p50": round(median(run.ttft_ms), 3),
        "added_ttft_ms_p90": round(quantile(run.ttft_ms, 0.9), 3),
        "cpu_us_per_chunk": round(median(added), 1),
        "cpu_us_per_chunk_p90": round(quantile(added, 0.9), 1),
        "cpu_us_per_chunk_with_engine": round(median(run.cpu_us), 1),
    }


def _line(runs: dict[tuple[str, str], Run]) -> str:
    """The last round in short."""
    found = []
    for (kind, arm), run in runs.items():
        if run.cpu_us:
            ttft = f", {median(run.ttft_ms):.2f} ms" if run.ttft_ms else ""
            found.append(f"{kind} {arm} {run.cpu_us[-1]:.1f} us{ttft}")
    return "; ".join(found)


if __name__ == "__main__":
    main()
