"""Two people with opposite wishes on one server: each is answered by a version of their own, after a kill too."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from random import Random

import pytest
from flow_parts import KEY, Served, start
from forked_trainer import SETTING
from openai import AsyncOpenAI

from openclaw_rl.core.message import Json
from openclaw_rl.tiny.problems import problem
from openclaw_rl.tiny.styles import has_markup
from openclaw_rl.tiny.wishes import request

CONFIG = """
[train]
scopes = "user"
batch_size = 1
min_batch = 1
[trainer]
rank = 8
LAUNCHER
alpha = 16.0
lr = 1e-2
nice = 0
[teach]
demonstrations = false
[publish]
kl_max = 20.0
probes = 0
""".replace("LAUNCHER", SETTING)
pytestmark = pytest.mark.usefixtures("forked_trainers")
ANN, BOB = "ann", "Bob B."
WISHES = {
    ANN: "The user does not want the answer to look like AI. Write plain sentences without any markdown.",
    BOB: "Use a structured markdown format with a header, numbered bold steps and a boxed answer.",
}
MOST = 16  # corrections until a wish is kept


async def ask(client: AsyncOpenAI, user: str, question: str, *, temperature: float = 0.0) -> tuple[str, str, str]:
    """The reply, its turn and its version."""
    raw = await client.chat.completions.with_raw_response.create(
        model="default",
        messages=[{"role": "user", "content": question}],
        max_tokens=400,
        temperature=temperature,
        seed=len(question),
        extra_headers={"X-User-Id": user} if user else {},
    )
    text = raw.parse().choices[0].message.content or ""
    return text, raw.headers["x-openclaw-rl-turn"], raw.headers["x-openclaw-rl-version"]


async def teach(server: Served, client: AsyncOpenAI, user: str, question: str) -> None:
    """A reply marked as bad with the wish in words; returns once it was learned from and the version settled."""
    _, turn, _ = await ask(client, user, question, temperature=0.7)
    body = {"response_id": turn, "score": -1, "text": WISHES[user]}
    await client.post("/feedback", cast_to=object, body=body)
    seen: dict[str, Json] = {}
    for _ in range(3000):  # a step may take a minute where many share the machine
        seen = await server.get(f"/v1/rl/turns/{turn}")
        versions = (await server.get("/v1/rl/versions"))["versions"]
        is_settled = isinstance(versions, list) and all(
            isinstance(row, dict) and row["status"] != "candidate" for row in versions
        )
        if seen["state"] in ("trained", "dropped") and is_settled:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(seen)


async def replies(client: AsyncOpenAI, questions: list[str]) -> dict[str, list[tuple[str, str]]]:
    """By user, the greedy first replies and the versions that gave them."""
    found = {}
    for user in (ANN, BOB, ""):
        answers = [await ask(client, user, question) for question in questions]
        found[user] = [(text, version) for text, _, version in answers]
    return found


@pytest.mark.timeout(1200)
async def test_opposite_wishes_are_both_met_and_a_kill_changes_nothing(tmp_path: Path, running: list[Served]) -> None:
    rng = Random(5)
    questions = [request(problem(rng, held_out=True), rng) for _ in range(2)]
    running.append(server := start(tmp_path / "home", config=CONFIG))
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        await teach(server, client, BOB, request(problem(rng), rng))
        for _ in range(MOST):
            await teach(server, client, ANN, request(problem(rng), rng))
            before = await replies(client, questions)
            if not any(has_markup(text) for text, _ in before[ANN]):
                break
    assert not any(has_markup(text) for text, _ in before[ANN])
    assert all(has_markup(text) for text, _ in before[BOB])
    scopes = {user: {version.rpartition(".")[0] for _, version in found} for user, found in before.items()}
    assert scopes == {ANN: {"user-ann"}, BOB: {"user-=42ob=20=42=2E"}, "": {"shared"}}
    server.end(signal.SIGKILL)
    running.append(again := start(tmp_path / "home", config=CONFIG))
    async with AsyncOpenAI(base_url=f"{again.url}/v1", api_key=KEY, max_retries=0) as client:
        assert await replies(client, questions) == before
        await client.post("/rl/rollback", cast_to=object, body={"version": "user-ann.0"})
        after = await replies(client, questions)
    assert after[ANN] == after[""] == before[""]
    assert after[BOB] == before[BOB]
