"""Clients that talk on while the server under them is killed, what they were told, and whether it is still true."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from benchmarks.http import KEY
from openclaw_rl.core.message import Json
from openclaw_rl.store.db import Store

CLIENTS = 4
TURNS = 5  # of a conversation
PAUSE_S = 0.02
WORDS = ("Please, no list.", "Thanks, and now?", "no, shorter.", "Good.")


@dataclass(slots=True)
class Told:
    """What the clients of one folder were told. `acknowledged` maps turns to digests of the text that came."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)  # seen since the last look
    broken_off: int = 0
    refused: int = 0
    wrong_status: int = 0


@dataclass(slots=True)
class Target:
    """Where the server listens just now; None while none does."""

    url: str | None = None
    is_over: bool = False


async def talk(
    number: int, home: str, target: Target, told: Told, *, max_tokens: int = 40, pause_s: float = 0.0
) -> None:
    """One client: conversations one after another, each request sent again until it is answered, with a pause after."""
    source = random.Random(f"{home}/{number}")
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}, timeout=timeout) as http:
        talk_number = 0
        while not target.is_over:
            talk_number += 1
            messages: list[Json] = []
            for _ in range(source.randint(2, TURNS)):
                said = f"{source.randrange(10**6)} things?" if not messages else source.choice(WORDS)
                messages.append({"role": "user", "content": said})
                body: dict[str, Json] = {"messages": list(messages), "stream": True, "max_tokens": max_tokens}
                text = await _answered(http, target, told, body, f"{number}-{talk_number}")
                if text is None:
                    return
                messages.append({"role": "assistant", "content": text})
                await asyncio.sleep(pause_s)


async def _answered(
    http: aiohttp.ClientSession, target: Target, told: Told, body: dict[str, Json], session: str
) -> str | None:
    """The whole answer, whatever is killed meanwhile; None where the run is over first."""
    while not target.is_over:
        if target.url is None:
            await asyncio.sleep(PAUSE_S)
            continue
        try:
            async with http.post(
                f"{target.url}/v1/chat/completions", json=body, headers={"X-Session-Id": session}
            ) as answer:
                if answer.status != 200:
                    told.wrong_status += 1
                    await asyncio.sleep(PAUSE_S)
                    continue
                told.versions.add(answer.headers["x-openclaw-rl-version"])
                text, is_whole = await _read(answer)
                if is_whole:
                    told.acknowledged[answer.headers["x-openclaw-rl-turn"]] = _digest(text)
                    return text
                told.broken_off += 1
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            told.broken_off += 1
            await asyncio.sleep(PAUSE_S)
    return None


async def _read(answer: aiohttp.ClientResponse) -> tuple[str, bool]:
    """The text that came, and whether the last event did."""
    text = ""
    async for line in answer.content:
        if line.startswith(b"data: [DONE]"):
            return text, True
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            if "error" in event:
                return text, False
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
    return text, False


def not_committed(home: Path, seen: set[str]) -> set[str]:
    """The versions among these that the store, as the killed server left it, does not call live."""
    with contextlib.closing(sqlite3.connect(home / "store.db")) as sql:
        live = {
            f"{scope}.{number}"
            for scope, number in sql.execute("SELECT scope, number FROM versions WHERE status = 'live'")
        }
    return {name for name in seen if name not in live}


def not_there(home: Path, turns: set[str]) -> set[str]:
    """The turns among these that the store does not hold."""
    with contextlib.closing(sqlite3.connect(home / "store.db")) as sql:
        asked = "SELECT 1 FROM turns JOIN bodies USING (seq) WHERE id = ?"
        return {turn for turn in turns if sql.execute(asked, (turn,)).fetchone() is None}


async def lost(home: Path, told: Told) -> int:
    """How many acknowledged turns the store no longer gives word for word."""
    async with contextlib.aclosing(await Store.open(home)) as store:
        gone = 0
        for name, digest in told.acknowledged.items():
            turn = await store.turn(name)
            gone += turn is None or _digest(turn.reply.text) != digest
        return gone


async def trained_twice(home: Path) -> tuple[int, int, int]:
    """Turns that more than one version consumed; all that were consumed; the versions."""
    async with contextlib.aclosing(await Store.open(home)) as store:
        rows = await store.versions()
        consumed = [turn for row in rows for turn in row.turns]
        return len(consumed) - len(set(consumed)), len(consumed), len(rows) - 1


def _digest(text: str) -> str:
    return hashlib.blake2b(text.strip().encode(), digest_size=8).hexdigest()
