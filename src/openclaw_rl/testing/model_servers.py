"""Servers that speak as vLLM and SGLang do, with a scripted engine behind them.

vLLM's is modelled on answers of a real one (release 0.32.0) and refuses what that refuses; SGLang's is modelled on its
documentation alone. Both refuse fields they do not know, so that nothing is sent that means nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from openclaw_rl.core.adapter import Adapter, digest_of_folder
from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.errors import AdapterError, EngineError, RequestError
from openclaw_rl.testing.engine import ScriptedEngine

KNOWN = {
    "model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "logprobs", "return_token_ids",
    "return_tokens_as_token_ids", "skip_special_tokens", "ignore_eos", "stop_token_ids", "stream", "cache_salt",
    "prompt_logprobs", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias",
    "structured_outputs", "stream_options",
}  # fmt: skip
KNOWN_PARAMS = {
    "max_new_tokens", "temperature", "top_p", "top_k", "min_p", "stop_token_ids", "ignore_eos", "skip_special_tokens",
    "sampling_seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "ebnf",
}  # fmt: skip


DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


@dataclass(slots=True)
class ModelServer:
    """What stands behind either double. `adapters` are by the name the client gave them; `asked` are bodies as sent."""

    engine: ScriptedEngine
    cut: Callable[[str], list[int]]
    context_length: int
    key: str = ""
    takes_adapters: bool = True
    most_rank: int = 64
    is_raw: bool = True  # whether log-probabilities are the model's own, before cuts
    breaks_after: int | None = None  # tokens of the next answer, whose connection is closed then
    dies_after: int | None = None  # tokens of the next answer; the server lives on for a moment and computes no more
    is_dead: bool = False
    cached: int = 0  # of each prompt, as the server says
    connections: set[object] = field(default_factory=set)  # over which answers were asked for
    adapters: dict[str, PolicyVersion] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    flushed: int = 0

    async def load(self, name: str, folder: Path) -> str:
        """What is wrong with an adapter; empty where it is loaded."""
        if name in self.adapters:
            return f"The lora adapter '{name}' has already been loaded."
        if not (folder / "adapter_config.json").is_file():
            return f"Loading lora {name} failed: No adapter found for {folder}"
        rank = int(json.loads((folder / "adapter_config.json").read_text("utf-8")).get("r", 1))
        if rank > self.most_rank:
            return f"LoRA rank {rank} is greater than max_lora_rank {self.most_rank}."
        version = PolicyVersion(SHARED, len(self.adapters) + 1_000)
        try:
            await self.engine.load(Adapter(folder, digest_of_folder(folder), version))
        except (AdapterError, OSError) as problem:
            return f"Loading lora {name} failed: {problem}"
        self.adapters[name] = version
        return ""

    async def tokens(
        self, prompt: list[int], sampling: Sampling, version: PolicyVersion
    ) -> AsyncIterator[SampledToken]:
        """The scripted answer, cut off where the connection is to break."""
        breaks, self.breaks_after = self.breaks_after, None
        dies, self.dies_after = self.dies_after, None
        given = 0
        async with aclosing(self.engine.generate(Prompt(tuple(prompt)), sampling, version)) as stream:
            async for token in stream:
                if given == breaks:
                    raise ConnectionAbortedError
                if given == dies:
                    self.is_dead = True
                    raise EngineError(DEAD)
                given += 1
                yield token

    def logp(self, token: SampledToken, sampling: Sampling) -> float:
        """What is reported of it."""
        return 0.0 if sampling.top_k == 1 and not self.is_raw else token.logp


def vllm_app(server: ModelServer) -> web.Application:
    """The routes of vLLM that are used."""

    async def models(request: web.Request) -> web.Response:
        rows = [{"id": "base", "root": "/models/base", "parent": None, "max_model_len": server.context_length}]
        rows += [{"id": name, "root": "x", "parent": "base", "max_model_len": None} for name in server.adapters]
        return web.json_response({"object": "list", "data": rows})

    async def load(request: web.Request) -> web.Response:
        body = await request.json()
        problem = await server.load(body["lora_name"], Path(body["lora_path"]))
        status = 404 if "No adapter found" in problem else 400
        return (
            web.json_response(_vllm_error(problem, status), status=status) if problem else web.Response(text="Success")
        )

    async def unload(request: web.Request) -> web.Response:
        version = server.adapters.pop((await request.json())["lora_name"], None)
        if version is None:
            return web.json_response(_vllm_error("The lora adapter cannot be found.", 404), status=404)
        await server.engine.unload(version)
        return web.Response(text="Success")

    async def completions(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        server.asked.append(body)
        server.connections.add(request.transport)
        if server.is_dead:
            return web.json_response(_vllm_error(DEAD, 500), status=500)
        problem = _vllm_problem(server, body)
        if problem:
            status = 404 if "does not exist" in problem else 400
            return web.json_response(_vllm_error(problem, status), status=status)
        version = BASE if body["model"] == "base" else server.adapters[body["model"]]
        if body.get("prompt_logprobs") is not None:
            return await _vllm_scores(server, body, version)
        return await _vllm_stream(server, request, body, version)

    async def tokenize(request: web.Request) -> web.Response:
        tokens = server.cut((await request.json())["prompt"])
        return web.json_response({"count": len(tokens), "tokens": tokens, "max_model_len": server.context_length})

    async def health(request: web.Request) -> web.Response:
        return web.Response(status=503 if server.is_dead else 200)

    app = web.Application(middlewares=[_keyed(server)])
    app.router.add_get("/health", health)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/version", _json({"version": "0.32.0"}))
    app.router.add_post("/v1/completions", completions)
    app.router.add_post("/tokenize", tokenize)
    app.router.add_post("/reset_prefix_cache", _flush(server))
    if server.takes_adapters:
        app.router.add_post("/v1/load_lora_adapter", load)
        app.router.add_post("/v1/unload_lora_adapter", unload)
    return app


def sglang_app(server: ModelServer) -> web.Application:
    """The routes of SGLang that are used, as its documentation has them."""

    async def load(request: web.Request) -> web.Response:
        body = await request.json()
        problem = await server.load(body["lora_name"], Path(body["lora_path"]))
        return web.json_response({"success": not problem, "error_message": problem}, status=400 if problem else 200)

    async def unload(request: web.Request) -> web.Response:
        version = server.adapters.pop((await request.json())["lora_name"], None)
        if version is not None:
            await server.engine.unload(version)
        return web.json_response({"success": version is not None}, status=200 if version is not None else 400)

    async def generate(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        server.asked.append(body)
        params = body["sampling_params"]
        unknown = set(params) - KNOWN_PARAMS
        name = body.get("lora_path", "")
        if unknown or (name and name not in server.adapters):
            return web.json_response({"error": {"message": f"unknown: {unknown or name}"}}, status=400)
        version = server.adapters[name] if name else BASE
        if not params["max_new_tokens"]:
            return await _sglang_scores(server, body, version)
        return await _sglang_stream(server, request, body, version)

    async def tokenize(request: web.Request) -> web.Response:
        return web.json_response({"tokens": server.cut((await request.json())["prompt"])})

    app = web.Application(middlewares=[_keyed(server)])
    app.router.add_get("/get_model_info", _json({"model_path": "/models/base"}))
    app.router.add_get("/get_server_info", _json({"context_length": server.context_length, "version": "0.5.23"}))
    app.router.add_post("/generate", generate)
    app.router.add_post("/tokenize", tokenize)
    app.router.add_post("/flush_cache", _flush(server))
    app.router.add_post("/load_lora_adapter", load)
    app.router.add_post("/unload_lora_adapter", unload)
    return app


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
    server: ModelServer, request: web.Request, body: dict[str, Any], version: PolicyVersion
) -> web.StreamResponse:
    sampling = _sampling(body, body["max_tokens"], body["stop_token_ids"], body["seed"], body["logprobs"])
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    try:
        async for token in server.tokens(body["prompt"], sampling, version):
            logp = server.logp(token, sampling)
            name = f"token_id:{token.token}"
            # as the real one does: the sampled token stands among the likeliest, first
            top = {name: logp, **{f"token_id:{one}": value for one, value in token.top}}
            choice = {
                "index": 0,
                "text": "x",
                "token_ids": [token.token],
                "logprobs": {"token_logprobs": [logp], "tokens": [name], "top_logprobs": [top]},
                "finish_reason": None if token.finish is None else str(token.finish),
            }
            await _event(answer, {"choices": [choice]})
        if body.get("stream_options") == {"include_usage": True}:
            usage = {"prompt_tokens": len(body["prompt"]), "prompt_tokens_details": {"cached_tokens": server.cached}}
            await _event(answer, {"choices": [], "usage": usage})
    except ConnectionAbortedError:
        assert request.transport is not None
        request.transport.abort()
        return answer
    except EngineError as problem:
        await _event(answer, _vllm_error(problem.problem, 500))
    await answer.write(b"data: [DONE]\n\n")
    return answer


async def _vllm_scores(server: ModelServer, body: dict[str, Any], version: PolicyVersion) -> web.Response:
    scores = await server.engine.score(
        Prompt(tuple(body["prompt"])), start=1, version=version, top_k=body["prompt_logprobs"]
    )
    rows: list[dict[str, dict[str, float]] | None] = [None]
    for at, token in enumerate(body["prompt"][1:]):
        row = {str(token): {"logprob": scores.logp[at]}}
        rows.append(row | {str(one): {"logprob": value} for one, value in (scores.top[at] if scores.top else ())})
    return web.json_response({"choices": [{"text": "x", "finish_reason": "length", "prompt_logprobs": rows}]})


async def _sglang_stream(
    server: ModelServer, request: web.Request, body: dict[str, Any], version: PolicyVersion
) -> web.StreamResponse:
    params = body["sampling_params"]
    sampling = _sampling(
        params, params["max_new_tokens"], params["stop_token_ids"], params["sampling_seed"], body["top_logprobs_num"]
    )
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    rows: list[list[Any]] = []
    tops: list[list[list[Any]]] = []
    try:
        async for token in server.tokens(body["input_ids"], sampling, version):
            rows.append([server.logp(token, sampling), token.token, None])
            tops.append([[value, one, None] for one, value in token.top])
            finish = {"type": str(token.finish)} if token.finish is not None else None
            meta = {"finish_reason": finish, "completion_tokens": len(rows), "output_token_logprobs": rows}
            await _event(answer, {"text": "x", "meta_info": meta | {"output_top_logprobs": tops}})
    except ConnectionAbortedError:
        assert request.transport is not None
        request.transport.abort()
        return answer
    await answer.write(b"data: [DONE]\n\n")
    return answer


async def _sglang_scores(server: ModelServer, body: dict[str, Any], version: PolicyVersion) -> web.Response:
    ids, first = body["input_ids"], body["logprob_start_len"]
    start = max(1, first)
    scores = await server.engine.score(Prompt(tuple(ids)), start=start, version=version, top_k=body["top_logprobs_num"])
    rows: list[list[Any]] = [[None, ids[first], None]] if first < start else []
    rows += [[value, token, None] for token, value in zip(ids[start:], scores.logp, strict=True)]
    tops = [[[value, one, None] for one, value in top] for top in scores.top]
    return web.json_response({"text": "", "meta_info": {"input_token_logprobs": rows, "input_top_logprobs": tops}})


def _sampling(body: dict[str, Any], most: int, stops: list[int], seed: int, top: int) -> Sampling:
    top_k = max(0, body["top_k"])
    return Sampling(most, body["temperature"], top_k=top_k, seed=seed, stop_ids=tuple(stops), top_logprobs=top)


async def _event(answer: web.StreamResponse, body: dict[str, Any]) -> None:
    await answer.write(b"data: " + json.dumps(body).encode() + b"\n\n")


def _vllm_error(problem: str, status: int) -> dict[str, Any]:
    return {"error": {"message": problem, "type": "Error", "param": None, "code": status}}


def _json(body: dict[str, Any]) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body)

    return answer


def _flush(server: ModelServer) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> web.Response:
        server.flushed += 1
        return web.json_response({"success": True})

    return answer


def _keyed(server: ModelServer) -> Any:
    @web.middleware
    async def check(request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        if server.key and request.headers.get("Authorization") != f"Bearer {server.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        try:
            found: web.StreamResponse = await handler(request)
        except RequestError as problem:
            return web.json_response(_vllm_error(problem.problem, 400), status=400)
        return found

    return check
