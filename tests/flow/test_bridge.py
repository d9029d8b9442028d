"""The bridge as a user meets it: corrected once, heeded from the next conversation on, and after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
from flow_parts import KEY, Judging, Served, headers, start
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam
from test_loop import say, until

from openclaw_rl.core.message import Json
from openclaw_rl.store.db import Store

CONFIG = """
carry = "bridge"
[train]
batch_size = 64  # never together: what is heeded here is the hint alone
min_batch = 64
[judge]
votes = 1
model = "rule"
"""
ASKED = "Mia has 3 pens and gets 4 more. How many pens does she have?"
NEXT = "Tom has 2 nuts and finds 5. How many nuts does he have?"


async def carried(server: Served, client: AsyncOpenAI, **options: object) -> list[str]:
    """The hints that a fresh conversation was read behind."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": NEXT}]
    _, turn, _ = await say(client, messages, **options)
    found = (await server.get(f"/v1/rl/turns/{turn}"))["carried"]
    assert isinstance(found, list)
    return [str(item["text"]) for item in found if isinstance(item, dict)]


def hints_command(server: Served, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "openclaw_rl", "hints", *words, "--home", str(server.home)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


async def hints_of(server: Served) -> dict[str, Json]:
    return await server.get("/v1/rl/hints")


async def test_a_correction_is_heeded_in_the_next_conversation_and_after_a_kill(
    tmp_path: Path, judging: Judging, running: list[Served]
) -> None:
    config = f'{CONFIG}url = "{judging.url}"\n'
    running.append(server := start(tmp_path / "home", config=config))
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": ASKED}]
        said, _, _ = await say(client, messages, seed=0)  # some replies are plain: then the hint is retired
        assert "**" in said
        messages.append({"role": "user", "content": "Please write that without markdown."})
        await say(client, messages)
        await until(lambda: hints_of(server), lambda seen: bool(seen["hints"]))
        assert await carried(server, client) == [judging.hint]
        assert await carried(server, client, turn_type="side") == []
    server.end(signal.SIGKILL)
    running.append(again := start(tmp_path / "home", config=config))
    async with AsyncOpenAI(base_url=f"{again.url}/v1", api_key=KEY, max_retries=0) as client:
        assert await carried(again, client) == [judging.hint]
        status = await again.get("/v1/rl/status")
        told = status["hints"]
        assert isinstance(told, dict) and (told["carry"], told["in_use"]) == ("bridge", 1)
        async with aiohttp.ClientSession(again.url, headers=headers()) as http, http.get("/v1/rl/hints") as answer:
            name = (await answer.json())["hints"][0]["id"]
        (again.home / "api_key").write_text(KEY, "utf-8")  # the command reads the key where the server keeps its own
        assert judging.hint.split()[0] in hints_command(again, "list")
        assert hints_command(again, "retire", name).strip() == f"{name} is retired"
        assert await carried(again, client) == []


async def test_with_weights_a_wish_that_they_could_not_learn_is_in_its_users_prompts_and_is_not_taught(
    tmp_path: Path, judging: Judging, running: list[Served]
) -> None:
    config = f'{CONFIG}url = "{judging.url}"\n'.replace('carry = "bridge"', "")
    running.append(server := start(tmp_path / "home", config=config))
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": ASKED}]
        _, corrected, _ = await say(client, messages)
        messages.append({"role": "user", "content": "Please write that without markdown."})
        await say(client, messages)
        await until(lambda: hints_of(server), lambda seen: bool(seen["hints"]))
        assert await carried(server, client) == []
    server.end(signal.SIGTERM)
    store = await Store.open(server.home)
    try:
        assert [hint.text for hint in await store.hints.leave_to_prompts([corrected])] == [judging.hint]
    finally:
        await store.aclose()
    running.append(again := start(tmp_path / "home", config=config))
    async with AsyncOpenAI(base_url=f"{again.url}/v1", api_key=KEY, max_retries=0) as client:
        assert await carried(again, client) == [judging.hint]
        assert await carried(again, client, turn_type="side") == []
        messages = [{"role": "user", "content": ASKED}]
        _, turn, _ = await say(client, messages)
        await say(client, [*messages, {"role": "user", "content": "Thanks!"}])
        found = await until(lambda: again.get(f"/v1/rl/turns/{turn}"), lambda seen: seen["state"] == "dropped")
        assert found["reason"] == "memory_only"
        (again.home / "api_key").write_text(KEY, "utf-8")
        assert "in prompts" in hints_command(again, "list")
