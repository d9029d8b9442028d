"""A server with vLLM's API over a scripted engine; SGLang's is in `sglang_server`.

It is modelled on answers of a real one (release 0.32.0) and refuses what that refuses, and unknown fields,
so that clients send nothing meaningless.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from aiohttp import web

from openclaw_rl.core.adapter import Adapter, digest_of_folder
from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.errors import AdapterError, EngineError, RequestError

KNOWN = {
    "model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "logprobs", "return_token_ids",
    "return_tokens_as_token_ids", "skip_special_tokens", "ignore_eos", "stop_token_ids", "stream", "cache_salt",
    "prompt_logprobs", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias",
    "structured_outputs", "stream_options", "stream_interval",
}  # fmt: skip
KNOWN_TOKENS = {"model", "token_ids", "sampling_params", "stream", "stream_options", "cache_salt"}
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


@dataclass(slots=True)
class ModelServer:
    """The state of either double. `adapters` are by the client's names; `asked` are bodies as sent."""

    engine: Engine
    cut: Callable[[str], list[int]]
    context_length: int
    key: str = ""
    takes_adapters: bool = True
    most_rank: int = 64
    is_raw: bool = True  # whether log-probabilities are the model's own, before temperature and cuts
    gives_ids: bool = True
    takes_tokens: bool = True  # by a route that takes only ids
    gathers: bool = True  # sends several tokens together if asked to
    is_full: bool = False  # accepts no more requests now
    model: str = "/models/weights"  # its name of the served model
    breaks_after: int | None = None  # tokens of the next answer, after which the connection is closed
    dies_after: int | None = None  # tokens of the next answer; the server lives on for a moment and computes no more
    is_dead: bool = False
    cached: int = 0  # of each prompt, as reported
    connections: set[object] = field(default_factory=set)  # over which requests came
    adapters: dict[str, PolicyVersion] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: count(1_000))  # of the versions for adapters
    asked: list[dict[str, Any]] = field(default_factory=list)
    forgets_prompts: bool = True  # whether it can flush its cache
    flushed: int = 0

    async def load(self, name: str, folder: Path) -> str:
        """What is wrong with an adapter; empty if it is loaded."""
        if name in self.adapters:
            return f"The lora adapter '{name}' has already been loaded."
        if not (folder / "adapter_config.json").is_file():
            return f"Loading lora {name} failed: No adapter found for {folder}"
        rank = int(json.loads((folder / "adapter_config.json").read_text("utf-8")).get("r", 1))
        if rank > self.most_rank:
            return f"LoRA rank {rank} is greater than max_lora_rank {self.most_rank}."
        version = PolicyVersion(SHARED, next(self.numbers))  # never reuse an unloaded one: answers may still run on it
        try:
            await self.engine.load(Adapter(folder, digest_of_folder(folder), version))
        except (AdapterError, OSError) as problem:
            return f"Loading lora {name} failed: {problem}"
        self.adapters[name] = version
        return ""

    async def tokens(
        self, prompt: list[int], sampling: Sampling, version: PolicyVersion
    ) -> AsyncIterator[SampledToken]:
        """The scripted answer, cut off where the connection should break."""
        breaks, self.breaks_after = self.breaks_after, None
        dies, self.dies_after = self.dies_after, None
        given = 0
        async with aclosing(self.engine.generate(Prompt(tuple(prompt)), sampling, version)) as stream:  # type: ignore[type-var]
            async for token in stream:
                if given == breaks:
                    raise ConnectionAbortedError
                if given == dies:
                    self.is_dead = True
                    raise EngineError(DEAD)
                given += 1
                yield token

    def logp(self, token: SampledToken, sampling: Sampling) -> float:
        """The reported log-probability."""
        return 0.0 if sampling.temperature < 0.1 and not self.is_raw else token.logp


def vllm_app(server: ModelServer) -> web.Application:
    """The routes of vLLM that are used."""

    async def models(request: web.Request) -> web.Response:
        rows = [{"id": "base", "root": server.model, "parent": None, "max_model_len": server.context_length}]
        rows += [{"id": name, "root": "x", "parent": "base", "max_model_len": None} for name in server.adapters]
        return web.json_response({"object": "list", "data": rows})

    async def load(request: web.Request) -> web.Response:
        body = await request.json()
        problem = await server.load(body["lora_name"], Path(body["lora_path"]))
        status = 404 if "No adapter found" in problem else 400
        return (
            web.json_response(vllm_error(problem, status), status=status) if problem else web.Response(text="Success")
        )

    async def unload(request: web.Request) -> web.Response:
        version = server.adapters.pop((await request.json())["lora_name"], None)
        if version is None:
            return web.json_response(vllm_error("The lora adapter cannot be found.", 404), status=404)
        await server.engine.unload(version)
        return web.Response(text="Success")

    async def tokens(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not server.takes_tokens:
            return web.json_response(vllm_error("Restart with --enable-scale-out to enable them.", 403), status=403)
        if "stream_interval" in body["sampling_params"] and not server.gathers:
            return web.json_response(vllm_error("Unexpected keyword argument 'stream_interval'", 400), status=400)
        if not body.get("stream"):
            return web.json_response({"choices": [{"index": 0, "token_ids": [1], "finish_reason": "length"}]})
        unknown = set(body) - KNOWN_TOKENS
        if unknown or "token_ids" not in body or body["sampling_params"].pop("detokenize"):
            return web.json_response(vllm_error(f"not understood: {sorted(body)}", 400), status=400)
        rest = {"model", "stream", "stream_options", "cache_salt"} & set(body)
        flat = {name: body[name] for name in rest} | body["sampling_params"] | {"prompt": body["token_ids"]}
        return await _sampled(server, request, flat, by_ids=True)

    async def completions(request: web.Request) -> web.StreamResponse:
        return await _sampled(server, request, await request.json(), by_ids=False)

    async def tokenize(request: web.Request) -> web.Response:
        tokens = server.cut((await request.json())["prompt"])
        return web.json_response({"count": len(tokens), "tokens": tokens, "max_model_len": server.context_length})

    async def health(request: web.Request) -> web.Response:
        return web.Response(status=503 if server.is_dead else 200)

    app = web.Application(middlewares=[keyed(server)])
    app.router.add_get("/health", health)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/version", says({"version": "0.32.0"}))
    app.router.add_post("/v1/completions", completions)
    app.router.add_post("/inference/v1/generate", tokens)
    app.router.add_post("/tokenize", tokenize)
    app.router.add_post("/reset_prefix_cache", _flush(server))
    if server.takes_adapters:
        app.router.add_post("/v1/load_lora_adapter", load)
        app.router.add_post("/v1/unload_lora_adapter", unload)
    return app


async def _sampled(
    server: ModelServer, request: web.Request, body: dict[str, Any], *, by_ids: bool
) -> web.StreamResponse:
    server.asked.append(body)
    server.connections.add(request.transport)
    if server.is_dead:
        return web.json_response(vllm_error(DEAD, 500), status=500)
    if server.is_full:
        return web.json_response(vllm_error("The server is overloaded.", 503), status=503)
    problem = _vllm_problem(server, body)
    if problem:
        status = 404 if "does not exist" in problem else 400
        return web.json_response(vllm_error(problem, status), status=status)
    version = BASE if body["model"] == "base" else server.adapters[body["model"]]
    if body.get("prompt_logprobs") is not None:
        return await _vllm_scores(server, body, version)
    return await _vllm_stream(server, request, body, version, by_ids=by_ids)


def _vllm_problem(server: ModelServer, body: dict[str, Any]) -> str:
    unknown = set(body) - KNOWN
    if unknown:
        return f"unknown fields {sorted(unknown)}"
    if body["model"] != "base" and body["model"] not in server.adapters:
        return f"The model `{body['model']}` does not exist. Valid aliases: base."
    if body.get("cache_salt") == "":
        return "Parameter 'cache_salt' must be a non-empty string if provided."
    if len(body["prompt"]) + body["max_tokens"] > server.context_length:
        return f"max_tokens={body['max_tokens']} cannot be greater than max_model_len={server.context_length}"
    if body.get("top_p") == 0.0:
        return "top_p must be in (0, 1], got 0.0."
    return ""


async def _vllm_stream(
    server: ModelServer, request: web.Request, body: dict[str, Any], version: PolicyVersion, *, by_ids: bool
) -> web.StreamResponse:
    sampling = sampling_of(body, body["max_tokens"], body["stop_token_ids"], body.get("seed"), body["logprobs"])
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    try:
        held: list[SampledToken] = []
        is_first = True
        async for token in server.tokens(body["prompt"], sampling, version):
            held.append(token)
            if is_first or token.finish is not None or len(held) >= body.get("stream_interval", 1):
                await send_event(answer, {"choices": [_choice(server, held, sampling, by_ids=by_ids)]})
                held, is_first = [], False
        if body.get("stream_options") == {"include_usage": True}:
            usage = {"prompt_tokens": len(body["prompt"]), "prompt_tokens_details": {"cached_tokens": server.cached}}
            await send_event(answer, {"choices": [], "usage": usage})
    except ConnectionAbortedError:
        assert request.transport is not None
        request.transport.abort()
        return answer
    except EngineError as problem:
        await send_event(answer, vllm_error(problem.problem, 500))
    await answer.write(b"data: [DONE]\n\n")
    return answer


def _choice(server: ModelServer, held: list[SampledToken], sampling: Sampling, *, by_ids: bool) -> dict[str, Any]:
    """The tokens of one event. As the real one does, the sampled token is first among the likeliest."""
    likely = [{token.token: server.logp(token, sampling), **dict(token.top)} for token in held]
    finish = held[-1].finish
    return {
        "index": 0,
        "token_ids": [token.token for token in held] if server.gives_ids else None,
        "logprobs": _by_ids(likely) if by_ids else _by_names(likely),
        "finish_reason": None if finish is None else str(finish),
        **({} if by_ids else {"text": "x"}),
    }


def _by_ids(likely: list[dict[int, float]]) -> dict[str, Any]:
    def entry(row: dict[int, float]) -> dict[str, Any]:
        top = [{"token_id": one, "logprob": value, "rank": 1} for one, value in row.items()]
        return {**top[0], "top_logprobs": top}

    return {"content": [entry(row) for row in likely]}


def _by_names(likely: list[dict[int, float]]) -> dict[str, Any]:
    top = [{f"token_id:{one}": value for one, value in row.items()} for row in likely]
    names = [next(iter(row)) for row in top]
    return {
        "token_logprobs": [row[name] for row, name in zip(top, names, strict=True)],
        "tokens": names,
        "top_logprobs": top,
    }


async def _vllm_scores(server: ModelServer, body: dict[str, Any], version: PolicyVersion) -> web.Response:
    scores = await server.engine.score(
        Prompt(tuple(body["prompt"])), start=1, version=version, top_k=body["prompt_logprobs"]
    )
    rows: list[dict[str, dict[str, float]] | None] = [None]
    for at, token in enumerate(body["prompt"][1:]):
        row = {str(token): {"logprob": scores.logp[at]}}
        rows.append(row | {str(one): {"logprob": value} for one, value in (scores.top[at] if scores.top else ())})
    return web.json_response({"choices": [{"text": "x", "finish_reason": "length", "prompt_logprobs": rows}]})


def sampling_of(body: dict[str, Any], most: int, stops: list[int], seed: int | None, top: int) -> Sampling:
    """The sampling options, from the fields with the same names in both servers."""
    top_k = max(0, body["top_k"])
    return Sampling(most, body["temperature"], top_k=top_k, seed=seed, stop_ids=tuple(stops), top_logprobs=top)


async def send_event(answer: web.StreamResponse, body: dict[str, Any]) -> None:
    """One server-sent event."""
    await answer.write(b"data: " + json.dumps(body).encode() + b"\n\n")


def vllm_error(problem: str, status: int) -> dict[str, Any]:
    return {"error": {"message": problem, "type": "Error", "param": None, "code": status}}


def says(body: dict[str, Any]) -> Callable[[web.Request], Any]:
    """A route that gives the same JSON each time."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body)

    return answer


def _flush(server: ModelServer) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> web.Response:
        if not server.forgets_prompts:
            return web.json_response({"detail": "Not Found"}, status=404)
        server.flushed += 1
        return web.Response()

    return answer


def keyed(server: ModelServer) -> Any:
    """Refuses requests with another key."""

    @web.middleware
    async def check(request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        if server.key and request.headers.get("Authorization") != f"Bearer {server.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        try:
            found: web.StreamResponse = await handler(request)
        except RequestError as problem:
            return web.json_response(vllm_error(problem.problem, 400), status=400)
        return found

    return check
