"""A home folder that has really learned, for `benchmarks.owner`: six shared versions and seven of two users' own.

The real server on the bundled model is asked and corrected through the official client; side requests, hints, a second
key, a pin and an export come with it. It is made once, where its original will lie in every case, and kept beside it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import aiohttp
from openai.types.chat import ChatCompletionUserMessageParam

from benchmarks.common import progress
from benchmarks.owner_truth import reading, served_by
from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.tiny import world

ANN = "ann"  # who has a key, hints and a version of her own
FORGOTTEN = "shared.4"  # the version whose conversation is forgotten
PINNED = "user-ann.1"
SHARED_VERSIONS = 6
MOST_TALKS = 20  # some corrections lead to no version
QUIET_LOOKS = 3
START_S = 180.0
STOP_S = 60.0
PATIENCE_S = 180.0
# A step for each correction; every version passes; nothing happens by itself while a case looks.
CONFIG = """
[train]
scopes = "shared+user"
batch_size = 1
min_batch = 1
max_lag = 1000
in_vain_turns = 0
[trainer]
rank = 8
alpha = 16.0
lr = 1e-2
nice = 0
[trainer.method]
name = "topk"
divergence = "forward"
kl_beta = 0.05
[judge]
votes = 1
[publish]
kl_max = 100.0
probes = 0
wish_turns = 0
watch_turns = 0
"""


@dataclass(slots=True)
class Running:
    """A running `openclaw-rl serve` that was started by `started`."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit code, once it is gone; it is killed where it does not end by itself."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def said(self) -> str:
        """Its log."""
        return self.log.read_text("utf-8", "replace")


class NotUpError(Exception):
    """The server ended, or did not listen in time: its exit code (None where it still ran) and what it said."""

    def __init__(self, code: int | None, said: str) -> None:
        super().__init__(f"the server did not come up (exit code {code}):\n{said[-3000:]}")
        self.code = code
        self.said = said


def started(home: Path, log: Path, environment: dict[str, str]) -> Running:
    """Starts the command on a folder and waits until it listens. Raises NotUpError."""
    command = [sys.executable, "-m", "openclaw_rl", "serve", "--home", str(home), "--port", "0", "--model", "bundled"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        found = re.search(r"at (http://\S+)/v1", log.read_text("utf-8", "replace"))
        if found:
            return Running(process, found[1], log)
        time.sleep(0.05)
    code = process.poll()
    if code is None:
        process.kill()
        process.wait()
    raise NotUpError(code, log.read_text("utf-8", "replace"))


def environment_of(person: Path) -> dict[str, str]:
    """The environment of every command: one thread, a home directory of its own, no settings from outside."""
    left_out = ("SGLANG_", "OPENCLAW_RL", "HOST", "PORT", "HF_CKPT", "PRM_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | {"OMP_NUM_THREADS": "1", "HOME": str(person), "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}


def made(home: Path, exports: Path, person: Path) -> dict[str, str]:
    """Makes the folder and what was exported from it; gives the facts that cases need."""
    for folder in (home, exports, person):
        folder.mkdir(mode=0o700, parents=True)
    (home / "config.toml").write_text(CONFIG, "utf-8")
    environment = environment_of(person)
    key = _command(environment, "keys", "add", ANN, "--scopes", "chat,feedback,teach", "--home", str(home)).strip()
    server = started(home, person / "server.log", environment)
    try:
        owner = (home / "api_key").read_text("utf-8").strip()
        facts = asyncio.run(_lived(server.url, owner, key))
        _command(environment, "hints", "add", "Call the user by their name.", "--user", ANN, "--home", str(home))
        _command(environment, "pin", PINNED, "--home", str(home))
    finally:
        server.end()
    listed = json.loads(_command(environment, "hints", "list", "--json", "--home", str(home)))
    facts["hint"] = listed[0]["id"]
    with reading(home) as sql:  # a session's name in the store tells its client, too
        facts["stored_session"] = str(
            sql.execute("SELECT session FROM turns WHERE id = ?", (facts["turn"],)).fetchone()[0]
        )
    facts["served"] = str(served_by(home, "user-owner"))
    _command(environment, "export", str(exports / "all.jsonl"), "--home", str(home))
    return facts


def _command(environment: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-m", "openclaw_rl", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the ground cannot be made: {' '.join(words)} said {done.stdout}{done.stderr}")
    return done.stdout


async def _lived(url: str, owner: str, ann: str) -> dict[str, str]:
    """Corrected conversations until there are the versions; two side requests; a turn that nobody went on from."""
    base_url = f"{url}/v1"
    name = await served_model(base_url, owner)
    headers = {"Authorization": f"Bearer {owner}"}
    async with (
        Client(base_url, owner, name) as client,
        Client(base_url, ann, name) as other,
        aiohttp.ClientSession(headers=headers) as http,
    ):
        taught: dict[str, str] = {}
        for number in range(MOST_TALKS):
            who = client if f"shared.{SHARED_VERSIONS - 1}" not in taught else other
            turn = await _corrected(who, http, base_url, number)
            taught |= {version: f"talk-{number} {turn}" for version in await _learned(http, base_url) - taught.keys()}
            if PINNED in taught:
                break
        else:
            raise SystemExit(f"the ground did not learn enough: {taught}")
        for number in range(2):
            title = f"Name this conversation, number {number}."
            await _asked(client, "talk-0", title, seed=number, is_side=True)
        await _asked(client, "talk-last", "And who are you?", seed=9)
        await client.end("talk-last")
    session, turn = taught[FORGOTTEN].split()
    return {"session": session, "turn": turn}


async def _asked(client: Client, session: str, text: str, *, seed: int, is_side: bool = False) -> str:
    """The turn of one request."""
    said = [ChatCompletionUserMessageParam(role="user", content=text)]
    reply = await client.say(said, session=session, temperature=0.7, max_tokens=200, seed=seed, is_side=is_side)
    return reply.turn


async def _corrected(client: Client, http: aiohttp.ClientSession, base_url: str, number: int) -> str:
    """A question, its reply, and feedback in words; the turn it was about."""
    words, session = Random(f"owner {number}"), f"talk-{number}"
    turn = await _asked(client, session, world.request(world.problem(words), words), seed=number)
    style = (world.Style.NATURAL, world.Style.FRIENDLY, world.Style.DETAILED)[number % 3]
    body = {"response_id": turn, "score": -1, "text": world.correction(style, words)}
    headers = {"Authorization": f"Bearer {client.key}"}
    async with http.post(f"{base_url}/feedback", json=body, headers=headers) as answer:
        answer.raise_for_status()
    await client.end(session)
    return turn


async def _learned(http: aiohttp.ClientSession, base_url: str) -> set[str]:
    """The versions, once nothing is under way: not for two looks, since an own version follows a shared one."""
    until, quiet = time.monotonic() + PATIENCE_S, 0
    while time.monotonic() < until:
        await asyncio.sleep(0.3)
        async with http.get(f"{base_url}/rl/versions") as answer:
            rows = (await answer.json())["versions"]
        async with http.get(f"{base_url}/rl/status") as answer:
            ledger = (await answer.json())["ledger"]
        waits = sum(int(ledger.get(state, 0)) for state in ("served", "paired", "judged", "ready"))
        quiet = 0 if waits or any(row["status"] == "candidate" for row in rows) else quiet + 1
        if quiet >= QUIET_LOOKS:
            names = {str(row["version"]) for row in rows if row["number"]}
            progress(f"ground: {len(names)} versions, {ledger}")
            return names
    raise SystemExit(f"the ground does not settle: {ledger}")


def laid(kept: Path, place: Path) -> None:
    """A fresh copy of the kept ground at its place; times and modes as they were."""
    place.mkdir(parents=True, exist_ok=True)
    for item in place.iterdir():
        shutil.rmtree(item) if item.is_dir() else item.unlink()
    shutil.copytree(kept, place, dirs_exist_ok=True, symlinks=True)
