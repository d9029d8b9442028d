"""What large requests cost everybody else: one long message, thousands of short ones, twelve tools.

A real server process on a random model of one small layer whose context is long enough for ten thousand messages. Each
case is sent by a thread while eight streams run and `/healthz` is asked every 20 ms; measured are the longest silence
of a stream, the longest answer of `/healthz`, and the time to the case's own first token over that of reading as many
ids sent as one plain prompt. What is longer than the context is refused: then `refused_s` is the time to the refusal.
The last line is one line of JSON. QUICK=1 leaves out the largest.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import aiohttp

from benchmarks.common import Figures, conditions, finish, is_quick, make_model, progress
from benchmarks.http import KEY, serving
from openclaw_rl.core.message import Json

CONTEXT = 131_072
STREAMS, PROBE_S = 8, 0.02
SETTLE_S, BASELINE_S = 2.0, 5.0
ANSWER_S = 900.0
MEGABYTES = (1, 3, 8, 16, 32)
HISTORIES = (10, 100, 1_000, 2_000, 10_000)
TOOLS = 12
WORDS = (
    "the",
    "server",
    "reads",
    "a",
    "long",
    "text",
    "and",
    "answers",
    "with",
    "one",
    "that",
    "says",
    "what",
    "was",
    "asked",
)
DENSE = "=" * 32 + "\n"  # two ids, so that a megabyte of it fits the context
SAID_CHARS = 2_000  # of each message, where a body is spread over many
_LONGEST = re.compile(rb"openclaw_rl_(loop_late|interpreter_held)_longest_seconds ([0-9.e+-]+)")


@dataclass(frozen=True, slots=True)
class Case:
    """One request: its path and body."""

    name: str
    path: str
    body: bytes
    messages: int = 1


@dataclass(slots=True)
class Seen:
    """What was seen while something ran."""

    gap_s: float = 0.0
    health_s: float = 0.0
    client_late_s: float = 0.0  # of the measuring loop itself
    tokens: int = 0


@dataclass(slots=True)
class Watched:
    """The streams and the probe, and what they note while somebody looks."""

    seen: Seen = field(default_factory=Seen)
    last_s: dict[int, float] = field(default_factory=dict)

    def begin(self) -> Seen:
        """Notes anew."""
        self.seen, now_s = Seen(), time.perf_counter()
        self.last_s = dict.fromkeys(self.last_s, now_s)
        return self.seen

    def end(self) -> None:
        """Silences that last until now count."""
        now_s = time.perf_counter()
        self.seen.gap_s = max([self.seen.gap_s, *(now_s - at_s for at_s in self.last_s.values())])


def model_of(folder: Path) -> Path:
    """A random Qwen3 of one layer, hidden 64, with the bundled tokenizer and a context of 131,072."""
    bundled = files("openclaw_rl.tiny").joinpath("weights")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_bytes(bundled.joinpath(name).read_bytes())
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}
    return make_model(folder, **sizes, num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=CONTEXT)


def prose(chars: int, seed: int) -> str:
    """So many letters of words in no order."""
    rng, found, size = Random(seed), list[str](), 0
    while size < chars:
        found.append(rng.choice(WORDS))
        size += len(found[-1]) + 1
    return " ".join(found)[:chars]


def tools() -> list[Json]:
    """Twelve functions with a schema each."""
    schema: Json = {
        "type": "object",
        "properties": {name: {"type": "string", "description": prose(60, 1)} for name in ("path", "content", "mode")},
        "required": ["path"],
    }
    return [
        {
            "type": "function",
            "function": {"name": f"tool_{at}", "description": prose(120, at), "parameters": schema},
        }
        for at in range(TOOLS)
    ]


def chat(name: str, messages: list[Json]) -> Case:
    """A streamed chat request with the tools."""
    body: Json = {
        "model": "default",
        "messages": messages,
        "tools": tools(),
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 1,
        "temperature": 0,
        "session_id": name,
    }
    return Case(name, "/v1/chat/completions", json.dumps(body).encode(), len(messages))


def turns(count: int, chars: int, seed: int) -> list[Json]:
    """A conversation of so many messages, each of so many letters; the user has the last word."""
    roles = ("user", "assistant")
    return [
        {"role": roles[at % 2], "content": prose(chars, seed * 100_000 + at)} for at in range(count - 1 + count % 2)
    ]


def cases() -> list[Case]:
    """All requests, the small ones first."""
    sizes = MEGABYTES[:3] if is_quick() else MEGABYTES
    histories = HISTORIES[:4] if is_quick() else HISTORIES
    found = [chat(f"history {count}", turns(count, 24, count)) for count in histories]
    for size in sizes:
        chars = size * 1_000_000
        if size <= 3:  # more does not fit the context even so
            dense = (DENSE * (chars // len(DENSE)))[: min(chars, CONTEXT // 2 * len(DENSE) - 200_000)]
            found.append(chat(f"{size} MB dense", [{"role": "user", "content": dense}]))
        found.append(chat(f"{size} MB", [{"role": "user", "content": prose(chars, size)}]))
        found.append(chat(f"{size} MB spread", turns(chars // SAID_CHARS, SAID_CHARS, size)))
    return found


def sent(url: str, case: Case) -> Figures:
    """What became of a request; runs in a thread, so that the measuring loop does not wait for it."""
    place = urlsplit(url)
    line = http.client.HTTPConnection(place.hostname or "", place.port, timeout=ANSWER_S)
    begin = time.perf_counter()
    try:
        line.request("POST", case.path, case.body, {"Authorization": f"Bearer {KEY}"})
        answer = line.getresponse()
        if answer.status != 200:
            answer.read()
            return {"status": answer.status, "refused_s": round(time.perf_counter() - begin, 3)}
        first_s, prompt_tokens, cached = 0.0, 0, 0
        for raw in answer:
            if not raw.startswith(b"data: {"):
                continue
            event = json.loads(raw[6:])
            choices, usage = event.get("choices") or [], event.get("usage")
            if not first_s and any(choice.get("finish_reason") or _said(choice) for choice in choices):
                first_s = time.perf_counter() - begin
            if usage:
                prompt_tokens = usage["prompt_tokens"]
                cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return {"status": 200, "tokens": prompt_tokens, "cached": cached, "ttft_s": round(first_s, 3)}
    finally:
        line.close()


def _said(choice: dict[str, Json]) -> bool:
    delta = choice.get("delta")
    return bool(choice.get("text")) or (isinstance(delta, dict) and bool(delta.get("content")))


async def measured(url: str, watched: Watched, case: Case) -> Figures:
    """A case beside the streams, and then as many ids in one piece."""
    figures, seen = await _alone(url, watched, case)
    found: Figures = {"bytes": len(case.body), "messages": case.messages, **figures, **_silences(seen)}
    if figures.get("status") == 200:
        size = figures["tokens"]
        assert isinstance(size, int)
        rng = Random(len(case.body))
        ids: Json = [rng.randrange(100, 4000) for _ in range(size)]
        body: Json = {"model": "default", "prompt": ids, "max_tokens": 1, "temperature": 0, "stream": True}
        plain = Case(case.name, "/v1/completions", json.dumps(body).encode())
        whole, seen = await _alone(url, watched, plain)
        found["one_piece_s"] = whole.get("ttft_s")
        ours, theirs = figures["ttft_s"], whole.get("ttft_s")
        found["ttft_over_one_piece"] = (
            round(ours / theirs, 2) if isinstance(ours, float) and isinstance(theirs, float) and theirs else None
        )
        found["one_piece_stream_gap_ms"] = round(1000 * seen.gap_s, 1)
    found["server"] = await _longest(url)
    progress(f"{case.name}: {json.dumps(found)}")
    return found


async def _alone(url: str, watched: Watched, case: Case) -> tuple[Figures, Seen]:
    await asyncio.sleep(SETTLE_S)
    seen = watched.begin()
    figures = await asyncio.to_thread(sent, url, case)
    await asyncio.sleep(1.0)  # the turn is stored now
    watched.end()
    return figures, seen


def _silences(seen: Seen) -> Figures:
    return {
        "stream_gap_ms_max": round(1000 * seen.gap_s, 1),
        "healthz_ms_max": round(1000 * seen.health_s, 1),
        "client_late_ms_max": round(1000 * seen.client_late_s, 1),
        "stream_tokens": seen.tokens,
    }


async def _longest(url: str) -> Figures:
    """What the server's own watch saw in the last minute, in milliseconds."""
    async with aiohttp.ClientSession() as client, client.get(f"{url}/metrics") as answer:
        text = await answer.read()
    return {name.decode(): round(1000 * float(value), 1) for name, value in _LONGEST.findall(text)}


@contextlib.asynccontextmanager
async def streams(url: str) -> AsyncIterator[Watched]:
    """Eight streams without an end, and somebody who asks after the server's health."""
    watched = Watched()
    limit = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}, connector=limit) as client:
        tasks = [asyncio.create_task(_stream(client, url, row, watched)) for row in range(STREAMS)]
        tasks.append(asyncio.create_task(_probe(client, url, watched)))
        try:
            yield watched
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _stream(client: aiohttp.ClientSession, url: str, row: int, watched: Watched) -> None:
    while True:
        body = {
            "model": "default",
            "messages": [{"role": "user", "content": f"Tell a story about the number {row}."}],
            "max_tokens": 2_000,
            "temperature": 3.0,
            "ignore_eos": True,
            "logprobs": True,  # every token is an event, whatever its bytes are
            "stream": True,
        }
        async with client.post(f"{url}/v1/chat/completions", json=body) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    now_s = time.perf_counter()
                    if row in watched.last_s:
                        watched.seen.gap_s = max(watched.seen.gap_s, now_s - watched.last_s[row])
                    watched.last_s[row] = now_s
                    watched.seen.tokens += 1


async def _probe(client: aiohttp.ClientSession, url: str, watched: Watched) -> None:
    while True:
        due_s = time.perf_counter() + PROBE_S
        await asyncio.sleep(PROBE_S)
        begin = time.perf_counter()
        watched.seen.client_late_s = max(watched.seen.client_late_s, begin - due_s)
        seen = watched.seen
        async with client.get(f"{url}/healthz") as answer:
            await answer.read()
        seen.health_s = max(seen.health_s, time.perf_counter() - begin)


async def run() -> Figures:
    """All cases, one after the other."""
    wanted = os.environ.get("ONLY", "")
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = await asyncio.to_thread(model_of, Path(folder))
        async with serving(model, "--no-learn") as url:
            if not url:
                raise SystemExit("the server did not start")
            async with streams(url) as watched:
                await asyncio.sleep(SETTLE_S)
                seen = watched.begin()
                await asyncio.sleep(BASELINE_S)
                watched.end()
                found["nothing"] = _silences(seen)
                progress(f"nothing: {json.dumps(found['nothing'])}")
                for case in await asyncio.to_thread(cases):
                    if re.search(wanted, case.name):
                        found[case.name] = await measured(url, watched, case)
    return {
        "stream_gap_ms_max": max(_number(each["stream_gap_ms_max"]) for each in found.values()),
        "healthz_ms_max": max(_number(each["healthz_ms_max"]) for each in found.values()),
        "ttft_over_one_piece": {name: each.get("ttft_over_one_piece") for name, each in found.items()},
        "cases": found,
    }


def _number(value: object) -> float:
    assert isinstance(value, float)
    return value


def main() -> None:
    """Measures and prints."""
    figures = asyncio.run(run())
    stated = conditions("random Qwen3, 1 layer, hidden 64, context 131,072", threads=1, seeds=[0], repeats=1)
    finish({**figures, "conditions": stated})


if __name__ == "__main__":
    main()
