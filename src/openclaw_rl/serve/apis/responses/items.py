"""A response of OpenAI's Responses API as JSON: its request, its output items, and its input items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.completion import Finish, Span, SpanKind
from openclaw_rl.core.message import Json, Message, Role, Tool, ToolCall
from openclaw_rl.core.turn import Turn
from openclaw_rl.serve.apis.responses.tools import input_of, shape_of, tools_as_sent
from openclaw_rl.serve.generate import Generation, GenerationRequest

COMPLETED, INCOMPLETE, IN_PROGRESS = "completed", "incomplete", "in_progress"
_STATUS = {Finish.STOP: COMPLETED, Finish.LENGTH: INCOMPLETE, Finish.CANCELLED: "cancelled"}


@dataclass(frozen=True, slots=True)
class ItemNames:
    """Ids of one answer's items. They carry the turn, so that an item can be referred to later."""

    turn: str

    def reasoning(self, number: int = 0) -> str:
        """The id of the answer's thinking."""
        return _numbered(f"rs_{self.turn}", number)

    def message(self, number: int = 0) -> str:
        """The id of what it says."""
        return _numbered(f"msg_{self.turn}", number)

    def call(self, number: int, *, is_custom: bool = False) -> str:
        """The id of one of its calls."""
        return f"{'ctc' if is_custom else 'fc'}_{self.turn}_{number}"


def reasoning_item(name: str, text: str, status: str, *, as_summary: bool) -> dict[str, Json]:
    """Thinking: in the open, or as the summary that the request asked for."""
    item: dict[str, Json] = {"id": name, "type": "reasoning", "status": status, "summary": []}
    part: dict[str, Json] = {"type": "summary_text" if as_summary else "reasoning_text", "text": text}
    item["summary" if as_summary else "content"] = [part] if text or status != IN_PROGRESS else []
    return item


def message_item(name: str, content: list[Json], status: str) -> dict[str, Json]:
    """What the answer says."""
    return {"id": name, "type": "message", "role": "assistant", "status": status, "content": content}


def text_part(text: str, logprobs: list[Json]) -> dict[str, Json]:
    """The one part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def call_item(names: ItemNames, number: int, call: ToolCall, status: str, *, shapes: Json) -> dict[str, Json]:
    """A call, in the shape in which its tool was sent."""
    function, namespace, is_custom = shape_of(call.name, shapes)
    item: dict[str, Json] = {"id": names.call(number, is_custom=is_custom)}
    item |= {"type": "custom_tool_call" if is_custom else "function_call", "status": status}
    item |= {"call_id": call.id, "name": function} | ({"namespace": namespace} if namespace else {})
    return {**item, "input": input_of(call.arguments)} if is_custom else {**item, "arguments": call.arguments}


def output_of(
    reply: Message, turn: str, finish: Finish, *, spans: Sequence[Span], shown: Mapping[str, Json], logprobs: list[Json]
) -> list[Json]:
    """The items of an answer that ended; `shown` describes its request. If it was cut, the cut item is incomplete."""
    names = ItemNames(turn)
    found: list[dict[str, Json]] = []
    if reply.reasoning:
        found.append(reasoning_item(names.reasoning(), reply.reasoning, COMPLETED, as_summary=shows_summary(shown)))
    if reply.text:
        found.append(message_item(names.message(), [text_part(reply.text, logprobs)], COMPLETED))
    for number, call in enumerate(reply.tool_calls):
        found.append(call_item(names, number, call, COMPLETED, shapes=shown.get("tool_shapes")))
    if found and finish is not Finish.STOP:
        kinds = [span.kind for span in spans if span.kind is not SpanKind.MARK]
        messages = [item for item in found if item["type"] == "message"]
        cut = messages[-1] if messages and kinds[-1:] == [SpanKind.TEXT] else found[-1]  # text may follow a call
        cut["status"] = INCOMPLETE
    return [*found]


def begun(generation: Generation) -> dict[str, Json]:
    """The response of an answer that has no output yet."""
    return {**head_of(generation.choices[0].turn, generation.asked), "created_at": int(generation.at_s)}


def head_of(turn: str, asked: GenerationRequest) -> dict[str, Json]:
    """The fields that a response to this request has from its first event on."""
    return _head(turn, asked.messages, asked.tools, asked.shown)


def ended(generation: Generation, output: list[Json]) -> dict[str, Json]:
    """The response of an answer that is in the store."""
    finish = generation.choices[0].finish
    assert finish is not None
    usage = _usage(
        len(generation.prompt), generation.cached_tokens, generation.sampled_tokens, generation.reasoning_tokens
    )
    return {**begun(generation), **_ending(finish, generation.shown), "output": output, "usage": usage}


def fetched(turn: Turn) -> dict[str, Json]:
    """The response of a turn, as it was sent then."""
    completion = turn.completion
    thought = sum(span.stop - span.start for span in completion.spans if span.kind is SpanKind.REASONING)
    held = turn.shown.get("cached_tokens")
    cached = held if isinstance(held, int) else 0
    return {
        **_head(turn.id, turn.messages, turn.tools, turn.shown),
        "created_at": int(turn.at_s),
        **_ending(completion.finish, turn.shown),
        "output": output_of(
            turn.reply, turn.id, completion.finish, spans=completion.spans, shown=turn.shown, logprobs=[]
        ),
        "usage": _usage(len(turn.prompt), cached, len(completion.tokens), thought),
    }


def shows_summary(shown: Mapping[str, Json]) -> bool:
    """Whether thinking is given as a summary."""
    reasoning = shown.get("reasoning")
    return isinstance(reasoning, dict) and reasoning.get("summary") is not None


def input_items(turn: Turn) -> list[dict[str, Json]]:
    """Everything in the model's input except the instructions, oldest first."""
    found: list[dict[str, Json]] = []
    shapes = turn.shown.get("tool_shapes")
    calls = [call for item in turn.messages for call in item.tool_calls]
    customs = {call.id for call in calls if shape_of(call.name, shapes)[2]}
    for item in turn.messages[1:] if turn.shown.get("has_instructions") else turn.messages:
        name = f"{turn.id}_in{len(found)}"
        if item.role is Role.TOOL:
            kind = "custom_tool_call_output" if item.tool_call_id in customs else "function_call_output"
            output: dict[str, Json] = {"id": f"fco_{name}", "type": kind, "status": COMPLETED}
            found.append({**output, "call_id": item.tool_call_id or "", "output": item.text})
            continue
        if item.role is not Role.ASSISTANT:
            said: Json = [{"type": "input_text", "text": item.text}]
            found.append(
                {"id": f"msg_{name}", "type": "message", "role": item.role.value, "status": COMPLETED, "content": said}
            )
            continue
        if item.reasoning:
            found.append(reasoning_item(f"rs_{name}", item.reasoning, COMPLETED, as_summary=False))
        if item.text:
            found.append(message_item(f"msg_{name}", [text_part(item.text, [])], COMPLETED))
        for number, call in enumerate(item.tool_calls):
            found.append(call_item(ItemNames(name), number, call, COMPLETED, shapes=shapes))
    return found


def _head(turn: str, messages: Sequence[Message], tools: Sequence[Tool], shown: Mapping[str, Json]) -> dict[str, Json]:
    """The fields that a response has from its first event on."""
    said: dict[str, Json] = {
        name: value
        for name, value in shown.items()
        if name not in ("has_instructions", "tool_shapes", "completed_at", "cached_tokens")
    }
    return {
        "id": f"resp_{turn}",
        "object": "response",
        "status": IN_PROGRESS,
        "background": False,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": messages[0].text if shown.get("has_instructions") else None,
        "tools": tools_as_sent(tools, shown.get("tool_shapes")),
        "output": [],
        "usage": None,
        "max_tool_calls": None,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "safety_identifier": None,
        "service_tier": "default",
        **said,
    }


def _ending(finish: Finish, shown: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "status": _STATUS[finish],
        "incomplete_details": {"reason": "max_output_tokens"} if finish is Finish.LENGTH else None,
        "completed_at": shown.get("completed_at") if finish is Finish.STOP else None,
    }


def _usage(read: int, cached: int, sampled: int, thought: int) -> dict[str, Json]:
    """Tokens read and sampled. Cache writes cost nothing here and are not counted."""
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": sampled,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": read + sampled,
    }


def _numbered(name: str, number: int) -> str:
    return f"{name}_{number}" if number else name
