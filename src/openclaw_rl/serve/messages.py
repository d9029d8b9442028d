"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's API, streaming and not."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from openclaw_rl.core.message import Json
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.generate import Asked, Generation, begin
from openclaw_rl.serve.messages_chunks import MessageChunks, blocks_of, ending_of, message_json, usage_of
from openclaw_rl.serve.messages_wire import CountBody, MessagesBody, conversation_of, offered, thinking_options
from openclaw_rl.serve.params import check_parameters, sampling_of, stops_of
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.stream import streamed, whole
from openclaw_rl.serve.wire import SamplingSpec, facts_of, fields_of, parsed

_TAKEN = frozenset(MessagesBody.__struct_fields__)


async def messages(request: web.Request, parts: ServeParts, key_name: str) -> web.StreamResponse:
    """Answers one request."""
    raw, fields = fields_of(await request.read())
    for name in check_parameters(fields, _TAKEN):
        parts.metrics.ignore(name)
    body = parsed(raw, MessagesBody)
    model = parts.model_named(body.model)
    generation = await begin(parts, _asked(parts, body, facts_of(fields)), request.headers, key_name)
    if body.stream:
        chunks = MessageChunks(generation.choices[0].turn, model, len(generation.prompt))
        return await streamed(request, generation, chunks)
    gone = await whole(request, generation)
    return _answer(generation, model) if gone is None else gone


async def count_tokens(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """How many tokens the model would read; nothing is sampled or stored."""
    raw, _ = fields_of(await request.read())
    body = parsed(raw, CountBody)
    parts.model_named(body.model)
    said, tools, options = conversation_of(body), offered(body), thinking_options(body)
    prompt = await asyncio.to_thread(parts.renderer.prompt, said, tools, None, options=options)
    counted = {"input_tokens": len(prompt)}
    return web.Response(body=msgspec.json.encode(counted), content_type="application/json")


def _asked(parts: ServeParts, body: MessagesBody, facts: dict[str, Json]) -> Asked:
    if body.max_tokens < 1:
        raise RequestError(
            f"max_tokens is {body.max_tokens}", fix="an answer has at least one token", param="max_tokens"
        )
    spec = SamplingSpec(
        temperature=body.temperature, top_p=body.top_p, top_k=body.top_k, stop=list(body.stop_sequences or ())
    )
    choice = body.tool_choice
    return Asked(
        api="messages",
        messages=conversation_of(body),
        tools=offered(body),
        sampling=sampling_of(spec, parts.defaults, parts.eos_ids, max_tokens=body.max_tokens, top_logprobs=0),
        max_tokens=body.max_tokens,
        stops=stops_of(spec),
        has_one_call=choice is not None and bool(choice.disable_parallel_tool_use),
        options=thinking_options(body),
        facts=facts,
    )


def _answer(generation: Generation, model: str) -> web.Response:
    choice = generation.choices[0]
    body = message_json(choice.turn, model, blocks_of(choice.reply(), choice.turn), usage_of(generation))
    body["stop_reason"], body["stop_sequence"] = ending_of(choice)
    return web.Response(body=msgspec.json.encode(body), content_type="application/json", headers=generation.headers)
