"""What this server is not, it says so; what clients ask before they begin, it answers."""

from __future__ import annotations

import aiohttp
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, NotFoundError
from serve_doubles import Serving

KEY = {"Authorization": "Bearer secret"}
UNSERVED = [
    ("POST", "/v1/embeddings", "makes no embeddings"),
    ("POST", "/v1/images/generations", "neither draws nor sees"),
    ("POST", "/v1/audio/transcriptions", "neither hears nor speaks"),
    ("POST", "/v1/moderations", "does not moderate"),
    ("GET", "/v1/assistants", "keeps no agents"),
    ("POST", "/v1/threads/t/runs", "keeps no agents"),
    ("GET", "/v1/batches", "keeps no batches"),
    ("POST", "/v1/fine_tuning/jobs", "takes no jobs"),
    ("POST", "/v1/files", "keeps no files"),
    ("POST", "/embeddings", "makes no embeddings"),
    ("POST", "/chat/completions", "lacks /v1"),
    ("POST", "/v1/v1/messages", "/v1 twice"),
    ("POST", "/api/chat", "Ollama"),
]


@pytest.mark.parametrize(("method", "path", "says"), UNSERVED)
async def test_a_path_that_is_not_served_says_what_this_server_is_not(
    server: Serving, method: str, path: str, says: str
) -> None:
    async with aiohttp.ClientSession(headers=KEY) as http, http.request(method, server.url + path) as answer:
        problem = (await answer.json())["error"]
    assert answer.status == 404 and problem["code"] == "unsupported_endpoint" and problem["type"] == "not_found_error"
    assert says in problem["message"] and problem["fix"]


async def test_anthropics_batches_are_refused_in_anthropics_shape(server: Serving) -> None:
    async with aiohttp.ClientSession(headers=KEY) as http, http.get(f"{server.url}/v1/messages/batches") as answer:
        told = await answer.json()
    assert answer.status == 404 and told["type"] == "error" and "batches" in told["error"]["message"]


async def test_a_path_that_nobody_knows_stays_unknown(server: Serving) -> None:
    async with aiohttp.ClientSession(headers=KEY) as http, http.get(f"{server.url}/v1/embeddingsx") as answer:
        assert answer.status == 404 and (await answer.json())["error"]["code"] is None


async def test_the_official_client_does_not_try_again(server: Serving) -> None:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=5) as client:
        with pytest.raises(NotFoundError, match="makes no embeddings"):
            await client.embeddings.create(model="tiny", input="x")


async def test_both_official_clients_list_the_models(server: Serving, client: AsyncOpenAI) -> None:
    names = [each.id async for each in client.models.list()]
    async with AsyncAnthropic(base_url=server.url, api_key="secret", max_retries=0) as claude:
        page = await claude.models.list(limit=5)
        one = await claude.models.retrieve("default")
    assert names == ["tiny", "default"] == [each.id for each in page.data] and page.has_more is False
    assert (one.display_name, one.max_input_tokens, one.max_tokens) == ("tiny", 1023, 1023)


async def test_health_and_models_have_the_names_that_clients_try(server: Serving) -> None:
    async with aiohttp.ClientSession() as http:
        for path, same in (("/health", "/healthz"), ("/models", "/v1/models"), ("/models/tiny", "/v1/models/tiny")):
            async with http.get(server.url + path) as one, http.get(server.url + same) as other:
                assert one.status == 200 and await one.json() == await other.json()


PROBES: list[tuple[str, dict[str, object]]] = [
    ("/v1/messages", {"model": "default", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}),
    ("/v1/chat/completions", {"model": "default", "messages": [{"role": "user", "content": "test"}], "max_tokens": 1}),
    ("/v1/messages/count_tokens", {"model": "default", "messages": [{"role": "user", "content": "x"}]}),
    ("/v1/responses", {"model": "default", "input": "test", "max_output_tokens": 16, "store": False}),
]


@pytest.mark.parametrize(("path", "body"), PROBES)
async def test_a_test_of_the_connection_is_answered(server: Serving, path: str, body: dict[str, object]) -> None:
    server.says("hello")
    async with aiohttp.ClientSession(headers=KEY) as http, http.post(server.url + path, json=body) as answer:
        assert answer.status == 200 and "x-openclaw-rl-ignored" not in answer.headers
    most = body.get("max_tokens", body.get("max_output_tokens"))
    assert [arrival.max_tokens for arrival in server.book.arrivals] == ([] if most is None else [most])
