"""POST /v1/completions: bare text or ids to continue. Served and counted, never trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from aiohttp import web

from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.message import Json, Role, message
from openclaw_rl.errors import RequestError
from openclaw_rl.render.encoding import TokenBytes
from openclaw_rl.render.parsers import ReplyDelta, TextDelta
from openclaw_rl.serve.answers import LEAST_LOGP
from openclaw_rl.serve.apis.chat.chunks import usage_json
from openclaw_rl.serve.apis.chat.wire import CompletionBody, facts_of, fields_of, parsed, value_of
from openclaw_rl.serve.generate import Generation, GenerationRequest, begin
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.request.answer_form import ToolChoice, answer_form, held_text
from openclaw_rl.serve.request.large import beside, check_ids, check_sizes
from openclaw_rl.serve.request.params import (
    MOST_IDS,
    check_parameters,
    count_of,
    includes_usage,
    limit_of,
    sampling_of,
    stops_of,
    top_logprobs_of,
)
from openclaw_rl.serve.stream import DONE, streamed, whole

_TAKEN = frozenset(CompletionBody.__struct_fields__)


async def completions(request: web.Request, parts: ServeParts, key_name: str) -> web.StreamResponse:
    """Answers one request for bare text."""
    raw = await request.read()
    body, fields, ignored = await beside(len(raw), partial(_read, parts, raw))
    model = parts.model_named(body.model)
    wants_logprobs, top_logprobs = top_logprobs_of(body)
    has_usage = includes_usage(body)
    prompt = _prompt(body)
    text = prompt if isinstance(prompt, str) else await beside(len(raw), partial(parts.renderer.table.text, prompt))
    limit = limit_of(body, parts.settings)
    held = held_text(body, value_of(body.response_format), "response_format")
    asked = GenerationRequest(
        api="completions",
        messages=(message(Role.USER, text),),
        tools=(),
        sampling=sampling_of(body, parts.defaults, parts.eos_ids, max_tokens=limit or 1, top_logprobs=top_logprobs),
        max_tokens=limit,
        count=count_of(body, parts.settings.max_choices),
        stops=stops_of(body),
        form=answer_form((), ToolChoice(), (), held, has_one_call=False),
        facts=facts_of(fields),
        prompt=prompt,
        ignored=ignored,
    )
    generation = await begin(parts, asked, request.headers, key_name)
    words = _Words(generation, model, parts.renderer.table if wants_logprobs else None, has_usage=has_usage)
    if body.stream:
        return await streamed(request, generation, words)
    gone = await whole(request, generation)
    return words.whole() if gone is None else gone


class _Words:
    """The events and the whole answer of this API."""

    def __init__(self, generation: Generation, model: str, table: TokenBytes | None, *, has_usage: bool) -> None:
        self._generation = generation
        self._table = table
        self._has_usage = has_usage
        self._given: dict[int, int] = {}  # characters of each answer whose log-probabilities were sent
        self._head: dict[str, Json] = {
            "id": f"cmpl-{generation.choices[0].turn}",
            "object": "text_completion",
            "created": int(generation.at_s),
            "model": model,
        }

    def first(self, index: int) -> bytes:
        return b""

    def event(self, index: int, deltas: Sequence[ReplyDelta], sampled: Sequence[SampledToken]) -> bytes:
        text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        if not text and self._table is None:
            return b""
        return _event({**self._head, "choices": [self._choice(index, text, sampled, None)]})

    def last(self, index: int, reason: str) -> bytes:
        return _event({**self._head, "choices": [self._choice(index, "", (), reason)]})

    def end(self, generation: Generation) -> bytes:
        if not self._has_usage:
            return DONE
        return _event({**self._head, "choices": [], "usage": usage_json(generation)}) + DONE

    def problem(self, body: bytes) -> bytes:
        return b"data: %b\n\n" % body

    def whole(self) -> web.Response:
        choices: list[Json] = [
            self._choice(choice.index, choice.reply().text, choice.sampled, choice.reason)
            for choice in self._generation.choices
        ]
        body = {**self._head, "choices": choices, "usage": usage_json(self._generation)}
        headers = self._generation.headers
        return web.Response(body=msgspec.json.encode(body), content_type="application/json", headers=headers)

    def _choice(self, index: int, text: str, sampled: Sequence[SampledToken], reason: str | None) -> dict[str, Json]:
        logprobs: Json = None
        if self._table is not None and (sampled or reason is None):
            logprobs, self._given[index] = _logprobs(sampled, self._table, self._given.get(index, 0))
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _read(parts: ServeParts, raw: bytes) -> tuple[CompletionBody, Mapping[str, msgspec.Raw], list[str]]:
    """The body, its parameters by name, and those of them that are ignored."""
    raw, fields = fields_of(raw)
    ignored = check_parameters(fields, _TAKEN)
    check_sizes(fields)
    if "prompt" in fields:
        check_ids(fields["prompt"], parts.context_length)
    return parsed(raw, CompletionBody), fields, ignored


def _prompt(body: CompletionBody) -> str | tuple[int, ...]:
    if body.best_of not in (None, 1, body.n):
        raise RequestError("best_of is not supported", fix="use n", code="unsupported_parameter", param="best_of")
    prompt: str | int | list[int | str | list[int]] | list[int] = body.prompt
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]  # a list of one prompt
    if isinstance(prompt, str) and prompt:
        return prompt
    ids = tuple(token for token in prompt if isinstance(token, int)) if isinstance(prompt, list) else ()
    if not prompt or not isinstance(prompt, list):
        raise RequestError("prompt is empty", fix="send some text", param="prompt")
    if len(ids) != len(prompt):
        raise RequestError(f"prompt holds {len(prompt)} prompts", fix="send one request for each", param="prompt")
    wrong = next((token for token in ids if not 0 <= token < MOST_IDS), None)
    if wrong is not None:  # the engine knows its vocabulary, but no tokenizer can look up such an id
        raise RequestError(
            f"prompt holds {wrong}, which is not a token id", fix="send ids of this model", param="prompt"
        )
    return ids


def _logprobs(sampled: Sequence[SampledToken], table: TokenBytes, at: int) -> tuple[dict[str, Json], int]:
    """The entries of all tokens but the format's own ending, the first at offset `at`; and the next offset."""

    def written(token: int) -> str:
        return table(token).decode("utf-8", "replace")

    sampled = [item for item in sampled if item.finish is None or item.token not in table.special]
    offsets: list[Json] = []
    for item in sampled:
        offsets.append(at)
        at += len(written(item.token))
    logprobs: dict[str, Json] = {
        "tokens": [written(item.token) for item in sampled],
        "token_logprobs": [max(item.logp, LEAST_LOGP) for item in sampled],
        "top_logprobs": [
            {written(token): max(logp, LEAST_LOGP) for token, logp in item.top} if item.top else None
            for item in sampled
        ],
        "text_offset": offsets,
    }
    return logprobs, at


def _event(body: dict[str, Json]) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(body)
