"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's API, streaming and not."""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial

import msgspec
from aiohttp import web

from openclaw_rl.core.message import Json
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import SamplingSpec, facts_of, fields_of
from openclaw_rl.serve.apis.messages.chunks import MessageChunks, blocks_of, ending_of, message_json, usage_of
from openclaw_rl.serve.apis.messages.wire import (
    CountTokensBody,
    MessageParam,
    MessagesBody,
    choice_of,
    conversation_of,
    format_of,
    offered,
    passed_over,
    template_options,
)
from openclaw_rl.serve.generate import Generation, GenerationRequest, begin
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.request.answer_form import answer_form, held_text
from openclaw_rl.serve.request.large import MOST_COUNTED, beside, check_sizes, parsed_in_pieces
from openclaw_rl.serve.request.params import check_parameters, sampling_of, stops_of
from openclaw_rl.serve.request.unseen import Placeholders
from openclaw_rl.serve.stream import streamed, whole

_TAKEN = frozenset(MessagesBody.__struct_fields__)
_COUNTED = frozenset(CountTokensBody.__struct_fields__)
_SESSION = re.compile(r"_session_([0-9A-Za-z-]{8,64})\Z")  # how Claude Code ends the id of its user


async def messages(request: web.Request, parts: ServeParts, key_name: str) -> web.StreamResponse:
    """Answers one request."""
    raw = await request.read()
    body, asked = await beside(len(raw), partial(_read, parts, raw))
    model = parts.model_named(body.model)
    generation = await begin(parts, asked, request.headers, key_name)
    if body.stream:
        chunks = MessageChunks(generation.choices[0].turn, model, len(generation.prompt))
        return await streamed(request, generation, chunks)
    gone = await whole(request, generation)
    return _answer(generation, model) if gone is None else gone


async def count_tokens(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """How many tokens the model would read; nothing is sampled or stored."""
    count = await asyncio.to_thread(_count, parts, await request.read())
    counted = {"input_tokens": count}
    return web.Response(body=msgspec.json.encode(counted), content_type="application/json")


def _read(parts: ServeParts, raw: bytes) -> tuple[MessagesBody, GenerationRequest]:
    """The body and what it asks for. Raises RequestError."""
    raw, fields = fields_of(raw)
    ignored = check_parameters(fields, _TAKEN)
    check_sizes(fields)
    body = parsed_in_pieces(raw, fields, MessagesBody, "messages", MessageParam, most=parts.context_length)
    ignored += passed_over(body)
    parts.model_named(body.model)
    return body, _asked(parts, body, told_by(facts_of(fields)), ignored)


def _count(parts: ServeParts, raw: bytes) -> int:
    raw, fields = fields_of(raw)
    check_parameters(fields, _COUNTED)
    check_sizes(fields)
    facts_of(fields)  # a wrong type or size is refused here as in /v1/messages
    body = parsed_in_pieces(raw, fields, CountTokensBody, "messages", MessageParam, most=MOST_COUNTED)
    parts.model_named(body.model)
    options = template_options(body, parts.renderer.template.options)
    return parts.renderer.count(conversation_of(body, Placeholders()), offered(body), options=options.values)


def told_by(facts: dict[str, Json]) -> dict[str, Json]:
    """The body's session fields, with the session id that Claude Code writes into the user's id."""
    metadata = facts.get("metadata")
    if not isinstance(metadata, dict) or "session_id" in metadata:
        return facts
    session = _session_in(metadata.get("user_id"))
    return facts if session is None else {**facts, "metadata": {**metadata, "session_id": session}}


def _session_in(user_id: Json) -> str | None:
    """The session in `user_..._session_ID`, or in the JSON object that newer versions write."""
    if not isinstance(user_id, str):
        return None
    found = _SESSION.search(user_id)
    if found is not None:
        return found[1]
    try:
        held = json.loads(user_id) if user_id.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    session = held.get("session_id") if isinstance(held, dict) else None
    return session if isinstance(session, str) and session else None


def _asked(parts: ServeParts, body: MessagesBody, facts: dict[str, Json], ignored: list[str]) -> GenerationRequest:
    if body.max_tokens < 1:
        raise RequestError(
            f"max_tokens is {body.max_tokens}", fix="an answer has at least one token", param="max_tokens"
        )
    also = (body.stop,) if isinstance(body.stop, str) else body.stop or ()
    stops = [*(body.stop_sequences or ()), *also]
    spec = SamplingSpec(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        seed=body.seed,
        stop=stops,
        stop_token_ids=body.stop_token_ids,
    )
    choice, unseen, tools = body.tool_choice, Placeholders(), offered(body)
    has_one_call = choice is not None and bool(choice.disable_parallel_tool_use)
    strict = {tool.name for tool in body.tools or () if tool.strict}
    held = held_text(body, format_of(body), "output_config.format")
    options = template_options(body, parts.renderer.template.options)
    return GenerationRequest(
        api="messages",
        messages=conversation_of(body, unseen),
        tools=tools,
        sampling=sampling_of(
            spec, parts.defaults, parts.eos_ids, max_tokens=body.max_tokens, top_logprobs=0, extras=body
        ),
        max_tokens=body.max_tokens,
        stops=stops_of(spec, "stop_sequences" if body.stop_sequences else "stop"),
        has_one_call=has_one_call,
        form=answer_form(tools, choice_of(body), strict, held, has_one_call=has_one_call),
        options=options.values,
        facts=facts,
        ignored=(*ignored, *options.ignored),
        placeholders=unseen.counts,
    )


def _answer(generation: Generation, model: str) -> web.Response:
    choice = generation.choices[0]
    blocks = blocks_of(choice.reply(), choice.turn, choice.finish)
    body = message_json(choice.turn, model, blocks, usage_of(generation))
    body["stop_reason"], body["stop_sequence"] = ending_of(choice)
    return web.Response(body=msgspec.json.encode(body), content_type="application/json", headers=generation.headers)
