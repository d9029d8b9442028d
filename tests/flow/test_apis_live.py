"""The other APIs on the real engine: what is gone on from stands in the next prompt with the ids that were sampled."""

from __future__ import annotations

import asyncio
import re
import signal
from contextlib import aclosing
from pathlib import Path

import aiohttp
from anthropic import AsyncAnthropic
from anthropic.types import MessageParam
from flow_parts import KEY, Served, start
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseInputItemParam

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.message import Json
from openclaw_rl.core.turn import Turn
from openclaw_rl.store.db import Store

ASKED = "Mia has 3 pens and gets 4 more. How many pens does she have?"
PATIENCE = 300  # looks


async def _turns(home: Path, names: list[str]) -> list[Turn]:
    async with aclosing(await Store.open(home)) as store:
        found = [await store.turn(name) for name in names]
    return [turn for turn in found if turn is not None]


def _goes_on(turn: Turn, before: Turn) -> bool:
    """Whether the turn was read behind the other's prompt and reply, id for id."""
    served = (*before.prompt.tokens, *before.completion.tokens)
    return turn.parent == before.id and turn.prompt.tokens[: len(served)] == served


def _name(answer: Response) -> str:
    return answer.id.removeprefix("resp_")


async def _until_idle(server: Served) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        for _ in range(PATIENCE):
            async with http.get("/metrics") as answer:
                if re.search(r"^openclaw_rl_in_flight 0\.0$", await answer.text(), re.MULTILINE):
                    return
            await asyncio.sleep(0.1)
    raise AssertionError("an answer nobody reads is still being sampled")


async def _listed(server: Served, count: int) -> Json:
    """All turns, newest first, once there are so many: one that is cut off is stored after its last token."""
    for _ in range(PATIENCE):
        listed = (await server.get("/v1/rl/turns"))["turns"]
        if isinstance(listed, list) and len(listed) >= count:
            break
        await asyncio.sleep(0.1)
    return listed


async def test_responses_go_on_by_id_and_by_history_with_the_sampled_ids(tmp_path: Path, running: list[Served]) -> None:
    running.append(server := start(tmp_path / "home", "--no-learn"))
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        one = await client.responses.create(model="default", input=ASKED, max_output_tokens=200, temperature=0.7)
        two = await client.responses.create(
            model="default", input="Are you sure?", previous_response_id=one.id, max_output_tokens=200
        )
        async with client.responses.stream(
            model="default", input="Thanks!", previous_response_id=two.id, max_output_tokens=200
        ) as stream:
            kinds = [event.type async for event in stream]
            three: Response = await stream.get_final_response()
        talk: list[ResponseInputItemParam] = [{"role": "user", "content": ASKED}]
        talk += [item.to_dict() for item in one.output]  # type: ignore[misc]
        talk.append({"role": "user", "content": "And two less?"})
        four = await client.responses.create(model="default", input=talk, max_output_tokens=200)
        cut = await client.responses.create(model="default", input=ASKED, max_output_tokens=3)
        endless = await client.responses.create(model="default", input=ASKED, temperature=10.0, stream=True)
        async for event in endless:
            if event.type == "response.output_text.delta":
                break
        await endless.close()
        await _until_idle(server)
        listed = await _listed(server, 6)
    assert isinstance(listed, list) and isinstance(listed[0], dict)
    assert listed[0]["finish"] == "cancelled"
    assert (cut.status, cut.usage and cut.usage.output_tokens) == ("incomplete", 3)
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert three.usage is not None and three.usage.input_tokens_details.cached_tokens > 0
    assert server.end(signal.SIGINT) == 0
    first, second, third, branch = await _turns(server.home, [_name(answer) for answer in (one, two, three, four)])
    assert _goes_on(second, first) and _goes_on(third, second) and _goes_on(branch, first)
    assert first.session == second.session == third.session == branch.session
    assert all(turn.completion.finish is Finish.STOP for turn in (first, second, third))


async def test_anthropics_messages_go_on_with_the_sampled_ids(tmp_path: Path, running: list[Served]) -> None:
    running.append(server := start(tmp_path / "home", "--no-learn"))
    talk: list[MessageParam] = [{"role": "user", "content": ASKED}]
    names: list[str] = []
    async with AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0) as claude:
        for words in ("Are you sure?", "Thanks!", ""):
            async with claude.messages.stream(
                model="default",
                max_tokens=200,
                messages=talk,
                extra_body={"temperature": 0.7},
                metadata={"user_id": "user_ab_account_cd_session_0123abcd-0000-4000-8000-0123456789ab"},
            ) as stream:
                answer = await stream.get_final_message()
            names.append(answer.id.removeprefix("msg_"))
            talk += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": words}]
        assert answer.stop_reason == "end_turn" and answer.usage.cache_read_input_tokens
    assert server.end(signal.SIGINT) == 0
    first, second, third = await _turns(server.home, names)
    assert _goes_on(second, first) and _goes_on(third, second)
    assert first.session == "owner:0123abcd-0000-4000-8000-0123456789ab"
