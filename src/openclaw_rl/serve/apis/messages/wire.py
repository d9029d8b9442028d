"""The fields of an Anthropic Messages request, and how it becomes messages, tools and template options."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

import msgspec

from openclaw_rl.core.message import Json, Message, Role, TextPart, Tool, ToolCall
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import value_of
from openclaw_rl.serve.apis.messages.tools import ToolParam, is_elsewhere, tools_of
from openclaw_rl.serve.request.answer_form import CallMode, ToolChoice
from openclaw_rl.serve.request.extras import Extras
from openclaw_rl.serve.request.names import MOST_CALL_ID, check_name
from openclaw_rl.serve.request.thinking import Options, ThinkingRequest, options_of
from openclaw_rl.serve.request.unseen import Placeholders, data_facts, own_line, text_in

_EMPTY: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}


class ContentBlock(msgspec.Struct):
    """One block of content, whatever its kind."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = _EMPTY
    tool_use_id: str | None = None
    tool_name: str | None = None
    title: str | None = None
    source: msgspec.Raw = _EMPTY
    content: str | list[ContentBlock] | ContentBlock | None = None
    is_error: bool | None = None
    cache_control: msgspec.Raw = _EMPTY


class Source(msgspec.Struct):
    """The bytes of an image or a document: in base64, as text, as blocks, at an address, or as a file of the API."""

    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    content: str | list[ContentBlock] | None = None

    def facts(self) -> tuple[str, ...]:
        """Media type and size, or the place of the bytes."""
        if self.data or self.type == "base64":
            return data_facts(self.data, self.media_type)
        return data_facts(self.url) if self.url else (self.file_id,)


class MessageParam(msgspec.Struct):
    """One message as it was sent."""

    role: str
    content: str | list[ContentBlock]


class ToolChoiceParam(msgspec.Struct):
    """Whether tools may be called."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingParam(msgspec.Struct):
    """Whether the model thinks first. The budget is accepted but not enforced."""

    type: str
    budget_tokens: int | None = None
    display: str | None = None


class OutputConfig(msgspec.Struct):
    """How much effort an answer is worth, and the format it must have."""

    effort: str | None = None
    format: msgspec.Raw = _EMPTY


class CountTokensBody(Extras, kw_only=True):
    """The body of POST /v1/messages/count_tokens."""

    messages: list[MessageParam]
    model: str | None = None
    system: str | list[ContentBlock] | None = None
    tools: list[ToolParam] | None = None
    tool_choice: ToolChoiceParam | None = None
    thinking: ThinkingParam | None = None
    output_config: OutputConfig | None = None


class MessagesBody(CountTokensBody, kw_only=True):
    """The body of POST /v1/messages."""

    max_tokens: int
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    stop: str | list[str] | None = None  # as OpenAI's APIs call them
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None  # this and the next two as OpenAI's APIs call them here
    seed: int | None = None
    stop_token_ids: list[int] | None = None
    output_format: msgspec.Raw = _EMPTY


def conversation_of(body: CountTokensBody, unseen: Placeholders) -> tuple[Message, ...]:
    """System text and messages; what a text model cannot read becomes a placeholder, counted in `unseen`.

    Raises RequestError naming the first that cannot be used.
    """
    if not body.messages:
        raise RequestError("messages is empty", fix="send at least one message", param="messages")
    found: list[Message] = []
    system = _text(body.system, "system", unseen, between="\n\n")
    if system:
        found.append(Message(Role.SYSTEM, (TextPart(system),)))
    for index, sent in enumerate(body.messages):
        found.extend(_messages(sent, f"messages[{index}]", unseen))
    if body.messages[-1].role == "assistant":
        raise RequestError(
            "the last message is the assistant's, and continuing it (prefill) is not supported",
            fix="end with a user message",
            param="messages",
        )
    return tuple(found)


def choice_of(body: CountTokensBody) -> ToolChoice:
    """The choice of tools; free if only tools that a server would run are required. Raises RequestError if it is
    invalid.
    """
    sent = body.tool_choice
    if asks_elsewhere(body):
        return ToolChoice()
    match None if sent is None else sent.type:
        case None | "auto":
            return ToolChoice()
        case "none":
            return ToolChoice(CallMode.NONE)
        case "any":
            return ToolChoice(CallMode.REQUIRED)
        case "tool" if sent is not None and sent.name:
            return ToolChoice(CallMode.REQUIRED, (sent.name,), is_one=True)
    raise RequestError(
        f"tool_choice is {None if sent is None else sent.type!r}",
        fix="use auto, any, none, or tool with its name",
        param="tool_choice",
    )


def asks_elsewhere(body: CountTokensBody) -> bool:
    """Whether `tool_choice` allows only calls of tools that a server would have to run."""
    sent, tools = body.tool_choice, body.tools or ()
    if sent is None or sent.type not in ("any", "tool"):
        return False
    meant = [tool for tool in tools if sent.type == "any" or tool.name == sent.name]
    return bool(meant) and all(is_elsewhere(tool) for tool in meant)


def offered(body: CountTokensBody) -> tuple[Tool, ...]:
    """The tools shown to the model."""
    return choice_of(body).offered(tools_of(body.tools or ()))


def format_of(body: MessagesBody) -> Json:
    """The format the text must have, under either of its names; None if it is free."""
    config = None if body.output_config is None else value_of(body.output_config.format)
    return value_of(body.output_format) if config is None else config


def template_options(body: CountTokensBody, known: Collection[str]) -> Options:
    """Arguments for a chat template that knows these names, and the fields that it does not know."""
    wishes: list[ThinkingRequest] = []
    thinking, config = body.thinking, body.output_config
    if thinking is not None:
        if thinking.type not in ("enabled", "disabled", "adaptive"):
            raise RequestError(
                f"thinking.type is {thinking.type!r}", fix="use enabled, disabled or adaptive", param="thinking"
            )
        if thinking.type != "adaptive":
            wishes.append(ThinkingRequest("thinking", is_on=thinking.type == "enabled"))
        if thinking.budget_tokens is not None:
            wishes.append(ThinkingRequest("thinking.budget_tokens", budget=thinking.budget_tokens))
    if config is not None and config.effort is not None:
        wishes.append(ThinkingRequest("output_config.effort", level=config.effort))
    return options_of(msgspec.Raw(), wishes, known)


def passed_over(body: CountTokensBody) -> list[str]:
    """Names of the fields within accepted parameters that have no effect here."""
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
    found += [f"tools.{tool.type}" for tool in tools if is_elsewhere(tool)]
    if asks_elsewhere(body):
        found.append("tool_choice")
    if body.thinking is not None and body.thinking.display is not None:
        found.append("thinking.display")
    return found


def _blocks(content: str | Sequence[ContentBlock] | ContentBlock | None) -> list[ContentBlock]:
    """All blocks, those inside tool results included."""
    found: list[ContentBlock] = []
    for block in _listed(content):
        found += (block, *_blocks(block.content))
    return found


def _messages(sent: MessageParam, where: str, unseen: Placeholders) -> list[Message]:
    role = _ROLES.get(sent.role)
    if role is None:
        raise RequestError(f"{where}.role is {sent.role!r}", fix="use user or assistant", param=f"{where}.role")
    if isinstance(sent.content, str):
        return [Message(role, (TextPart(sent.content),))]
    if role is Role.ASSISTANT:
        return [_spoken(sent.content, f"{where}.content", unseen)]
    return _asked(role, sent.content, f"{where}.content", unseen)


def _spoken(blocks: Sequence[ContentBlock], where: str, unseen: Placeholders) -> Message:
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
            said.append(TextPart(_part(block, place, unseen, is_first=not said)))
    return Message(
        Role.ASSISTANT, tuple(said), reasoning="".join(thought) if thought else None, tool_calls=tuple(calls)
    )


def _asked(role: Role, blocks: Sequence[ContentBlock], where: str, unseen: Placeholders) -> list[Message]:
    """Tool results become separate messages; the text between them stays in place."""
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
            text = _text(block.content, f"{place}.content", unseen, between="\n")
            failed = bool(block.is_error)
            found.append(Message(Role.TOOL, (TextPart(text),), tool_call_id=block.tool_use_id, is_error=failed))
        else:
            said.append(TextPart(_part(block, place, unseen, is_first=not said)))
    put_down()
    if not found:
        raise RequestError(f"{where} is empty", fix="send text", param=where)
    return found


def _text(
    content: str | Sequence[ContentBlock] | ContentBlock | None, where: str, unseen: Placeholders, *, between: str
) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return between.join(_text_of(block, f"{where}[{index}]", unseen) for index, block in enumerate(_listed(content)))


def _listed(content: str | Sequence[ContentBlock] | ContentBlock | None) -> Sequence[ContentBlock]:
    if content is None or isinstance(content, str):
        return ()
    return (content,) if isinstance(content, ContentBlock) else content


def _part(block: ContentBlock, where: str, unseen: Placeholders, *, is_first: bool) -> str:
    """One block of a message as text: text as it is, everything else on its own line."""
    text = _text_of(block, where, unseen)
    return text if block.type == "text" else own_line(text, is_first=is_first)


def _text_of(block: ContentBlock, where: str, unseen: Placeholders) -> str:
    match block.type:
        case "text":
            if block.text is None:
                raise RequestError(f"{where} has no text", fix="send text", param=where)
            return block.text
        case "image":
            return unseen.named("image", *_source(block).facts())
        case "document":
            return _document(block, where, unseen)
        case "search_result":
            head = [text for text in (block.title, value_of(block.source)) if isinstance(text, str)]
            return "\n".join((*head, _text(block.content, f"{where}.content", unseen, between="\n")))
        case "compaction" if isinstance(block.content, str):
            return block.content
        case "tool_reference":
            return unseen.reference(block.type, block.tool_name or "")
    return unseen.named(block.type, block.name or block.title or "")


def _document(block: ContentBlock, where: str, unseen: Placeholders) -> str:
    """A document's text if it has one, else its name."""
    source = _source(block)
    head = () if block.title is None else (block.title,)
    text = source.data if source.type == "text" else text_in(source.data, source.media_type)
    if source.type == "content":
        text = _text(source.content, f"{where}.source.content", unseen, between="\n")
    return unseen.named("document", *head, *source.facts()) if text is None else "\n".join((*head, text))


def _source(block: ContentBlock) -> Source:
    """Where a block's bytes are; an empty source if it has another shape."""
    try:
        return msgspec.json.decode(bytes(block.source), type=Source)
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError):
        return Source()
