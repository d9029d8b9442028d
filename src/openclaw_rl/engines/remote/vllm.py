"""vLLM's OpenAI-style server: ids in, ids and log-probabilities out, one adapter under each version's name."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.message import Json
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.engines.remote.dialect import Launch, Piece, RemoteRequest, ServerFacts, Top
from openclaw_rl.engines.remote.http import ServerHttp, ServerRefusal
from openclaw_rl.errors import EngineError

MOST_TOP = 64  # the most top tokens at a place that anything here requests
COMPLETIONS = "/v1/completions"
TOKENS = "/inference/v1/generate"  # ids only: the server makes no text of them, which is a fifth of its work
MOST_TOGETHER = 16  # tokens in one event
FEWEST_NOTED = 8  # tokens after a request's first ones, or they say little
FEW_ANSWERS = 8  # that a server samples at once: with more of them tokens are held back longer in proportion,
MOST_LONGER = 4  # up to so many times as long: each event costs both sides CPU
ADAPTERS_AT_ONCE = 4  # in one batch: memory on the device is reserved for each
ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_SERVER_DEV_MODE": "1",  # /reset_prefix_cache, which forgetting needs
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


class _Likely(msgspec.Struct):
    token_id: int
    logprob: float


class _Token(msgspec.Struct):
    logprob: float
    top_logprobs: list[_Likely] = []


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None  # of TOKENS; the others of COMPLETIONS
    token_logprobs: list[float] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: dict[str, Any] | None = None


CHUNK = msgspec.json.Decoder(_Chunk)


class TokenRate:
    """How many tokens a server may send together, so that it holds them back for about `gather_s` seconds at most.

    With more than `FEW_ANSWERS` answers at once it is longer in proportion, up to `MOST_LONGER` times. It is computed
    from how fast the server sampled for the requests before, and how many it had at once: running means. A server that
    becomes slower during an answer holds its tokens back longer.
    """

    def __init__(self, gather_s: float) -> None:
        self._gather_s = gather_s
        self._token_s = 0.0
        self._at_once = 1.0

    def together(self, at_once: int) -> int:
        """Tokens in one event while the server has so many answers `at_once`, or as many as before if those were more.

        At least 1, also as long as nothing is known, and at most `MOST_TOGETHER`.
        """
        longer = min(MOST_LONGER, max(1.0, max(at_once, self._at_once) / FEW_ANSWERS))
        held_s = longer * self._gather_s
        return max(1, min(MOST_TOGETHER, int(held_s / self._token_s))) if self._token_s else 1

    def note(self, tokens: int, seconds: float, at_once: int) -> None:
        """These tokens of one request took so long; when the first came, the server had so many answers `at_once`."""
        if tokens >= FEWEST_NOTED:
            found = seconds / tokens
            self._at_once = (self._at_once + at_once) / 2 if self._token_s else at_once
            self._token_s = (self._token_s + found) / 2 if self._token_s else found


class Vllm:
    """The dialect; it keeps the server's name of the base model, the route by which it samples, and its rate.

    Tokens may be held back for about `gather_s` seconds, to be sent together, with many answers at once for longer. The
    first and the last ones never are.
    """

    name = "vllm"

    def __init__(self, gather_s: float = 0.0) -> None:
        self._base = ""
        self._route = COMPLETIONS
        self._gathers = False
        self._rate = TokenRate(gather_s)
        self._answering = 0  # requests at this moment

    def command(self, launch: Launch) -> tuple[list[str], dict[str, str]]:
        """The command that starts a server."""
        words = [launch.python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(launch.model)]
        words += ["--served-model-name", "base", "--host", launch.address, "--port", str(launch.port)]
        words += ["--enable-lora", "--max-lora-rank", str(_rank(launch.rank))]
        words += ["--max-loras", str(min(ADAPTERS_AT_ONCE, launch.versions)), "--max-cpu-loras", str(launch.versions)]
        words += ["--logprobs-mode", "raw_logprobs", "--max-logprobs", str(MOST_TOP)]
        words += ["--structured-outputs-config", '{"backend": "guidance"}', "--enable-prompt-tokens-details"]
        words += ["--enable-scale-out"]
        # Without it lm_head gets an adapter's share as well, and a score during other requests crashes release 0.32.0.
        words += ["--lora-target-modules", *launch.modules] if launch.modules else []
        words += [] if launch.seed is None else ["--seed", str(launch.seed)]
        return [*words, *launch.settings.options], {**ENVIRONMENT, "VLLM_API_KEY": launch.key}

    async def facts(self, http: ServerHttp) -> ServerFacts:
        """The base model and its context. Raises EngineError if another kind of server answers."""
        listed, release = await http.get("/v1/models"), await http.get("/version")
        rows = listed.get("data") if isinstance(listed, dict) else None
        models = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        base = next((row for row in models if not row.get("parent")), None)
        if base is None or "max_model_len" not in base:
            raise EngineError(f"{http.url} is not a vLLM server", fix="name one, or set engine.kind to what it is")
        await http.get("/health")  # refused if the engine behind the server is dead
        self._base = str(base["id"])
        self._gathers = await _has_tokens(http, self._base, {"stream_interval": 1})
        self._route = TOKENS if self._gathers or await _has_tokens(http, self._base, {}) else COMPLETIONS
        version = release.get("version") if isinstance(release, dict) else ""
        # one less: when all ids of a prompt are scored, the server also samples one token
        return ServerFacts(str(base.get("root") or base["id"]), int(str(base["max_model_len"])) - 1, str(version))

    async def tokenize(self, http: ServerHttp, text: str) -> tuple[int, ...] | None:
        """Its token ids of a text."""
        body: dict[str, Json] = {"model": self._base, "prompt": text, "add_special_tokens": False}
        found = await http.post("/tokenize", body)
        tokens = found.get("tokens") if isinstance(found, dict) else None
        return tuple(int(str(token)) for token in tokens) if isinstance(tokens, list) else None

    async def load(self, http: ServerHttp, name: str, folder: Path) -> None:
        """Loads an adapter; if it is loaded under this name already, nothing happens."""
        try:
            await http.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        except ServerRefusal as problem:
            if "already been loaded" not in problem.problem:
                raise

    async def unload(self, http: ServerHttp, name: str) -> None:
        """Forgets it."""
        await http.post("/v1/unload_lora_adapter", {"lora_name": name})

    async def generate(self, http: ServerHttp, ask: RemoteRequest) -> AsyncGenerator[Piece, None]:
        """Sampled tokens, those of one or more steps in a piece; the last says how much of the prompt was cached."""
        most, first_s, later, at_once = ask.sampling.top_logprobs, 0.0, 0, 0
        self._answering += 1
        try:
            async for data in http.events(self._route, self._body(ask)):
                chunk = CHUNK.decode(data)
                if chunk.error is not None:
                    raise http.refusal(int(chunk.error.get("code") or 500), str(chunk.error.get("message")))
                for choice in chunk.choices:
                    finish = _finish(choice.finish_reason)
                    if choice.token_ids or finish is not None:
                        said = choice.token_ids or ()
                        later += len(said) if first_s else 0
                        last_s = time.perf_counter()
                        if not first_s:
                            first_s, at_once = last_s, self._answering
                        logp, top = _read(choice.logprobs or _Logprobs(), most)
                        yield Piece(said, logp, top, finish)
                if chunk.usage is not None and chunk.usage.prompt_tokens_details is not None:
                    yield Piece(cached=chunk.usage.prompt_tokens_details.cached_tokens or 0)
        finally:
            self._answering -= 1
            if later:
                self._rate.note(later, last_s - first_s, at_once)

    async def score(
        self, http: ServerHttp, tokens: tuple[int, ...], *, start: int, adapter: str, top_k: int
    ) -> tuple[list[float], list[Top]]:
        """Log-probabilities of a prompt's own ids. One token is sampled too: the server returns none otherwise."""
        body: dict[str, Json] = {
            "model": adapter or self._base,
            "prompt": list(tokens),
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": top_k,
        }
        found: Any = await http.post("/v1/completions", body)
        rows = found["choices"][0]["prompt_logprobs"][start:]
        logp = [float(row[str(token)]["logprob"]) for token, row in zip(tokens[start:], rows, strict=True)]
        top = [_ranked({int(token): item["logprob"] for token, item in row.items()}, top_k) for row in rows]
        return logp, top if top_k else []

    async def flush(self, http: ServerHttp) -> None:
        """Drops all cached prompts. Raises EngineError if the server does not offer that route."""
        try:
            await http.post("/reset_prefix_cache", {})
        except ServerRefusal as problem:
            raise EngineError(
                f"{http.url} cannot be asked to forget the prompts it has read: {problem.problem}",
                fix="start it with VLLM_SERVER_DEV_MODE=1, or start it again to forget them",
            ) from problem

    def _body(self, ask: RemoteRequest) -> dict[str, Json]:
        body: dict[str, Json] = {"model": ask.adapter or self._base}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= {"cache_salt": ask.salt} if ask.salt else {}
        params = _params(ask.sampling, ask.seed)
        if self._route == TOKENS:
            params["detokenize"] = False
            params |= {"stream_interval": self._rate.together(self._answering)} if self._gathers else {}
            return body | {"token_ids": list(ask.tokens), "sampling_params": params}
        return (
            body | params | {"prompt": list(ask.tokens), "return_token_ids": True, "return_tokens_as_token_ids": True}
        )


async def _has_tokens(http: ServerHttp, base: str, params: dict[str, Json]) -> bool:
    """Whether it has the route that samples ids only and knows these parameters, tried with one token."""
    try:
        await http.post(TOKENS, {"model": base, "token_ids": [0], "sampling_params": {"max_tokens": 1, **params}})
    except ServerRefusal as problem:
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        return False
    return True


def _params(sampling: Sampling, seed: int | None) -> dict[str, Json]:
    """The sampling parameters, by the names that both routes use."""
    params: dict[str, Json] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p or 1e-9,  # vLLM refuses 0, which means the likeliest token here
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "logprobs": sampling.top_logprobs,
        "skip_special_tokens": False,
        "ignore_eos": True,
        "stop_token_ids": list(sampling.stop_ids),
    }
    params |= {} if seed is None else {"seed": seed & (2**63 - 1)}
    leaning = sampling.leaning
    if leaning is not None:
        params |= {"presence_penalty": leaning.presence, "frequency_penalty": leaning.frequency}
        params |= {"repetition_penalty": leaning.repetition}
        params |= {"logit_bias": {str(token): value for token, value in leaning.bias}} if leaning.bias else {}
    if sampling.grammar is not None:
        params["structured_outputs"] = {"grammar": sampling.grammar.text}
    return params


def _rank(rank: int) -> int:
    """The smallest rank that the server accepts and that is large enough."""
    return next((known for known in (8, 16, 32, 64, 128, 256, 320, 512) if known >= rank), rank)


def _finish(reason: str | None) -> Finish | None:
    return None if reason is None else {"stop": Finish.STOP, "length": Finish.LENGTH}.get(reason, Finish.CANCELLED)


def _read(held: _Logprobs, most: int) -> tuple[Sequence[float], Sequence[Top]]:
    """Log-probabilities, and the top tokens without the sampled one that the server adds to them."""
    if held.content is not None:
        rows = [{item.token_id: item.logprob for item in token.top_logprobs} for token in held.content] if most else []
        return [token.logprob for token in held.content], [_ranked(row, most) for row in rows]
    named = held.top_logprobs or () if most else ()
    return held.token_logprobs or (), [
        _ranked({int(name.removeprefix("token_id:")): logp for name, logp in (row or {}).items()}, most)
        for row in named
    ]


def _ranked(found: Mapping[int, float], most: int) -> Top:
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0]))[:most])
