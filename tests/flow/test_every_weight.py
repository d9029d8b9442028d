"""The whole loop where every weight is trained: through the gate, served, killed, served again, rolled back."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from flow_parts import KEY, Served, start
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam
from test_loop import say, until

CONFIG = """
[train]
batch_size = 1
min_batch = 1
[trainer]
parameters = "full"
updates = 4
lr = 1e-3
nice = 0
[teach]
demonstrations = false
[publish]
kl_max = 20.0
length_max = 20.0
departs_max = 10.0
departs_others_max = 10.0
departs_unasked_max = 10.0
wish_margin = 10.0
repetition_margin = 1.0
probes = 1
"""
WISHES = ("Write plain sentences without any markdown.", "Write warmly and kindly.", "Explain every step.")
QUESTION: ChatCompletionMessageParam = {"role": "user", "content": "Tom has 2 nuts and finds 5. How many?"}


async def greedy(client: AsyncOpenAI) -> tuple[str, str]:
    """What is said at temperature 0, and by which version."""
    raw = await client.chat.completions.with_raw_response.create(
        model="default", messages=[QUESTION], max_tokens=60, temperature=0.0
    )
    return raw.parse().choices[0].message.content or "", raw.headers["x-openclaw-rl-version"]


@pytest.mark.timeout(1200)
async def test_a_whole_model_goes_through_the_loop_as_an_adapter_does(tmp_path: Path, running: list[Served]) -> None:
    running.append(server := start(tmp_path / "home", config=CONFIG))
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        base = await greedy(client)
        for number, wish in enumerate(WISHES, start=1):  # one more than the copies the engine holds at once
            _, turn, _ = await say(client, [QUESTION])
            body = {"response_id": turn, "score": -1, "text": wish}
            await client.post("/feedback", cast_to=object, body=body)
            want = {"shared": f"shared.{number}"}
            await until(
                lambda: server.get("/v1/rl/versions"),
                lambda seen, want=want: seen["current"] == want,  # type: ignore[misc]
            )
        before = await greedy(client)
    assert (base[1], before[1]) == ("shared.0", "shared.3")
    assert (server.home / "versions" / "shared.3" / "model.safetensors").is_file()
    server.end(signal.SIGKILL)
    running.append(again := start(tmp_path / "home", config=CONFIG))
    async with AsyncOpenAI(base_url=f"{again.url}/v1", api_key=KEY, max_retries=0) as client:
        assert await greedy(client) == before
        await client.post("/rl/rollback", cast_to=object, body={"version": "shared.1"})
        assert (await greedy(client))[1] == "shared.1"
        await client.post("/rl/rollback", cast_to=object, body={"version": "shared.0"})
        assert await greedy(client) == base
