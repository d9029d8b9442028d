"""SGLang's own routes, from the source of release 0.5.23. Never run on a real server: see docs/engines.md."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.message import Json
from openclaw_rl.engines.remote.dialect import Launch, Piece, RemoteRequest, ServerFacts, Top
from openclaw_rl.engines.remote.http import ServerHttp, ServerRefusal
from openclaw_rl.engines.remote.replica import LOST
from openclaw_rl.errors import EngineError

ADAPTERS_AT_ONCE = 5  # in one batch, including the base model
ENVIRONMENT = {"SGLANG_RETURN_ORIGINAL_LOGPROB": "1"}  # the model's own, before the temperature
FLUSH_S = 30  # it drops cached prompts only while nothing runs, and waits this long for such a moment
NOT_LOADED = ("never been loaded", "are not loaded")  # its messages about an adapter that it does not have


class Sglang:
    """The dialect."""

    name = "sglang"

    def command(self, launch: Launch) -> tuple[list[str], dict[str, str]]:
        """The command that starts a server."""
        words = [launch.python, "-m", "sglang.launch_server", "--model-path", str(launch.model)]
        words += ["--host", launch.address, "--port", str(launch.port), "--api-key", launch.key]
        words += ["--enable-lora", "--max-lora-rank", str(launch.rank)]
        words += ["--max-loras-per-batch", str(ADAPTERS_AT_ONCE)]
        words += ["--max-loaded-loras", str(max(ADAPTERS_AT_ONCE, launch.versions))]
        words += ["--lora-target-modules", *(launch.modules or ("all",)), "--grammar-backend", "llguidance"]
        words += [] if launch.seed is None else ["--random-seed", str(launch.seed)]
        return [*words, *launch.settings.options], ENVIRONMENT

    async def facts(self, http: ServerHttp) -> ServerFacts:
        """The base model, its context and its adapters. Raises EngineError if another kind of server answers."""
        about, server = await _either(http, "/model_info"), await _either(http, "/server_info")
        if not isinstance(about, dict) or not isinstance(server, dict) or "model_path" not in about:
            raise EngineError(f"{http.url} is not an SGLang server", fix="name one, or set engine.kind to what it is")
        # a few tokens shorter than the context: longer prompts are refused, and longer answers are cut silently
        most = server.get("max_req_input_len")
        context = int(str(most)) - 1 if most else int(str(server.get("context_length") or 0))
        rank = server.get("max_lora_rank")
        return ServerFacts(
            str(about["model_path"]),
            context,
            str(server.get("version", "")),
            takes_adapters=bool(server["enable_lora"]) if "enable_lora" in server else None,
            largest_rank=int(str(rank)) if rank else None,
            grammars=str(server.get("grammar_backend") or ""),
        )

    async def tokenize(self, http: ServerHttp, text: str) -> tuple[int, ...] | None:
        """Its token ids of a text; None if this release has no route for that."""
        try:
            found = await http.post("/tokenize", {"prompt": text, "add_special_tokens": False})
        except ServerRefusal:
            return None
        tokens = found.get("tokens") if isinstance(found, dict) else None
        return tuple(int(str(token)) for token in tokens) if isinstance(tokens, list) else None

    async def load(self, http: ServerHttp, name: str, folder: Path) -> None:
        """Loads an adapter; if it is loaded under this name already, nothing happens."""
        try:
            found = await http.post("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        except ServerRefusal as problem:
            if "already" not in problem.problem:
                raise
            return
        if isinstance(found, dict) and found.get("success") is False and "already" not in str(found):
            raise ServerRefusal(400, str(found.get("error_message") or found))

    async def unload(self, http: ServerHttp, name: str) -> None:
        """Forgets it."""
        await http.post("/unload_lora_adapter", {"lora_name": name})

    async def generate(self, http: ServerHttp, ask: RemoteRequest) -> AsyncGenerator[Piece, None]:
        """Sampled tokens. An event contains the whole answer so far or only the new part; its length shows which."""
        given = 0
        async for data in http.events("/generate", _body(ask)):
            event = msgspec.json.decode(data)
            if "error" in event:
                raise _refusal(event["error"].get("code"), str(event["error"].get("message", event["error"])))
            meta = event["meta_info"]
            finish, total = _finish(meta.get("finish_reason")), int(meta["completion_tokens"])
            if total > given or finish is not None:
                fresh = _fresh(meta.get("output_token_logprobs"), given, total)
                top = [
                    _top(row, ask.sampling.top_logprobs)
                    for row in _fresh(meta.get("output_top_logprobs"), given, total)
                ]
                cached = 0 if given else int(meta.get("cached_tokens") or 0)
                given = total
                yield Piece([row[1] for row in fresh], [row[0] for row in fresh], top, finish, cached)

    async def score(
        self, http: ServerHttp, tokens: tuple[int, ...], *, start: int, adapter: str, top_k: int
    ) -> tuple[list[float], list[Top]]:
        """Log-probabilities of a prompt's own ids."""
        body: dict[str, Json] = {
            "input_ids": list(tokens),
            "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
            "return_logprob": True,
            "logprob_start_len": start - 1,
            "top_logprobs_num": top_k,
            **({"lora_path": adapter} if adapter else {}),
        }
        try:
            found: Any = await http.post("/generate", body)
        except ServerRefusal as problem:
            raise _refusal(problem.status, problem.problem) from problem
        meta, count = found["meta_info"], len(tokens) - start
        rows = meta["input_token_logprobs"][-count:]
        top = [_top(row, top_k) for row in (meta.get("input_top_logprobs") or [])[-count:]] if top_k else []
        return [float(row[0]) for row in rows], top

    async def flush(self, http: ServerHttp) -> None:
        """Drops all cached prompts. Raises EngineError if the server was never idle."""
        try:
            await http.post(f"/flush_cache?timeout={FLUSH_S}", {})
        except ServerRefusal as problem:
            raise EngineError(
                f"{http.url} did not let go of the prompts it has read: {problem.problem}",
                fix="it does so only while it is idle: wait for such a moment, or start it again",
            ) from problem


async def _either(http: ServerHttp, path: str) -> Json:
    """The answer of the route, under its present name or the one of earlier releases."""
    try:
        return await http.get(path)
    except ServerRefusal as problem:
        if problem.status != LOST:
            raise
        return await http.get(path.replace("/", "/get_"))


def _refusal(status: object, problem: str) -> ServerRefusal:
    """The refusal; the server reports a missing adapter with the status of a malformed request."""
    is_lost = any(words in problem for words in NOT_LOADED)
    return ServerRefusal(LOST if is_lost else int(str(status or 500)), problem)


def _fresh(rows: list[Any] | None, given: int, total: int) -> list[Any]:
    """The rows of an event after the first `given`: it contains all rows so far, or only new ones."""
    if not rows or total == given:
        return []
    return rows[given:total] if len(rows) >= total else rows[given - total :]


def _body(ask: RemoteRequest) -> dict[str, Json]:
    sampling = ask.sampling
    params: dict[str, Json] = {
        "max_new_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p or 1e-9,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "stop_token_ids": list(sampling.stop_ids),
        "ignore_eos": not sampling.stop_ids,  # it would ignore these as well
        "skip_special_tokens": False,
    }
    if ask.seed is not None:  # has an effect only with --enable-deterministic-inference
        params["sampling_seed"] = ask.seed & (2**63 - 1)
    if sampling.leaning is not None:
        leaning = sampling.leaning
        params |= {"presence_penalty": leaning.presence, "frequency_penalty": leaning.frequency}
        params |= {"repetition_penalty": leaning.repetition}
        params |= {"logit_bias": {str(token): value for token, value in leaning.bias}} if leaning.bias else {}
    if sampling.grammar is not None:
        params["ebnf"] = sampling.grammar.text
    return {
        "input_ids": list(ask.tokens),
        "sampling_params": params,
        "return_logprob": True,
        "logprob_start_len": -1,
        "top_logprobs_num": sampling.top_logprobs,
        "stream": True,
        **({"extra_key": ask.salt} if ask.salt else {}),
        **({"lora_path": ask.adapter} if ask.adapter else {}),
    }


def _finish(reason: Any) -> Finish | None:
    """Raises ServerRefusal if the server broke the answer off and names a reason."""
    if reason is None:
        return None
    kind = reason.get("type") if isinstance(reason, dict) else reason
    if isinstance(reason, dict) and kind == "abort" and reason.get("status_code"):
        raise _refusal(reason["status_code"], str(reason.get("message")))
    return {"stop": Finish.STOP, "length": Finish.LENGTH}.get(str(kind), Finish.CANCELLED)


def _top(row: Any, most: int) -> Top:
    found = ((int(item[1]), float(item[0])) for item in row or [])
    return tuple(sorted(found, key=lambda item: (-item[1], item[0]))[:most])
