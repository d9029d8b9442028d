"""The fields of an OpenAI Responses request, and how its items become messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from openclaw_rl.core.message import Json, Message, Role, TextPart, ToolCall
from openclaw_rl.core.turn import Turn
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import object_of, value_of
from openclaw_rl.serve.apis.responses.tools import OfferedTool, called_with, is_for_servers, passed_over_tools
from openclaw_rl.serve.request.extras import Extras
from openclaw_rl.serve.request.names import MOST_CALL_ID, check_name, flat_name
from openclaw_rl.serve.request.params import Refused
from openclaw_rl.serve.request.unseen import Placeholders, data_facts, own_line, text_in, texts_of

_EMPTY: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
}
_OWN_ITEM = re.compile(r"(rs|msg|fc|ctc)_([0-9a-f]{32})(?:_([0-9]{1,4}))?")
_TEXTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")
LOGPROBS = "message.output_text.logprobs"
# Parameters of this API alone that are refused: the values that request nothing, and why.
REFUSED: Refused = {
    "background": ((None, False), "an answer lives as long as its connection; stream it instead"),
    "conversation": ((None,), "conversations have no id of their own here; go on with previous_response_id"),
    "prompt": ((None,), "no prompt templates are kept here"),
    "context_management": ((None, []), "a prompt is read as it was sent"),
    "max_tokens": ((None,), "the limit is called max_output_tokens in this API"),
    "max_completion_tokens": ((None,), "the limit is called max_output_tokens in this API"),
    "n": ((None, 1), "this API gives one answer"),
}


class ContentPart(msgspec.Struct):
    """One part of an item's content, whatever its kind."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: msgspec.Raw = _EMPTY
    input_audio: msgspec.Raw = _EMPTY
    filename: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    file_data: str | None = None


class Item(msgspec.Struct):
    """One item of the input, whatever its kind; `type` may be left out of a message."""

    type: str | None = None
    id: str | None = None
    role: str | None = None
    content: str | list[ContentPart] | None = None
    summary: list[ContentPart] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | dict[str, msgspec.Raw] | None = None
    input: str | None = None
    output: msgspec.Raw = _EMPTY


class Reasoning(msgspec.Struct):
    """How much thinking is wanted, and whether it is shown as a summary."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class TextConfig(msgspec.Struct):
    """The format the text must have."""

    format: msgspec.Raw = _EMPTY
    verbosity: str | None = None


class InputTokensBody(Extras, kw_only=True):
    """The body of POST /v1/responses/input_tokens."""

    model: str | None = None
    input: str | list[Item] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[OfferedTool] | None = None
    tool_choice: msgspec.Raw = _EMPTY
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: TextConfig | None = None
    truncation: str | None = None
    chat_template_kwargs: msgspec.Raw = _EMPTY


class ResponsesBody(InputTokensBody, kw_only=True):
    """The body of POST /v1/responses. The last five are not OpenAI's, but this engine's."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    stream: bool | None = None
    include: list[str] | None = None
    store: bool | None = None
    metadata: dict[str, msgspec.Raw] | None = None
    user: msgspec.Raw = _EMPTY
    prompt_cache_key: msgspec.Raw = _EMPTY
    stop: str | list[str] | None = None
    seed: int | None = None
    top_k: int | None = None
    min_p: float | None = None


def format_of(body: InputTokensBody) -> Json:
    """The format the text must have, as it was sent; None if it is free."""
    return None if body.text is None else value_of(body.text.format)


def passed_over(body: InputTokensBody) -> list[str]:
    """Names of the fields within accepted parameters that have no effect here."""
    found = []
    if body.truncation == "auto":
        found.append("truncation")
    if body.text is not None and body.text.verbosity is not None:
        found.append("text.verbosity")
    found.extend(passed_over_tools(body.tools or ()))
    if is_for_servers(value_of(body.tool_choice), body.tools or ()):
        found.append("tool_choice")
    if isinstance(body.input, list) and any(item.type == "reasoning" and _is_sealed(item) for item in body.input):
        found.append("input.encrypted_content")
    if isinstance(body, ResponsesBody):
        found.extend(f"include.{name}" for name in body.include or () if name != LOGPROBS)
    return found


def turns_named(given: str | Sequence[Item] | None) -> list[str]:
    """The turns whose items the input refers to by id alone."""
    found = []
    for item in given if isinstance(given, list) else ():
        named = _OWN_ITEM.fullmatch(item.id or "") if item.type == "item_reference" else None
        if named is not None:
            found.append(named[2])
    return list(dict.fromkeys(found))


def messages_of_input(
    given: str | Sequence[Item] | None, referred: Mapping[str, Turn], unseen: Placeholders
) -> tuple[Message, ...]:
    """The input as messages: consecutive thinking, text and calls of the assistant become one message.

    What a text model cannot read is counted in `unseen`. `referred` are the turns whose items are named by id.
    Raises RequestError naming the first item that cannot be used.
    """
    if not given:
        raise RequestError("input is empty", fix="send some text or items", param="input")
    if isinstance(given, str):
        return (Message(Role.USER, (TextPart(given),)),)
    found: list[Message] = []
    spoken = _Spoken(unseen)
    for index, item in enumerate(given):
        where = f"input[{index}]"
        check_name(item.id, f"{where}.id")
        check_name(item.call_id, f"{where}.call_id", most=MOST_CALL_ID)
        check_name(item.name, f"{where}.name")
        check_name(item.namespace, f"{where}.namespace")
        if spoken.takes(item, where, referred):
            continue
        spoken.put_down(found)
        found.append(_heard(item, where, unseen))
    spoken.put_down(found)
    return tuple(found)


@dataclass(slots=True)
class _Spoken:
    """Consecutive items of the assistant."""

    unseen: Placeholders
    thought: list[str] = field(default_factory=list)
    said: list[TextPart] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    has_any: bool = False

    def takes(self, item: Item, where: str, referred: Mapping[str, Turn]) -> bool:
        """Whether the item is the assistant's; it is kept then."""
        match item.type or "message":
            case "message" if item.role == "assistant":
                texts = _texts(item.content, f"{where}.content", self.unseen)
                self.said.extend(TextPart(text) for text in texts)
            case "reasoning":
                self.thought.append(_thought(item, where, self.unseen))
            case "function_call":
                if not item.call_id or not item.name:
                    raise RequestError(f"{where} lacks a call_id or a name", fix="send both", param=where)
                self.calls.append(ToolCall(item.call_id, flat_name(item.name, item.namespace), _arguments(item)))
            case "custom_tool_call" if item.call_id and item.name:
                name = flat_name(item.name, item.namespace)
                self.calls.append(ToolCall(item.call_id, name, called_with(item.input)))
            case "item_reference":
                self._refers(item, where, referred)
            case "message" | "function_call_output":
                return False
            case kind if kind.endswith("_output") and item.call_id:
                return False
            case kind:  # what OpenAI's own servers did, or models of theirs
                placeholder = self.unseen.named(kind, item.name or "")
                self.said.append(TextPart(own_line(placeholder, is_first=not self.said)))
        self.has_any = True
        return True

    def put_down(self, found: list[Message]) -> None:
        """Adds the message, if anything was kept, and starts the next."""
        if self.has_any:
            reasoning = "".join(self.thought) or None
            found.append(Message(Role.ASSISTANT, tuple(self.said), reasoning, tuple(self.calls)))
            self.thought, self.said, self.calls, self.has_any = [], [], [], False

    def _refers(self, item: Item, where: str, referred: Mapping[str, Turn]) -> None:
        named = _OWN_ITEM.fullmatch(item.id or "")
        turn = None if named is None else referred.get(named[2])
        if named is None or turn is None:
            raise RequestError(
                f"{where} refers to {item.id}, which is not known here",
                fix="send the item itself",
                status=404,
                param=where,
            )
        number = int(named[3] or 0)
        match named[1]:
            case "rs" if not number and turn.reply.reasoning:
                self.thought.append(turn.reply.reasoning)
            case "msg" if not number:  # the first message item stands for all the text
                self.said.extend(part for part in turn.reply.content if isinstance(part, TextPart))
            case "fc" | "ctc" if number < len(turn.reply.tool_calls):
                self.calls.append(turn.reply.tool_calls[number])


def _heard(item: Item, where: str, unseen: Placeholders) -> Message:
    """An item that is not the assistant's."""
    kind = item.type or "message"
    if kind != "message":  # the output of a function, or of a tool that another server ran
        if not item.call_id:
            raise RequestError(f"{where} lacks a call_id", fix="name the call it answers", param=where)
        text = "\n".join(_output(item, where, unseen))
        return Message(Role.TOOL, (TextPart(text),), tool_call_id=item.call_id)
    role = _ROLES.get(item.role or "")
    if role is None:
        raise RequestError(
            f"{where}.role is {item.role!r}", fix=f"use one of {', '.join(sorted(_ROLES))}", param=f"{where}.role"
        )
    if item.content is None:
        raise RequestError(f"{where} has no content", fix="send text", param=f"{where}.content")
    return Message(role, tuple(_parts(item.content, f"{where}.content", unseen)))


def _parts(content: str | Sequence[ContentPart], where: str, unseen: Placeholders) -> Iterator[TextPart]:
    """Text as it is, everything else on its own line."""
    if isinstance(content, str):
        if content:
            yield TextPart(content)
        return
    for at, part in enumerate(content):
        text = _text(part, f"{where}[{at}]", unseen)
        yield TextPart(text if _is_text(part) else own_line(text, is_first=at == 0))


def _arguments(item: Item) -> str:
    if isinstance(item.arguments, dict):
        return msgspec.json.encode(item.arguments).decode()
    return item.arguments or "{}"


def _thought(item: Item, where: str, unseen: Placeholders) -> str:
    written = _texts(item.content, f"{where}.content", unseen)
    return "".join(written) if written else "\n\n".join(_texts(item.summary, f"{where}.summary", unseen))


def _is_sealed(item: Item) -> bool:
    return item.encrypted_content is not None and not (item.content or item.summary)


def _output(item: Item, where: str, unseen: Placeholders) -> list[str]:
    """A tool's output: text, parts, or something that only its own API can read."""
    held = bytes(item.output)
    if held[:1] not in (b'"', b"["):
        return [] if held in (b"", b"null") else [unseen.named(item.type or "output")]
    try:
        parts: str | list[ContentPart] = msgspec.json.decode(_mended(held), type=str | list[ContentPart])
    except msgspec.ValidationError:
        return [unseen.named(item.type or "output")]
    return _texts(parts, f"{where}.output", unseen)


def _mended(held: bytes) -> bytes:
    """The JSON without half surrogate pairs, which `value_of` takes."""
    return msgspec.json.encode(value_of(msgspec.Raw(held))) if b"\\u" in held else held


def _texts(content: str | Sequence[ContentPart] | None, where: str, unseen: Placeholders) -> list[str]:
    """The texts of content that is a string or a list of parts."""
    if content is None or isinstance(content, str):
        return [content] if content else []
    return [_text(part, f"{where}[{index}]", unseen) for index, part in enumerate(content)]


def _is_text(part: ContentPart) -> bool:
    return part.type in _TEXTS or part.type == "refusal"


def _text(part: ContentPart, where: str, unseen: Placeholders) -> str:
    text = part.refusal if part.type == "refusal" else part.text
    if _is_text(part):
        if text is None:
            raise RequestError(f"{where} has no text", fix="send text", param=where)
        return text
    if part.type in ("input_image", "computer_screenshot"):
        held = value_of(part.image_url)
        url = held if isinstance(held, str) else part.file_id or ""
        return unseen.named("image", *(data_facts(url) if isinstance(held, str) else (url,)))
    if part.type == "input_audio":
        audio = object_of(part.input_audio)
        return unseen.named("audio", *texts_of(audio, "format"), *data_facts("".join(texts_of(audio, "data"))))
    if part.type != "input_file":
        return unseen.named(part.type)
    name = next((name for name in (part.filename, part.file_id, part.file_url) if name), "")
    inside = text_in(part.file_data or "")
    if inside is not None:
        return "\n".join((name, inside)) if name else inside
    return unseen.named("file", name, *(data_facts(part.file_data) if part.file_data else ()))
