"""SGLang's own routes, as its documentation describes them. Never run against a real server: see docs/engines.md."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.message import Json
from openclaw_rl.engines.remote.dialect import Ask, Launch, Piece, ServerFacts, Top
from openclaw_rl.engines.remote.http import ServerHttp, ServerRefusal
from openclaw_rl.errors import EngineError


class Sglang:
    """The dialect."""

    name = "sglang"

    def command(self, launch: Launch) -> tuple[list[str], dict[str, str]]:
        """The command that starts a server on the loopback interface."""
        words = [launch.python, "-m", "sglang.launch_server", "--model-path", str(launch.model)]
        words += ["--host", "127.0.0.1", "--port", str(launch.port), "--api-key", launch.key]
        words += ["--enable-lora", "--max-lora-rank", str(launch.rank), "--lora-target-modules", "all"]
        words += ["--max-loaded-loras", str(launch.versions), "--grammar-backend", "llguidance"]
        words += [] if launch.seed is None else ["--random-seed", str(launch.seed)]
        return [*words, *launch.settings.options], {}

    async def facts(self, http: ServerHttp) -> ServerFacts:
        """The base model and its context. Raises EngineError where another kind of server answers."""
        about, server = await http.get("/get_model_info"), await http.get("/get_server_info")
        if not isinstance(about, dict) or not isinstance(server, dict) or "model_path" not in about:
            raise EngineError(f"{http.url} is no server of SGLang", fix="name one, or set engine.kind to what it is")
        context = server.get("context_length") or server.get("max_req_input_len") or 0
        return ServerFacts(str(about["model_path"]), int(str(context)), str(server.get("version", "")))

    async def tokenize(self, http: ServerHttp, text: str) -> tuple[int, ...] | None:
        """How its tokenizer cuts a text; None where this release cannot be asked."""
        try:
            found = await http.post("/tokenize", {"prompt": text, "add_special_tokens": False})
        except ServerRefusal:
            return None
        tokens = found.get("tokens") if isinstance(found, dict) else None
        return tuple(int(str(token)) for token in tokens) if isinstance(tokens, list) else None

    async def load(self, http: ServerHttp, name: str, folder: Path) -> None:
        """Makes an adapter ready; one that is loaded under this name already is no error."""
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

    async def generate(self, http: ServerHttp, ask: Ask) -> AsyncGenerator[Piece, None]:
        """What is sampled. Each event tells the whole answer so far, or what is new: told apart by its length."""
        given = 0
        async for data in http.events("/generate", _body(ask)):
            event = msgspec.json.decode(data)
            if "error" in event:
                raise ServerRefusal(500, str(event["error"].get("message", event["error"])))
            meta = event["meta_info"]
            rows = meta.get("output_token_logprobs") or []
            tops = meta.get("output_top_logprobs") or []
            new = int(meta["completion_tokens"]) - given
            is_first, given = not given, given + new
            finish = _finish(meta.get("finish_reason"))
            if new or finish is not None:
                fresh = rows[len(rows) - new :]
                top = [_top(row, ask.sampling.top_logprobs) for row in tops[len(tops) - new :]] if tops else []
                cached = int(meta.get("cached_tokens") or 0) if is_first else 0
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
        found: Any = await http.post("/generate", body)
        meta, count = found["meta_info"], len(tokens) - start
        rows = meta["input_token_logprobs"][-count:]
        top = [_top(row, top_k) for row in (meta.get("input_top_logprobs") or [])[-count:]] if top_k else []
        return [float(row[0]) for row in rows], top

    async def flush(self, http: ServerHttp) -> None:
        """Forgets all prompts that were read."""
        await http.post("/flush_cache", {})


def _body(ask: Ask) -> dict[str, Json]:
    sampling = ask.sampling
    params: dict[str, Json] = {
        "max_new_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p or 1e-9,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "stop_token_ids": list(sampling.stop_ids),
        "ignore_eos": True,
        "skip_special_tokens": False,
        "sampling_seed": ask.seed & (2**31 - 1),
    }
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


def _finish(told: Any) -> Finish | None:
    if told is None:
        return None
    kind = told.get("type") if isinstance(told, dict) else told
    return {"stop": Finish.STOP, "length": Finish.LENGTH}.get(str(kind), Finish.CANCELLED)


def _top(row: Any, most: int) -> Top:
    found = ((int(item[1]), float(item[0])) for item in row or [])
    return tuple(sorted(found, key=lambda item: (-item[1], item[0]))[:most])
