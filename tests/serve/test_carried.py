"""Hints in the prompts of their user's main requests over real HTTP: exact, bounded, and gone when they retire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest_asyncio
from serve_doubles import Serving, serving

from openclaw_rl.core.episode import Episode, EpisodeStep
from openclaw_rl.core.hint import Carry, Hint
from openclaw_rl.core.message import Json
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.store.db import Store
from openclaw_rl.teach.in_use import HintsInUse
from openclaw_rl.teach.settings import TeachSettings

WISH = Hint("Write plain sentences.")
KEY = {"Authorization": "Bearer secret"}


@pytest_asyncio.fixture
async def bridged(renderer: ChatRenderer, store: Store) -> AsyncIterator[Serving]:
    """A server that carries its users' hints."""
    hints = HintsInUse(store, Carry.BRIDGE, TeachSettings(), lambda text: len(renderer.encode(text)))

    def change(parts: ServeParts) -> ServeParts:
        return replace(parts, carried=hints.placed)

    async with serving(renderer, store, change=change) as server:
        yield server


@pytest_asyncio.fixture
async def client(bridged: Serving) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(bridged.url, headers=KEY) as session:
        yield session


async def say(
    http: aiohttp.ClientSession, messages: list[dict[str, str]], *, session: str = "s", side: bool = False
) -> str:
    headers = {"X-Session-Id": session}
    body: dict[str, object] = {"model": "default", "messages": messages, "max_tokens": 100}
    if side:
        body["turn_type"] = "side"
    async with http.post("/v1/chat/completions", json=body, headers=headers) as answer:
        told = await answer.json()
        assert answer.status == 200, told
    text = str(told["choices"][0]["message"]["content"])
    messages.append({"role": "assistant", "content": text})
    return answer.headers["x-openclaw-rl-turn"]


def read(server: Serving, index: int = -1) -> str:
    """What the model read."""
    return server.parts.renderer.table.text(server.engine.asked[index].prompt.tokens)


async def test_a_conversation_goes_on_exactly_behind_its_hint_over_several_turns(
    bridged: Serving, client: aiohttp.ClientSession, store: Store
) -> None:
    await store.hints.adopt("alice", WISH, at_s=1.0)
    messages = [{"role": "user", "content": "hello there"}]
    before: tuple[int, ...] = ()
    for words in ("read it", "write it", "read the answer"):
        sampled = bridged.says(words)
        await say(client, messages)
        prompt = bridged.engine.asked[-1].prompt
        assert prompt.tokens[: len(before)] == before and prompt.continued == len(before)
        assert read(bridged).count("[user's hint] Write plain sentences.") == 1
        before = prompt.tokens + sampled
        messages.append({"role": "user", "content": "and then?"})
    turns = bridged.book.turns
    assert all("hint" not in item.text for turn in turns for item in turn.messages)
    assert all([item.text for item in turn.carried] == [WISH.text] for turn in turns)
    stored = await store.turn(turns[2].id)
    assert stored is not None and stored.prompt == turns[2].prompt and stored.read[0].text.endswith(WISH.text)


async def test_a_side_request_never_sees_one_though_it_goes_on_from_a_turn_that_did(
    bridged: Serving, client: aiohttp.ClientSession, store: Store
) -> None:
    await store.hints.adopt("alice", WISH, at_s=1.0)
    messages = [{"role": "user", "content": "hello there"}]
    bridged.says("read it")
    await say(client, messages)
    bridged.says("a title")
    await say(client, [*messages, {"role": "user", "content": "name this"}], side=True)
    assert "hint" in read(bridged, 0) and "hint" not in read(bridged)
    assert bridged.book.turns[-1].carried == ()


async def test_once_a_hint_retires_the_prompt_is_the_clients_own_again(
    bridged: Serving, client: aiohttp.ClientSession, store: Store, renderer: ChatRenderer
) -> None:
    kept = await store.hints.adopt("alice", WISH, at_s=1.0)
    messages = [{"role": "user", "content": "hello there"}]
    sampled = bridged.says("read it")
    await say(client, messages)
    await store.hints.retire(kept.id, why="the weights follow", at_s=2.0)
    messages.append({"role": "user", "content": "and then?"})
    bridged.says("write it")
    await say(client, messages)
    bare = renderer.encode("<|im_start|>user\nhello there<|im_end|>\n<|im_start|>assistant\n")
    assert bridged.engine.asked[-1].prompt.tokens[: len(bare) + len(sampled)] == bare + sampled
    bridged.says("read it")
    await say(client, [{"role": "user", "content": "hello there"}], session="another")
    assert "hint" not in read(bridged) and bridged.book.turns[-1].carried == ()


async def test_a_request_that_fits_as_it_came_is_not_refused_for_its_hints(
    bridged: Serving, client: aiohttp.ClientSession, store: Store
) -> None:
    await store.hints.adopt("alice", WISH, at_s=1.0)
    for words, is_carried in ((120, True), (900, False)):  # an answer may have 100 of the context's 1024 tokens
        asked = "read " * words
        assert len(bridged.parts.renderer.encode(asked)) < 1024 - 100
        bridged.says("read it")
        await say(client, [{"role": "user", "content": asked}], session=str(words))
        assert ("hint" in read(bridged)) is is_carried and bool(bridged.book.turns[-1].carried) is is_carried


async def test_a_turn_says_which_hints_it_was_read_behind(
    bridged: Serving, client: aiohttp.ClientSession, store: Store
) -> None:
    kept = await store.hints.adopt("alice", WISH, at_s=1.0)
    bridged.says("read it")
    name = await say(client, [{"role": "user", "content": "hello there"}])
    async with client.get(f"/v1/rl/turns/{name}") as answer:
        told = await answer.json()
    assert told["carried"] == [{"id": kept.id, "text": WISH.text, "behind_message": 0}]
    assert told["messages"] == [{"role": "user", "content": "hello there"}]


async def test_hints_are_added_edited_retired_taken_back_and_removed_over_http(
    bridged: Serving, client: aiohttp.ClientSession
) -> None:
    async def put(path: str, body: dict[str, Json], status: int = 200) -> dict[str, Json]:
        async with client.put(path, json=body) as answer:
            told: dict[str, Json] = await answer.json()
            assert answer.status == status, told
            return told

    kept = await put("/v1/rl/hints", {"text": " Be brief. "})
    assert (kept["user"], kept["text"], kept["why"]) == ("alice", "Be brief.", "added by hand")
    path = f"/v1/rl/hints/{kept['id']}"
    assert (await put(path, {"text": "Be very brief."}))["text"] == "Be very brief."
    assert (await put(path, {"state": "retired"}))["state"] == "retired"
    assert (await put(path, {"state": "in_use"}))["state"] == "in_use"
    await put(path, {"state": "asleep"}, 400)
    await put(path, {"text": "  "}, 400)
    await put("/v1/rl/hints", {"text": "In French.", "user": "bob"})
    async with client.get("/v1/rl/hints", params={"user": "bob"}) as answer:
        assert [item["text"] for item in (await answer.json())["hints"]] == ["In French."]
    for status in (200, 404):
        async with client.delete(path) as answer:
            assert answer.status == status
    await put(path, {"text": "gone"}, 404)
    async with client.get("/v1/rl/hints") as answer:
        assert [item["user"] for item in (await answer.json())["hints"]] == ["bob"]


async def test_no_hint_stands_in_a_step_of_an_episode(
    bridged: Serving, client: aiohttp.ClientSession, store: Store
) -> None:
    await store.hints.adopt("alice", WISH, at_s=1.0)
    await store.episodes.begin(Episode("alice:e", "alice", "pens", 1.0))
    bridged.book.step = EpisodeStep("alice:e", 0)
    bridged.says("read it")
    turn = await say(client, [{"role": "user", "content": "hello there"}])
    stored = await store.turn(turn)
    assert stored is not None and stored.carried == () and stored.step == EpisodeStep("alice:e", 0)
    assert "hint" not in read(bridged)
