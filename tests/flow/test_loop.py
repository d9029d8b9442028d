"""The whole loop as a user runs it: the command, real HTTP, a real trainer, new weights while it serves."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from flow_parts import KEY, LEARN_A_LITTLE, LEARN_AT_ONCE, Judging, Served, start
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from openclaw_rl.core.message import Json

LOOK_AGAIN_S = 0.1
PATIENCE = 600  # looks
NO_GATE = "[publish]\ngate = false\n"


async def until(
    ask: Callable[[], Awaitable[dict[str, Json]]], done: Callable[[dict[str, Json]], bool]
) -> dict[str, Json]:
    """The first answer that is `done`; fails with the last one where none comes."""
    seen: dict[str, Json] = {}
    for _ in range(PATIENCE):
        seen = await ask()
        if done(seen):
            return seen
        await asyncio.sleep(LOOK_AGAIN_S)
    raise AssertionError(json.dumps(seen, indent=1))


async def say(
    client: AsyncOpenAI, messages: list[ChatCompletionMessageParam], **options: object
) -> tuple[str, str, str]:
    """The reply, its turn and its version; the reply joins the messages."""
    raw = await client.chat.completions.with_raw_response.create(
        model="default", messages=messages, max_tokens=200, temperature=0.7, extra_body=options
    )
    text = raw.parse().choices[0].message.content or ""
    messages.append({"role": "assistant", "content": text})
    return text, raw.headers["x-openclaw-rl-turn"], raw.headers["x-openclaw-rl-version"]


def ledger(status: dict[str, Json]) -> dict[str, int]:
    held = status["ledger"]
    assert isinstance(held, dict)
    return {name: int(str(count)) for name, count in held.items()}


def _client(server: Served) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)


async def _correct(client: AsyncOpenAI, question: str) -> list[str]:
    """A conversation of two corrections and thanks; its turns."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
    turns = []
    for words in ("Please write that without markdown.", "Please write it like a person.", "Thanks!"):
        turns.append((await say(client, messages))[1])
        messages.append({"role": "user", "content": words})
    turns.append((await say(client, messages))[1])
    return turns


async def test_what_is_said_next_becomes_a_version_that_answers(
    tmp_path: Path, judging: Judging, running: list[Served]
) -> None:
    # without a seed the replies to its hint are others each time, and in one run of seven the first turn was dropped
    config = f'[engine]\nseed = 1\n{LEARN_AT_ONCE}url = "{judging.url}"\nmodel = "rule"\n'
    running.append(server := start(tmp_path / "home", config=config))
    async with _client(server) as client:
        turns = await _correct(client, "Mia has 3 pens and gets 4 more. How many pens does she have?")
        status = await until(lambda: server.get("/v1/rl/status"), lambda seen: ledger(seen)["trained"] >= 1)
        versions = await until(
            lambda: server.get("/v1/rl/versions"), lambda seen: seen["current"] != {"shared": "shared.0"}
        )
        _, _, version = await say(client, [{"role": "user", "content": "Tom has 2 nuts and finds 5. How many?"}])
    assert version != "shared.0" and version in json.dumps(versions)
    count = ledger(status)
    states = ("served", "paired", "judged", "ready", "trained", "dropped")
    assert sum(count[state] for state in states) == count["main"]
    told = await server.get(f"/v1/rl/turns/{turns[0]}")
    assert told["state"] == "trained" and told["score"] == -1 and told["trained_version"], told
    assert "Please write that without markdown." in json.dumps(told["next_state"])
    verdict = told["verdict"]
    assert isinstance(verdict, dict) and judging.hint in json.dumps(verdict["hints"])
    lesson = told["lesson"]
    assert isinstance(lesson, dict) and lesson["hints"] == [judging.hint]
    assert "3 + 4 = 7" in json.dumps(lesson["shown"]) and "**" not in json.dumps(lesson["shown"])
    folder = server.home / "versions" / version
    assert (folder / "adapter_model.safetensors").is_file() and (folder / "adapter_config.json").is_file()
    assert server.end(signal.SIGINT) == 0


async def test_a_killed_server_goes_on_where_it_was(tmp_path: Path, judging: Judging, running: list[Served]) -> None:
    config = f'{LEARN_A_LITTLE}url = "{judging.url}"\nmodel = "rule"\n[teach]\ndemonstrations = false\n{NO_GATE}'
    running.append(server := start(tmp_path / "home", config=config))
    async with _client(server) as client:
        turns = await _correct(client, "Mia has 3 pens and gets 4 more. How many pens does she have?")
        await until(lambda: server.get("/v1/rl/status"), lambda seen: ledger(seen)["trained"] >= 1)
    server.end(signal.SIGKILL)
    running.append(again := start(tmp_path / "home", config=config))
    for turn in turns:
        assert (await again.get(f"/v1/rl/turns/{turn}"))["id"] == turn
    await until(
        lambda: again.get("/v1/rl/status"), lambda seen: ledger(seen)["paired"] == 0 and ledger(seen)["trained"] >= 2
    )
    versions = (await again.get("/v1/rl/versions"))["versions"]
    assert isinstance(versions, list)
    consumed = [turn for row in versions if isinstance(row, dict) for turn in row["turns"]]  # type: ignore[union-attr]
    assert len(consumed) == len(set(consumed))


async def test_a_judge_that_is_away_delays_learning_and_nothing_else(
    tmp_path: Path, judging: Judging, running: list[Served]
) -> None:
    judging.is_away = True
    config = f'{LEARN_A_LITTLE}url = "{judging.url}"\nretries = 0\nretry_s = 0.1\nretry_max_s = 0.2\n'
    running.append(server := start(tmp_path / "home", config=config))
    async with _client(server) as client:
        await _correct(client, "Mia has 3 pens and gets 4 more. How many pens does she have?")
        status = await until(lambda: server.get("/v1/rl/status"), lambda seen: judging.refused >= 3)
        assert ledger(status)["paired"] > 0 and "does not answer" in str(status["story"])
        judging.is_away = False
        await until(lambda: server.get("/v1/rl/status"), lambda seen: ledger(seen)["paired"] == 0)


async def test_a_thumb_down_with_words_teaches_without_any_judge(
    tmp_path: Path, judging: Judging, running: list[Served]
) -> None:
    judging.is_away = True
    running.append(server := start(tmp_path / "home", config=f'{LEARN_A_LITTLE}url = "{judging.url}"\n{NO_GATE}'))
    async with _client(server) as client:
        messages: list[ChatCompletionMessageParam] = [
            {"role": "user", "content": "Tom has 2 nuts and finds 5. How many?"}
        ]
        _, turn, _ = await say(client, messages)
        await client.post(
            "/feedback",
            cast_to=object,
            body={"response_id": turn, "score": -1, "text": "Write plain sentences without any markdown."},
        )
        told = await until(lambda: server.get(f"/v1/rl/turns/{turn}"), lambda seen: seen["state"] == "trained")
    assert told["score"] == -1 and isinstance(told["verdict"], dict) and told["verdict"]["source"] == "feedback"
