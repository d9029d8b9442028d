"""A server with SGLang's API over a scripted engine.

It is modelled on the source of release 0.5.23 only, and stricter: unknown fields are refused
everywhere, so that clients send nothing meaningless.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from aiohttp import web

from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.testing.model_servers import ModelServer, keyed, sampling_of, says, send_event

KNOWN = {
    "input_ids", "sampling_params", "return_logprob", "logprob_start_len", "top_logprobs_num", "stream", "extra_key",
    "lora_path",
}  # fmt: skip
KNOWN_PARAMS = {
    "max_new_tokens", "temperature", "top_p", "top_k", "min_p", "stop_token_ids", "ignore_eos", "skip_special_tokens",
    "sampling_seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "ebnf",
}  # fmt: skip
SPARE = 7  # a prompt must be this many ids shorter than the context
GREEDY = 1e-6  # lower temperatures count as 0
FULL = {"type": "abort", "status_code": 503, "message": "The request queue is full.", "err_type": None}


def sglang_app(server: ModelServer, *, is_incremental: bool = False, is_old: bool = False) -> web.Application:
    """The routes of SGLang that are used. `is_incremental`: as with --incremental-streaming-output, an event has what
    only new text; `is_old`: routes have their old names.
    """
    running = 0

    async def load(request: web.Request) -> web.Response:
        body = await request.json()
        problem = await _load(server, body["lora_name"], Path(body["lora_path"]))
        return web.json_response({"success": not problem, "error_message": problem}, status=400 if problem else 200)

    async def unload(request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        version = server.adapters.pop(name, None)
        if version is None:
            problem = f"LoRA with name {name} does not exist. Loaded LoRAs: {list(server.adapters)}"
            return web.json_response({"success": False, "error_message": problem}, status=400)
        await server.engine.unload(version)
        return web.json_response({"success": True, "error_message": ""})

    async def generate(request: web.Request) -> web.StreamResponse:
        nonlocal running
        body = await request.json()
        server.asked.append(body)
        server.connections.add(request.transport)
        unknown = [*(set(body) - KNOWN), *(set(body["sampling_params"]) - KNOWN_PARAMS)]
        if unknown:  # the schema check comes first
            return web.json_response({"error": f"unknown field `{unknown[0]}`"}, status=400)
        problem = _problem(server, body)
        running += 1
        try:
            if not body.get("stream"):
                return _refused(problem) if problem else await _scores(server, body)
            return await _stream(server, request, body, problem=problem, is_incremental=is_incremental)
        finally:
            running -= 1

    async def tokenize(request: web.Request) -> web.Response:
        tokens = server.cut((await request.json())["prompt"])
        return web.json_response({"tokens": tokens, "count": len(tokens), "max_model_len": server.context_length})

    async def flush(request: web.Request) -> web.Response:
        if running:
            return web.Response(text="Timed out waiting for idle state.", status=400)
        server.flushed += 1
        return web.Response(text="Cache flushed.\nPlease check backend logs for more details.\n")

    about = {
        "context_length": None, "max_req_input_len": server.context_length - SPARE + 1, "version": "0.5.23",
        "enable_lora": server.takes_adapters, "max_lora_rank": server.most_rank, "grammar_backend": "llguidance",
    }  # fmt: skip
    prefix = "/get_" if is_old else "/"
    app = web.Application(middlewares=[keyed(server)])
    app.router.add_get(f"{prefix}model_info", says({"model_path": server.model, "is_generation": True}))
    app.router.add_get(f"{prefix}server_info", says(about))
    for path, route in (("generate", generate), ("tokenize", tokenize), ("flush_cache", flush)):
        app.router.add_post(f"/{path}", route)
    app.router.add_post("/load_lora_adapter", load)
    app.router.add_post("/unload_lora_adapter", unload)
    return app


async def _load(server: ModelServer, name: str, folder: Path) -> str:
    if not server.takes_adapters:
        return "LoRA is not enabled. Please set `--enable-lora` to enable LoRA."
    if not await asyncio.to_thread(folder.is_dir):
        return f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{folder}'."
    problem = await server.load(name, folder)
    if "already" in problem:
        return f"Failed to load LoRA adapter {name} because it is already loaded"
    if "greater than" in problem:
        return (
            f"LoRA adapter {name} is incompatible with the current LoRA memory pool configuration. Please ensure that "
            "the LoRA adapter's rank is within the configured `--max-lora-rank` and that the target modules are "
            "included in `--lora-target-modules`."
        )
    return problem


def _problem(server: ModelServer, body: dict[str, Any]) -> str:
    """What is wrong with a request that the schema lets pass."""
    params, name = body["sampling_params"], body.get("lora_path")
    if name and name not in server.adapters:
        return f"Got LoRA adapter that has never been loaded: {name}\nAll loaded adapters: {list(server.adapters)}."
    if len(body["input_ids"]) > server.context_length - SPARE:
        return f"Input length ({len(body['input_ids'])} tokens) exceeds the maximum allowed length"
    if not 0.0 < params.get("top_p", 1.0) <= 1.0:
        return f"top_p must be in (0, 1], got {params['top_p']}."
    if params.get("top_k", -1) < 1 and params.get("top_k", -1) != -1:
        return f"top_k must be -1 (disable) or at least 1, got {params['top_k']}."
    return ""


def _refused(problem: str) -> web.Response:
    return web.json_response({"error": {"message": problem}}, status=400)


async def _stream(
    server: ModelServer, request: web.Request, body: dict[str, Any], *, problem: str, is_incremental: bool
) -> web.StreamResponse:
    """Its answer, or an error as an event of a started one."""
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    if server.is_full:
        meta = {"finish_reason": FULL, "completion_tokens": 0, "output_token_logprobs": []}
        await send_event(answer, {"text": "", "meta_info": meta})
    elif problem:
        await send_event(answer, {"error": {"message": problem, "type": "invalid_request_error", "code": 400}})
    else:
        try:
            await _say(server, answer, body, is_incremental=is_incremental)
        except ConnectionAbortedError:
            assert request.transport is not None
            request.transport.abort()
            return answer
    await answer.write(b"data: [DONE]\n\n")
    return answer


async def _say(server: ModelServer, answer: web.StreamResponse, body: dict[str, Any], *, is_incremental: bool) -> None:
    params = body["sampling_params"]
    stops = [] if params["ignore_eos"] else params["stop_token_ids"]  # as the real one does
    most, seed = params["max_new_tokens"], params.get("sampling_seed")
    sampling = sampling_of(params, most, stops, seed, body["top_logprobs_num"])
    rows: list[list[Any]] = []
    tops: list[list[list[Any]]] = []
    async for token in server.tokens(body["input_ids"], sampling, _version(server, body)):
        rows.append([_logp(server, token, sampling), token.token, None])
        tops.append([[value, one, None] for one, value in token.top])
        finish = {"type": str(token.finish)} if token.finish is not None else None
        first = len(rows) - 1 if is_incremental else 0
        meta: dict[str, Any] = {"finish_reason": finish, "completion_tokens": len(rows), "cached_tokens": server.cached}
        if server.gives_ids:
            meta["output_token_logprobs"] = rows[first:]
        if body["top_logprobs_num"]:
            meta["output_top_logprobs"] = tops[first:]
        await send_event(answer, {"text": "x", "meta_info": meta})


def _logp(server: ModelServer, token: SampledToken, sampling: Sampling) -> float:
    """If all is greedy, the model's own log-probabilities are returned, whatever the server's options."""
    return token.logp if sampling.temperature < GREEDY or sampling.top_k == 1 else server.logp(token, sampling)


async def _scores(server: ModelServer, body: dict[str, Any]) -> web.Response:
    """Of the ids from `logprob_start_len` on, of which the first has none."""
    ids, first, most = body["input_ids"], body["logprob_start_len"], body["top_logprobs_num"]
    scores = await server.engine.score(Prompt(tuple(ids)), start=first + 1, version=_version(server, body), top_k=most)
    rows: list[list[Any]] = [[None, ids[first], None]]
    rows += [[value, token, None] for token, value in zip(ids[first + 1 :], scores.logp, strict=True)]
    meta: dict[str, Any] = {"finish_reason": {"type": "length"}, "completion_tokens": 0, "input_token_logprobs": rows}
    if most:
        meta["input_top_logprobs"] = [None, *([[value, one, None] for one, value in top] for top in scores.top)]
    return web.json_response({"text": "", "meta_info": meta})


def _version(server: ModelServer, body: dict[str, Any]) -> PolicyVersion:
    name = body.get("lora_path")
    return server.adapters[name] if name else BASE
