"""The fields of a chat request, and how it becomes messages, tools and facts. Types are checked while parsing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from openclaw_rl.core.message import MOST_DEPTH, Json, Message, Role, TextPart, Tool, ToolCall, is_too_deep
from openclaw_rl.errors import RequestError
from openclaw_rl.render.held import BoundedCache
from openclaw_rl.serve.request.extras import Extras
from openclaw_rl.serve.request.names import MOST_CALL_ID, check_facts, check_metadata, check_name
from openclaw_rl.serve.request.unseen import Placeholders, data_facts, own_line, text_in, texts_of

T = TypeVar("T")
FACTS = (
    "session_id",
    "turn_type",
    "session_done",
    "episode",
    "user",
    "prompt_cache_key",
    "metadata",
    "previous_response_id",
)
_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM} | {role.value: role for role in Role}
_THINKING = frozenset({"thinking", "reasoning", "redacted_thinking"})
_TOOLS_KEPT, _TOOLS_KEPT_BYTES = 64, 4 * 1024 * 1024
_EMPTY: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class FunctionSpec(msgspec.Struct):
    """A function a tool offers."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = _EMPTY
    strict: bool | None = None


class ToolSpec(msgspec.Struct):
    """A tool; only functions are shown to the model."""

    function: FunctionSpec | None = None
    type: str = "function"


class CalledSpec(msgspec.Struct):
    """What a call named, and its arguments as JSON text."""

    name: str
    arguments: str = "{}"


class CustomCallSpec(msgspec.Struct):
    """A call of a tool without a schema: its name and the text it was called with."""

    name: str
    input: str = ""


class CallSpec(msgspec.Struct):
    """One call in an assistant's message, of a function or of a tool without a schema."""

    function: CalledSpec | None = None
    custom: CustomCallSpec | None = None
    id: str = ""


class PartSpec(msgspec.Struct):
    """One part of a message's content, whatever its kind."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: msgspec.Raw = _EMPTY
    input_audio: msgspec.Raw = _EMPTY
    file: msgspec.Raw = _EMPTY
    thinking: str | list[PartSpec] | None = None


class MessageSpec(msgspec.Struct):
    """One message as it was sent."""

    role: str
    content: str | list[PartSpec] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # the same under the name that other servers give it
    tool_calls: list[CallSpec] | None = None
    tool_call_id: str | None = None


class StreamOptions(msgspec.Struct):
    """What a stream ends with."""

    include_usage: bool | None = None


class SamplingSpec(Extras, kw_only=True):
    """What chat and plain completions have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    response_format: msgspec.Raw = _EMPTY


class ChatBody(SamplingSpec, kw_only=True):
    """The body of POST /v1/chat/completions."""

    messages: list[MessageSpec]
    max_completion_tokens: int | None = None
    tools: list[ToolSpec] | None = None
    tool_choice: msgspec.Raw = _EMPTY
    parallel_tool_calls: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    reasoning_effort: str | None = None
    reasoning: msgspec.Raw = _EMPTY
    thinking: msgspec.Raw = _EMPTY
    enable_thinking: msgspec.Raw = _EMPTY
    chat_template_kwargs: msgspec.Raw = _EMPTY


class CompletionBody(SamplingSpec, kw_only=True):
    """The body of POST /v1/completions; `prompt` is text or ids."""

    prompt: str | list[int | str | list[int]]
    logprobs: int | None = None
    best_of: int | None = None


def fields_of(body: bytes) -> tuple[bytes, dict[str, msgspec.Raw]]:
    """The body, and its parameters by name, each still JSON text. Raises for anything but a JSON object.

    JavaScript clients send half a surrogate pair where they cut text; it becomes U+FFFD, in a copy of the body.
    """
    try:
        return body, _decoded(body, dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise RequestError("the body is not a JSON object", fix="send the parameters as one object") from None
    except msgspec.DecodeError:
        if b"\\ud" not in body.lower():
            raise
        return fields_of(_without_half_pairs(body))


def parsed(body: bytes, kind: type[T]) -> T:
    """The body as that structure. Raises msgspec.ValidationError naming the place."""
    try:
        return _decoded(body, kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # a half pair deeper down: `fields_of` has not looked inside values
        return _decoded(_without_half_pairs(body), kind)


def value_of(raw: msgspec.Raw) -> Json:
    """One parameter as data; None if it was not sent. Raises RequestError if it is nested too deeply."""
    held = bytes(raw)
    if not held:
        return None
    if is_too_deep(held.decode("utf-8", "replace")):
        raise RequestError(
            "the body is nested too deeply", fix=f"nest at most {MOST_DEPTH} lists and objects", code="invalid_json"
        )
    try:
        value: Json = msgspec.json.decode(held)
    except (UnicodeDecodeError, msgspec.DecodeError):  # a half pair
        value = msgspec.json.decode(_without_half_pairs(held))
    return value


def object_of(raw: msgspec.Raw) -> dict[str, Json]:
    """One parameter that should be an object; {} if it is not."""
    held = value_of(raw)
    return held if isinstance(held, dict) else {}


def messages_of(specs: Sequence[MessageSpec], unseen: Placeholders) -> tuple[Message, ...]:
    """The messages; what a text model cannot read becomes a placeholder, counted in `unseen`.

    Raises RequestError naming the first that cannot be used.
    """
    if not specs:
        raise RequestError("messages is empty", fix="send at least one message", param="messages")
    return tuple(_message(spec, f"messages[{index}]", unseen) for index, spec in enumerate(specs))


def tools_of(specs: Sequence[ToolSpec]) -> tuple[Tool, ...]:
    """The tools that are functions; the others would be run by a server, or take input in another language."""
    found: list[Tool] = []
    for index, spec in enumerate(specs):
        if spec.type != "function":
            continue
        if spec.function is None:
            raise RequestError(f"tools[{index}] has no function", fix="send one", param="tools")
        check_name(spec.function.name, f"tools[{index}].function.name")
        parameters = value_of(spec.function.parameters)
        if parameters is None:
            parameters = {"type": "object", "properties": {}}
        if not isinstance(parameters, dict):
            raise RequestError(
                f"tools[{index}].function.parameters is not an object", fix="send a JSON schema", param="tools"
            )
        found.append(Tool(spec.function.name, spec.function.description or "", parameters))
    return tuple(found)


class ToolCache:
    """The tools that requests offer, read once: an agent sends the same ones, byte for byte, with every request.

    Equal bytes give the identical objects, so that others can compare them by identity.
    """

    def __init__(self) -> None:
        self._held: BoundedCache[bytes, tuple[Tool, ...]] = BoundedCache(most=_TOOLS_KEPT, most_size=_TOOLS_KEPT_BYTES)

    def tools(self, specs: Sequence[ToolSpec], raw: msgspec.Raw) -> tuple[Tool, ...]:
        """The tools, whose JSON was `raw`. Raises RequestError if they cannot be read."""
        key = bytes(raw)
        found = self._held.get(key)
        if found is None:
            found = tools_of(specs)
            self._held.put(key, found, size=len(key))
        return found


def facts_of(fields: Mapping[str, msgspec.Raw]) -> dict[str, Json]:
    """The body's session fields, those that were sent. Raises RequestError if one is not a valid name."""
    check_metadata(bytes(fields.get("metadata", b"")))
    facts: dict[str, Json] = {
        name: value for name in FACTS if name in fields and (value := value_of(fields[name])) is not None
    }
    check_facts(facts)
    return facts


def _message(spec: MessageSpec, where: str, unseen: Placeholders) -> Message:
    role = _ROLES.get(spec.role)
    if role is None:
        raise RequestError(
            f"{where}.role is {spec.role!r}", fix=f"use one of {', '.join(sorted(_ROLES))}", param=f"{where}.role"
        )
    if spec.tool_calls and role is not Role.ASSISTANT:
        raise RequestError(
            f"{where} is a {spec.role} message with tool_calls", fix="only an assistant calls tools", param=where
        )
    check_name(spec.name, f"{where}.name")
    check_name(spec.tool_call_id, f"{where}.tool_call_id", most=MOST_CALL_ID)
    for at, call in enumerate(spec.tool_calls or ()):
        check_name(call.id, f"{where}.tool_calls[{at}].id", most=MOST_CALL_ID)
    calls = tuple(_call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(spec.tool_calls or ()))
    if spec.content is None and role in (Role.USER, Role.SYSTEM):  # an empty tool result may be null
        raise RequestError(f"{where} has no content", fix="send text", param=f"{where}.content")
    said, thought = spec.content, None
    if isinstance(said, list) and role is Role.ASSISTANT:
        said, thought = _apart(said)
    given = spec.reasoning if spec.reasoning_content is None else spec.reasoning_content
    return Message(
        role,
        _content(said, where, unseen),
        reasoning=thought if given is None else given,
        tool_calls=calls,
        tool_call_id=spec.tool_call_id,
        name=spec.name,
    )


def _call(spec: CallSpec, where: str) -> ToolCall:
    if spec.function is not None:
        check_name(spec.function.name, f"{where}.function.name")
        return ToolCall(spec.id, spec.function.name, spec.function.arguments)
    if spec.custom is None:
        raise RequestError(f"{where} calls no function", fix="send function", param=where)
    check_name(spec.custom.name, f"{where}.custom.name")
    return ToolCall(spec.id, spec.custom.name, json.dumps({"input": spec.custom.input}, ensure_ascii=False))


def _apart(content: list[PartSpec]) -> tuple[list[PartSpec], str | None]:
    """The text parts of a reply and its thinking, which some clients send among the parts."""
    thought: list[str] = []
    for part in content:
        if part.type in _THINKING:
            inner = part.thinking if isinstance(part.thinking, list) else [part]
            thought += [each.text or (each.thinking if isinstance(each.thinking, str) else "") for each in inner]
    return [part for part in content if part.type not in _THINKING], "".join(thought) or None


def _content(content: str | list[PartSpec] | None, where: str, unseen: Placeholders) -> tuple[TextPart, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(content),)
    parts = enumerate(content)
    return tuple(TextPart(_part(part, f"{where}.content[{index}]", index, unseen)) for index, part in parts)


def _part(part: PartSpec, where: str, index: int, unseen: Placeholders) -> str:
    text = part.refusal if part.type == "refusal" else part.text
    if part.type in ("text", "input_text", "output_text", "refusal"):
        if text is None:
            raise RequestError(f"{where} has no text", fix="send text", param=where)
        return text
    return own_line(_named(part, unseen), is_first=index == 0)


def _named(part: PartSpec, unseen: Placeholders) -> str:
    """The placeholder of a part that is not text."""
    if part.type == "image_url":
        held = value_of(part.image_url)
        (url,) = texts_of(held, "url") or ("",) if isinstance(held, dict) else (str(held or ""),)
        return unseen.named("image", *data_facts(url))
    if part.type == "input_audio":
        audio = object_of(part.input_audio)
        return unseen.named("audio", *texts_of(audio, "format"), *data_facts("".join(texts_of(audio, "data"))))
    if part.type != "file":
        return unseen.named(part.type)
    file = object_of(part.file)
    data = "".join(texts_of(file, "file_data"))
    text = text_in(data)
    name = texts_of(file, "filename", "file_id")[:1]
    if text is not None:
        return "\n".join((*name, text))
    return unseen.named("file", *name, *(data_facts(data) if data else ()))


def _decoded(body: bytes, kind: type[T]) -> T:
    """The JSON as that type. Decode errors that msgspec does not raise itself become RequestErrors."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (UnicodeDecodeError, RecursionError) as problem:
        raise _no_json(problem) from problem


def _no_json(problem: Exception) -> RequestError:
    return RequestError(f"the body is not valid JSON: {problem}", code="invalid_json")


def _without_half_pairs(body: bytes) -> bytes:
    try:
        return json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError) as problem:
        raise _no_json(problem) from problem
