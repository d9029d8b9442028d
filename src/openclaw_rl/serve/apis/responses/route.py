"""POST /v1/responses and the routes that belong to it: OpenAI's Responses API, streaming and not.

A response's id contains its turn's, so a response can be fetched and continued from the store.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import msgspec
from aiohttp import web

from openclaw_rl.core.message import Json, Message, Role, TextPart
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.errors import ContextError, RequestError
from openclaw_rl.serve.answers import token_entries, turn_of_response
from openclaw_rl.serve.apis.chat.wire import SamplingSpec, facts_of, fields_of, value_of
from openclaw_rl.serve.apis.responses.chunks import ResponseChunks, refused_stream
from openclaw_rl.serve.apis.responses.items import ended, fetched, input_items, output_of
from openclaw_rl.serve.apis.responses.tools import choice_of, functions_of, shapes_of, strict_of
from openclaw_rl.serve.apis.responses.wire import (
    LOGPROBS,
    REFUSED,
    InputTokensBody,
    Item,
    ResponsesBody,
    format_of,
    messages_of_input,
    passed_over,
    turns_named,
)
from openclaw_rl.serve.control.routes import answer, number_of
from openclaw_rl.serve.generate import Generation, GenerationRequest, begin
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.request.answer_form import answer_form, held_text
from openclaw_rl.serve.request.large import MOST_COUNTED, beside, check_sizes, parsed_in_pieces
from openclaw_rl.serve.request.params import check_parameters, sampling_of, stops_of
from openclaw_rl.serve.request.thinking import Options, ThinkingRequest, options_of
from openclaw_rl.serve.request.unseen import Placeholders
from openclaw_rl.serve.stream import streamed, whole

_API = "responses"
_TAKEN = frozenset(ResponsesBody.__struct_fields__)
_MOST_ITEMS = 100
_USUAL_ITEMS = 20


async def responses(request: web.Request, parts: ServeParts, key_name: str) -> web.StreamResponse:
    """Answers one request."""
    raw = await request.read()
    body, facts, ignored = await beside(len(raw), partial(_read, parts, raw))
    model = parts.model_named(body.model)
    unseen = Placeholders()
    messages = await _conversation(parts, body, key_name, len(raw), unseen)
    asked = replace(_asked(parts, body, model, messages, facts), placeholders=unseen.counts)
    asked = replace(asked, ignored=(*ignored, *asked.ignored))
    try:
        generation = await begin(parts, asked, request.headers, key_name)
    except ContextError as problem:
        if not body.stream:
            raise
        return web.Response(body=refused_stream(asked, problem, parts.clock()), content_type="text/event-stream")
    has_logprobs = LOGPROBS in (body.include or ()) or bool(body.top_logprobs)
    if body.stream:
        table = parts.renderer.table if has_logprobs else None
        return await streamed(request, generation, ResponseChunks(generation, table))
    gone = await whole(request, generation)
    return _answer(generation, has_logprobs=has_logprobs) if gone is None else gone


async def response(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """An earlier response."""
    if request.query.get("stream", "").lower() == "true":
        raise RequestError("a stored response cannot be streamed again", fix="fetch it without stream", param="stream")
    return answer(fetched(await _owned(parts, request.match_info["id"], key_name, "id")))


async def response_input(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """The input of a response, item by item, newest first unless `order` says otherwise."""
    turn = await _owned(parts, request.match_info["id"], key_name, "id")
    limit = number_of(request.query.get("limit", str(_USUAL_ITEMS)), "limit", most=_MOST_ITEMS)
    order = request.query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise RequestError(f"order is {order!r}", fix="use asc or desc", param="order")
    items = input_items(turn)
    if order == "desc":
        items.reverse()
    after = request.query.get("after")
    if after is not None:
        names = [item["id"] for item in items]
        if after not in names:
            raise RequestError(f"there is no item {after}", fix="send the last id of a page", param="after")
        items = items[names.index(after) + 1 :]
    page, has_more = items[:limit], len(items) > limit
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return answer({"object": "list", "data": [*page], "first_id": first, "last_id": last, "has_more": has_more})


async def response_deleted(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Refused: a response is a turn of the ledger."""
    await _owned(parts, request.match_info["id"], key_name, "id")
    raise RequestError(
        "a response cannot be deleted by itself: it is a turn of the ledger, and may have been learned from",
        fix="send store: false if the answer should not be retrievable",
        code="unsupported_operation",
    )


async def response_cancelled(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Refused: an answer ends with its connection."""
    await _owned(parts, request.match_info["id"], key_name, "id")
    raise RequestError(
        "only background responses can be cancelled by id, and this server has none",
        fix="close the connection of an answer that is no longer wanted",
        code="unsupported_operation",
    )


async def input_tokens(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """How many tokens the model would read; nothing is sampled or stored."""
    raw = await request.read()
    body = await beside(len(raw), partial(_read_count, raw))
    parts.model_named(body.model)
    messages = await _conversation(parts, body, key_name, len(raw), Placeholders())
    tools = choice_of(value_of(body.tool_choice), body.tools or ()).offered(functions_of(body.tools or ()))
    count = await asyncio.to_thread(parts.renderer.count, messages, tools, options=_options(parts, body).values)
    return answer({"object": "response.input_tokens", "input_tokens": count})


def _read(parts: ServeParts, raw: bytes) -> tuple[ResponsesBody, dict[str, Json], list[str]]:
    """The body, its session fields, and the parameters that are ignored. Raises RequestError."""
    raw, fields = fields_of(raw)
    ignored = check_parameters(fields, _TAKEN, REFUSED)
    check_sizes(fields)
    body = parsed_in_pieces(raw, fields, ResponsesBody, "input", Item, most=parts.context_length)
    return body, facts_of(fields), [*ignored, *passed_over(body)]


def _read_count(raw: bytes) -> InputTokensBody:
    raw, fields = fields_of(raw)
    check_sizes(fields)
    facts_of(fields)  # a wrong type or size is refused here as in /v1/responses
    return parsed_in_pieces(raw, fields, InputTokensBody, "input", Item, most=MOST_COUNTED)


async def _conversation(
    parts: ServeParts, body: InputTokensBody, key_name: str, size_bytes: int, unseen: Placeholders
) -> tuple[Message, ...]:
    """Instructions, the messages of the continued response and its answer, and the input.

    The continued response's own instructions are left out. `size_bytes` is the size of the request's body.
    """
    referred: dict[str, Turn] = {}
    for name in turns_named(body.input):
        found = await _of_this_key(parts, name, key_name)
        if found is not None:
            referred[name] = found
    asked = await beside(size_bytes, partial(messages_of_input, body.input, referred, unseen))
    system = (Message(Role.SYSTEM, (TextPart(body.instructions),)),) if body.instructions else ()
    if not body.previous_response_id:
        return (*system, *asked)
    past = await _owned(parts, body.previous_response_id, key_name, "previous_response_id")
    before = past.messages[1:] if past.shown.get("has_instructions") else past.messages
    return (*system, *before, past.reply, *asked)


async def _owned(parts: ServeParts, given: str, key_name: str, param: str) -> Turn:
    """The turn of a response that this key stored. Any other raises RequestError, as an unknown id does."""
    found = await _of_this_key(parts, turn_of_response(given), key_name)
    if found is None or found.shown.get("store") is False:
        raise RequestError(
            f"there is no response {given}",
            fix="send the id of a response of this server that was stored",
            status=404,
            code="previous_response_not_found" if param == "previous_response_id" else "response_not_found",
            param=param,
        )
    return found


async def _of_this_key(parts: ServeParts, name: str, key_name: str) -> Turn | None:
    found = await parts.store.turn(name)
    if found is None or found.api != _API or parts.control.session_name(key_name, found.session) != found.session:
        return None
    return found


def _asked(
    parts: ServeParts, body: ResponsesBody, model: str, messages: tuple[Message, ...], facts: dict[str, Json]
) -> GenerationRequest:
    spec = SamplingSpec(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        seed=body.seed,
        stop=body.stop,
    )
    limit = body.max_output_tokens
    if limit is not None and limit < 1:
        raise RequestError(
            f"max_output_tokens is {limit}", fix="an answer has at least one token", param="max_output_tokens"
        )
    limit = limit or parts.settings.default_max_tokens or None
    sampling = sampling_of(
        spec, parts.defaults, parts.eos_ids, max_tokens=limit or 1, top_logprobs=body.top_logprobs or 0, extras=body
    )
    choice = choice_of(value_of(body.tool_choice), body.tools or ())
    has_one_call = body.parallel_tool_calls is False
    tools = choice.offered(functions_of(body.tools or ()))
    strict = strict_of(body.tools or ())
    held = held_text(body, format_of(body), "text.format")
    options = _options(parts, body)
    return GenerationRequest(
        api=_API,
        messages=messages,
        tools=tools,
        sampling=sampling,
        max_tokens=limit,
        stops=stops_of(spec),
        has_one_call=has_one_call,
        form=answer_form(tools, choice, strict, held, has_one_call=has_one_call),
        options=options.values,
        facts=facts,
        ignored=options.ignored,
        shown=_shown(body, model, sampling, facts),
    )


def _options(parts: ServeParts, body: InputTokensBody) -> Options:
    effort = None if body.reasoning is None else body.reasoning.effort
    wishes = [] if effort is None else [ThinkingRequest("reasoning.effort", level=effort)]
    return options_of(body.chat_template_kwargs, wishes, parts.renderer.template.options)


def _shown(body: ResponsesBody, model: str, sampling: Sampling, facts: dict[str, Json]) -> dict[str, Json]:
    """What a response reports of its request, besides the messages and tools."""
    effort = summary = None
    if body.reasoning is not None:
        effort, summary = body.reasoning.effort, body.reasoning.summary or body.reasoning.generate_summary
    return {
        "model": model,
        "has_instructions": bool(body.instructions),
        "tool_shapes": shapes_of(body.tools or ()),
        "previous_response_id": body.previous_response_id,
        "max_output_tokens": body.max_output_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_logprobs": sampling.top_logprobs,
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "tool_choice": value_of(body.tool_choice) or "auto",
        "reasoning": {"effort": effort, "summary": summary},
        "text": {"format": format_of(body) or {"type": "text"}},
        "truncation": "disabled",
        "metadata": facts.get("metadata") or {},
        "store": body.store is not False,
        "user": facts.get("user"),
        "prompt_cache_key": facts.get("prompt_cache_key"),
    }


def _answer(generation: Generation, *, has_logprobs: bool) -> web.Response:
    choice = generation.choices[0]
    assert choice.finish is not None
    logprobs = token_entries(choice.said(), generation.parts.renderer.table) if has_logprobs else []
    shown, spans = generation.asked.shown, choice.spans
    output = output_of(choice.reply(), choice.turn, choice.finish, spans=spans, shown=shown, logprobs=logprobs)
    body = msgspec.json.encode(ended(generation, output))
    return web.Response(body=body, content_type="application/json", headers=generation.headers)
