"""What a request of Anthropic's Messages API may hold, and how it becomes messages, tools and template options."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from openclaw_rl.core.message import Json, Message, Role, TextPart, Tool, ToolCall
from openclaw_rl.errors import RequestError
from openclaw_rl.serve import tool_choice
from openclaw_rl.serve.extras import Extras
from openclaw_rl.serve.names import MOST_CALL_ID, check_name
from openclaw_rl.serve.params import Refused
from openclaw_rl.serve.wire import value_of

_EMPTY: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
# What this API alone may ask for and cannot have: the values that ask for nothing, and why not.
REFUSED: Refused = {
    "mcp_servers": ((None, []), "this server calls no tools itself"),
    "container": ((None,), "this server runs no code"),
    "stop": ((None, []), "the parameter is called stop_sequences in this API"),
}
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}


class Block(msgspec.Struct):
    """One block of content, whatever its kind."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = _EMPTY
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None
    cache_control: msgspec.Raw = _EMPTY


class MessageParam(msgspec.Struct):
    """One message as it was sent."""

    role: str
    content: str | list[Block]


class ToolParam(msgspec.Struct):
    """A tool; only a client's own are known."""

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: msgspec.Raw = _EMPTY
    strict: bool | None = None
    defer_loading: bool | None = None
    cache_control: msgspec.Raw = _EMPTY


class ToolChoice(msgspec.Struct):
    """Whether tools may be called."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct):
    """Whether the model thinks first. The budget is taken and not held to."""

    type: str
    budget_tokens: int | None = None
    display: str | None = None


class OutputConfig(msgspec.Struct):
    """How much effort an answer is worth, and the format it is held to."""

    effort: str | None = None
    format: msgspec.Raw = _EMPTY


class CountBody(Extras, kw_only=True):
    """The body of POST /v1/messages/count_tokens."""

    messages: list[MessageParam]
    model: str | None = None
    system: str | list[Block] | None = None
    tools: list[ToolParam] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None


class MessagesBody(CountBody, kw_only=True):
    """The body of POST /v1/messages."""

    max_tokens: int
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    output_format: msgspec.Raw = _EMPTY


def conversation_of(body: CountBody) -> tuple[Message, ...]:
    """System text and messages. Raises RequestError naming the first that cannot be used."""
    if not body.messages:
        raise RequestError("messages is empty", fix="send at least one message", param="messages")
    found: list[Message] = []
    system = _text(body.system, "system", between="\n\n")
    if system:
        found.append(Message(Role.SYSTEM, (TextPart(system),)))
    for index, sent in enumerate(body.messages):
        found.extend(_messages(sent, f"messages[{index}]"))
    if body.messages[-1].role == "assistant":
        raise RequestError(
            "the last message is the assistant's: an answer begins a message of its own here",
            fix="end with a user message",
            param="messages",
        )
    return tuple(found)


def choice_of(body: CountBody) -> tool_choice.ToolChoice:
    """The choice of tools. Raises RequestError for one that is none."""
    sent = body.tool_choice
    match None if sent is None else sent.type:
        case None | "auto":
            return tool_choice.ToolChoice()
        case "none":
            return tool_choice.ToolChoice(tool_choice.Calling.NONE)
        case "any":
            return tool_choice.ToolChoice(tool_choice.Calling.REQUIRED)
        case "tool" if sent is not None and sent.name:
            return tool_choice.ToolChoice(tool_choice.Calling.REQUIRED, (sent.name,), is_one=True)
    raise RequestError(
        f"tool_choice is {None if sent is None else sent.type!r}",
        fix="use auto, any, none, or tool with its name",
        param="tool_choice",
    )


def offered(body: CountBody) -> tuple[Tool, ...]:
    """The tools the model is told of. Raises RequestError for other kinds."""
    return choice_of(body).offered([_tool(sent, f"tools[{index}]") for index, sent in enumerate(body.tools or ())])


def format_of(body: MessagesBody) -> Json:
    """The format the text is held to, under either of its names; None for none."""
    config = None if body.output_config is None else value_of(body.output_config.format)
    return value_of(body.output_format) if config is None else config


def thinking_options(body: CountBody) -> dict[str, Json]:
    """Arguments for the chat template; one that knows none of them renders as ever."""
    options: dict[str, Json] = {}
    if body.thinking is not None:
        if body.thinking.type not in ("enabled", "disabled", "adaptive"):
            raise RequestError(
                f"thinking.type is {body.thinking.type!r}", fix="use enabled, disabled or adaptive", param="thinking"
            )
        if body.thinking.type != "adaptive":
            options["enable_thinking"] = body.thinking.type == "enabled"
    if body.output_config is not None and body.output_config.effort is not None:
        options["reasoning_effort"] = body.output_config.effort
    return options


def passed_over(body: CountBody) -> list[str]:
    """What inside the parameters that are taken has no effect here, by name."""
    found: list[str] = []
    tools = body.tools or ()
    blocks = [block for sent in body.messages for block in _blocks(sent.content)]
    marked = (
        *(block.cache_control for block in (*blocks, *_blocks(body.system))),
        *(tool.cache_control for tool in tools),
    )
    if any(value_of(mark) is not None for mark in marked):
        found.append("cache_control")
    if any(block.type == "redacted_thinking" for block in blocks):
        found.append("redacted_thinking")
    if any(tool.defer_loading for tool in tools):
        found.append("tools.defer_loading")
    if body.thinking is not None and body.thinking.budget_tokens is not None:
        found.append("thinking.budget_tokens")
    if body.thinking is not None and body.thinking.display is not None:
        found.append("thinking.display")
    return found


def _blocks(content: str | Sequence[Block] | None) -> list[Block]:
    """All blocks, those inside tool results included."""
    found: list[Block] = []
    for block in () if content is None or isinstance(content, str) else content:
        found += (block, *_blocks(block.content))
    return found


def _messages(sent: MessageParam, where: str) -> list[Message]:
    role = _ROLES.get(sent.role)
    if role is None:
        raise RequestError(f"{where}.role is {sent.role!r}", fix="use user or assistant", param=f"{where}.role")
    if isinstance(sent.content, str):
        return [Message(role, (TextPart(sent.content),))]
    if role is Role.ASSISTANT:
        return [_spoken(sent.content, f"{where}.content")]
    return _asked(role, sent.content, f"{where}.content")


def _spoken(blocks: Sequence[Block], where: str) -> Message:
    said: list[TextPart] = []
    thought: list[str] = []
    calls: list[ToolCall] = []
    for index, block in enumerate(blocks):
        place = f"{where}[{index}]"
        if block.type == "tool_use":
            arguments = value_of(block.input)
            if not block.id or not block.name or not isinstance(arguments, dict):
                raise RequestError(f"{place} lacks an id, a name or an input", fix="send all three", param=place)
            check_name(block.id, f"{place}.id", most=MOST_CALL_ID)
            check_name(block.name, f"{place}.name")
            calls.append(ToolCall(block.id, block.name, json.dumps(arguments, ensure_ascii=False)))
        elif block.type == "thinking":
            thought.append(block.thinking or "")
        elif block.type != "redacted_thinking":
            said.append(TextPart(_text_of(block, place)))
    return Message(
        Role.ASSISTANT, tuple(said), reasoning="".join(thought) if thought else None, tool_calls=tuple(calls)
    )


def _asked(role: Role, blocks: Sequence[Block], where: str) -> list[Message]:
    """Results of tools become messages of their own; the text between them stays where it is."""
    found: list[Message] = []
    said: list[TextPart] = []

    def put_down() -> None:
        if said:
            found.append(Message(role, tuple(said)))
            said.clear()

    for index, block in enumerate(blocks):
        place = f"{where}[{index}]"
        if block.type == "tool_result":
            if not block.tool_use_id:
                raise RequestError(f"{place} lacks tool_use_id", fix="name the call it answers", param=place)
            check_name(block.tool_use_id, f"{place}.tool_use_id", most=MOST_CALL_ID)
            put_down()
            text = _text(block.content, f"{place}.content", between="\n")
            failed = bool(block.is_error)
            found.append(Message(Role.TOOL, (TextPart(text),), tool_call_id=block.tool_use_id, is_error=failed))
        else:
            said.append(TextPart(_text_of(block, place)))
    put_down()
    if not found:
        raise RequestError(f"{where} is empty", fix="send text", param=where)
    return found


def _text(content: str | list[Block] | None, where: str, *, between: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return between.join(_text_of(block, f"{where}[{index}]") for index, block in enumerate(content))


def _text_of(block: Block, where: str) -> str:
    if block.type == "text" and block.text is not None:
        return block.text
    if block.type in ("image", "document"):
        raise RequestError(
            f"{where} is of type {block.type}, and the model served here reads text only",
            fix="leave it out, or serve a model that sees",
            param=where,
        )
    raise RequestError(f"{where} is a {block.type!r} block that cannot be used there", fix="send text", param=where)


def _tool(sent: ToolParam, where: str) -> Tool:
    if sent.type not in (None, "custom") or not sent.name:
        raise RequestError(
            f"{where} is a {sent.type!r} tool", fix="send tools with a name and an input_schema", param="tools"
        )
    check_name(sent.name, f"{where}.name")
    schema = value_of(sent.input_schema)
    if not isinstance(schema, dict):
        raise RequestError(f"{where}.input_schema is no object", fix="send a JSON schema", param="tools")
    return Tool(sent.name, sent.description or "", schema)
