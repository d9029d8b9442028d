"""A real OpenClaw gateway on loopback: started, spoken to as its user would, ended by its own id."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from openclaw_install import Tools

from openclaw_rl.core.message import Json

TOKEN = "a-token-for-this-run"
READY_S = 600.0  # seconds on an idle machine; minutes on one that trains
STOP_S = 60.0
TALK_S = 600.0
COMMAND_S = 600.0
STUDENT = "student"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway. `home` holds its configuration and state."""

    tools: Tools
    home: Path
    port: int

    async def say(self, agent: str, user: str, text: str) -> str:
        """The agent's answer to a user, after all its tool calls, by the gateway's own API."""
        body = {"model": f"openclaw/{agent}", "user": user, "messages": [{"role": "user", "content": text}]}
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        timeout = aiohttp.ClientTimeout(total=TALK_S)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as client,
            client.post(url, json=body) as answer,
        ):
            held = await answer.json()
            assert answer.status == 200, held
            return str(held["choices"][0]["message"]["content"])

    async def run(self, *words: str) -> str:
        """What an `openclaw` command prints."""
        return await run(self.tools, self.home, *words)


async def run(tools: Tools, home: Path, *words: str) -> str:
    """What an `openclaw` command prints, with this home."""
    child = await asyncio.create_subprocess_exec(
        *(str(tools.openclaw), *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
        env=tools.environment(home, OPENCLAW_GATEWAY_TOKEN=TOKEN),
        cwd=home,
    )
    try:
        async with asyncio.timeout(COMMAND_S):
            out, err = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, f"openclaw {' '.join(words)}:\n{out.decode()[-1500:]}\n{err.decode()[-1500:]}"
    return out.decode()


def base_config(port: int, workspace: Path) -> dict[str, Json]:
    """A user's configuration before it hears of our server.

    Two agents: `main` is as OpenClaw ships it, but for its shell; `student` is one that a small model can follow: few
    tools, no workspace files and no skills in its prompt.
    """
    return {
        "gateway": {
            "mode": "local",
            "bind": "loopback",
            "port": port,
            "auth": {"mode": "token", "token": TOKEN},
            "http": {"endpoints": {"chatCompletions": {"enabled": True}}},
        },
        "update": {"checkOnStart": False, "auto": {"enabled": False}},
        "agents": {
            "defaults": {"workspace": str(workspace), "heartbeat": {"every": "30m", "target": "none"}},
            "entries": {
                "main": {"default": True, "tools": {"deny": ["exec", "process"]}},  # a toy shall run nothing
                STUDENT: {
                    "workspace": str(workspace),
                    "contextInjection": "never",
                    "skills": [],
                    "tools": {"allow": ["read", "write"], "deny": ["apply_patch", "edit"]},
                },
            },
        },
        "models": {"catalogRefresh": {"enabled": False}},
        "logging": {"file": str(workspace.parent / "openclaw.log")},
    }


def for_the_student(path: Path) -> None:
    """Gives the student a model entry whose session line stands in the system text: a toy is confused by it elsewhere.

    Short answers for both: what a toy has not said in so many tokens it never will.
    """
    config = json.loads(path.read_text("utf-8"))
    models = config["models"]["providers"]["openclaw-rl"]["models"]
    models[0]["maxTokens"] = 256
    models.append({**models[0], "id": "openclaw-rl-tiny", "compat": {"cacheControlFormat": "anthropic"}})
    config["agents"]["entries"][STUDENT]["model"] = "openclaw-rl/openclaw-rl-tiny"
    path.write_text(json.dumps(config, indent=2), "utf-8")


@asynccontextmanager
async def running(tools: Tools, home: Path, port: int) -> AsyncIterator[Gateway]:
    """The gateway, while it runs."""
    log = home / "gateway.log"
    with log.open("ab") as out:
        child = await asyncio.create_subprocess_exec(
            *(str(tools.openclaw), "gateway", "run"),
            stdout=out,
            stderr=out,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env=tools.environment(home, OPENCLAW_GATEWAY_TOKEN=TOKEN),
            cwd=home,
        )
        try:
            await _until_ready(child, port, log)
            yield Gateway(tools, home, port)
        finally:
            await _stop(child)


async def _until_ready(child: asyncio.subprocess.Process, port: int, log: Path) -> None:
    until = time.monotonic() + READY_S
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        while child.returncode is None and time.monotonic() < until:
            with contextlib.suppress(aiohttp.ClientError):
                async with client.get(f"http://127.0.0.1:{port}/v1/models") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.5)
    raise AssertionError(f"the gateway is not up; its last words:\n{last_words(log)}")


def last_words(log: Path) -> str:
    """The end of a log."""
    return log.read_text("utf-8", "replace")[-2000:]


async def _stop(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()
