"""POST /v1/chat/completions: OpenAI's chat API, streaming and not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import msgspec
from aiohttp import web

from openclaw_rl.core.message import Json
from openclaw_rl.render.encoding import TokenBytes
from openclaw_rl.serve.answers import Choice, token_entries
from openclaw_rl.serve.apis.chat.chunks import ChatChunks, usage_json
from openclaw_rl.serve.apis.chat.wire import ChatBody, MessageSpec, facts_of, fields_of, messages_of, value_of
from openclaw_rl.serve.generate import Generation, GenerationRequest, begin
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.request.answer_form import ToolChoice, answer_form, asks_elsewhere, held_text, tool_choice_of
from openclaw_rl.serve.request.large import beside, check_sizes, parsed_in_pieces
from openclaw_rl.serve.request.params import (
    check_parameters,
    count_of,
    includes_usage,
    limit_of,
    sampling_of,
    stops_of,
    top_logprobs_of,
)
from openclaw_rl.serve.request.thinking import chat_wishes, options_of, unheeded
from openclaw_rl.serve.request.unseen import Placeholders
from openclaw_rl.serve.stream import streamed, whole

_TAKEN = frozenset(ChatBody.__struct_fields__)


async def chat_completions(request: web.Request, parts: ServeParts, key_name: str) -> web.StreamResponse:
    """Answers one chat request."""
    raw = await request.read()
    read = await beside(len(raw), partial(_read, parts, raw))
    body = read.body
    model = parts.model_named(body.model)
    wants_logprobs, top_logprobs = top_logprobs_of(body)
    has_usage = includes_usage(body)
    asked = await beside(len(raw), partial(_asked, parts, read, top_logprobs))
    generation = await begin(parts, asked, request.headers, key_name)
    response_id = f"chatcmpl-{generation.choices[0].turn}"
    table = parts.renderer.table if wants_logprobs else None
    if body.stream:
        chunks = ChatChunks(response_id, int(generation.at_s), model, includes_usage=has_usage, table=table)
        return await streamed(request, generation, chunks)
    gone = await whole(request, generation)
    return _answer(generation, response_id, model, table) if gone is None else gone


@dataclass(frozen=True, slots=True)
class _Read:
    """A body, its parameters by name, and those of them that are ignored."""

    body: ChatBody
    fields: Mapping[str, msgspec.Raw]
    ignored: list[str]


def _read(parts: ServeParts, raw: bytes) -> _Read:
    raw, fields = fields_of(raw)
    ignored = check_parameters(fields, _TAKEN)
    check_sizes(fields)
    body = parsed_in_pieces(raw, fields, ChatBody, "messages", MessageSpec, most=parts.context_length)
    ignored += [f"tools.{tool.type}" for tool in body.tools or () if tool.type != "function"]
    ignored += ["tool_choice"] if _asks_elsewhere(body) else []
    ignored += unheeded(body.reasoning, "reasoning", ("effort", "enabled", "max_tokens"))
    ignored += unheeded(body.thinking, "thinking", ("type", "budget_tokens"))
    return _Read(body, fields, ignored)


def _asked(parts: ServeParts, read: _Read, top_logprobs: int) -> GenerationRequest:
    body, fields, unseen = read.body, read.fields, Placeholders()
    facts, limit = facts_of(fields), limit_of(body, parts.settings)
    choice = ToolChoice() if _asks_elsewhere(body) else tool_choice_of(value_of(body.tool_choice))
    has_one_call = body.parallel_tool_calls is False
    tools = choice.offered(parts.offered.tools(body.tools, fields["tools"]) if body.tools else ())
    strict = {tool.function.name for tool in body.tools or () if tool.function is not None and tool.function.strict}
    held = held_text(body, value_of(body.response_format), "response_format")
    wishes = chat_wishes(body.reasoning_effort, body.reasoning, body.thinking, body.enable_thinking)
    options = options_of(body.chat_template_kwargs, wishes, parts.renderer.template.options)
    return GenerationRequest(
        api="chat",
        messages=messages_of(body.messages, unseen),
        tools=tools,
        sampling=sampling_of(body, parts.defaults, parts.eos_ids, max_tokens=limit or 1, top_logprobs=top_logprobs),
        max_tokens=limit,
        count=count_of(body, parts.settings.max_choices),
        stops=stops_of(body),
        has_one_call=has_one_call,
        form=answer_form(tools, choice, strict, held, has_one_call=has_one_call),
        options=options.values,
        facts=facts,
        ignored=(*read.ignored, *options.ignored),
        placeholders=unseen.counts,
    )


def _asks_elsewhere(body: ChatBody) -> bool:
    return asks_elsewhere(value_of(body.tool_choice), (tool.type for tool in body.tools or ()), ("function",))


def _answer(generation: Generation, response_id: str, model: str, table: TokenBytes | None) -> web.Response:
    body: dict[str, Json] = {
        "id": response_id,
        "object": "chat.completion",
        "created": int(generation.at_s),
        "model": model,
        "choices": [_choice_json(choice, table) for choice in generation.choices],
        "usage": usage_json(generation),
    }
    return web.Response(body=msgspec.json.encode(body), content_type="application/json", headers=generation.headers)


def _choice_json(choice: Choice, table: TokenBytes | None) -> dict[str, Json]:
    reply = choice.reply()
    message: dict[str, Json] = {
        "role": "assistant",
        "content": reply.text if reply.text or not reply.tool_calls else None,
        "refusal": None,
    }
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = reply.as_json()["tool_calls"]
    logprobs: Json = None
    if table is not None:
        logprobs = {"content": token_entries(choice.sampled, table), "refusal": None}
    return {"index": choice.index, "message": message, "logprobs": logprobs, "finish_reason": choice.reason}
