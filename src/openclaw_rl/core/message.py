"""A message in a form for all APIs and templates, and the tools of a request."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
MOST_DEPTH = 128  # far beyond any intended schema or arguments; Python's recursion breaks near 1000
_PIECES = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


class Role(StrEnum):
    """The author of a message. A `developer` message is a system message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text as sent, never trimmed."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image by its data or file URL."""

    url: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call made by a model. `arguments` is the JSON text as the model or the client wrote it."""

    id: str
    name: str
    arguments: str

    def parsed(self) -> Json:
        """The arguments as data, or the text itself if it is not JSON, or is nested too deeply."""
        if is_too_deep(self.arguments):
            return self.arguments
        try:
            value: Json = json.loads(self.arguments)
        except ValueError:
            return self.arguments
        return value


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Json]

    def as_json(self) -> dict[str, Json]:
        """The tool in OpenAI's shape, which is what chat templates expect."""
        function: dict[str, Json] = {"name": self.name, "description": self.description}
        function["parameters"] = dict(self.parameters)
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    `reasoning` is the model's thinking before the text, `tool_call_id` names the call a tool message answers, and
    `is_error` is the client's own report that this call failed.
    """

    role: Role
    content: tuple[TextPart | ImagePart, ...] = ()
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool = False

    def __post_init__(self) -> None:
        if self.tool_calls and self.role is not Role.ASSISTANT:
            raise ValueError(f"a {self.role} message cannot make tool calls")

    @property
    def text(self) -> str:
        """The text parts, joined unchanged."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def has_image(self) -> bool:
        """Whether any part is an image."""
        return any(isinstance(part, ImagePart) for part in self.content)

    def with_text(self, text: str) -> Message:
        """The same message with its text replaced; images stay, after the text."""
        images = tuple(part for part in self.content if isinstance(part, ImagePart))
        return replace(self, content=(TextPart(text), *images))

    def as_json(self) -> dict[str, Json]:
        """The message in OpenAI's shape; a client's order of keys is lost."""
        body: dict[str, Json] = {"role": self.role.value, "content": self._content_json()}
        if self.reasoning is not None:
            body["reasoning_content"] = self.reasoning
        if self.tool_calls:
            body["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            body["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            body["name"] = self.name
        if self.is_error:
            body["is_error"] = True
        return body

    def _content_json(self) -> Json:
        if not self.has_image:
            return self.text if self.content else None
        return [
            {"type": "text", "text": part.text}
            if isinstance(part, TextPart)
            else {"type": "image_url", "image_url": {"url": part.url}}
            for part in self.content
        ]


def message(role: Role | str, text: str) -> Message:
    """A plain text message."""
    return Message(Role(role), (TextPart(text),))


def from_json(body: Mapping[str, Json]) -> Message:
    """The message `Message.as_json` wrote. For stored and trusted JSON; requests are validated in `serve`."""
    calls = body.get("tool_calls") or []
    assert isinstance(calls, list)
    return Message(
        Role(str(body["role"])),
        _parts(body.get("content")),
        reasoning=_text_or_none(body.get("reasoning_content")),
        tool_calls=tuple(_call(call) for call in calls),
        tool_call_id=_text_or_none(body.get("tool_call_id")),
        name=_text_or_none(body.get("name")),
        is_error=body.get("is_error") is True,
    )


def digest_of(messages: Sequence[Message]) -> str:
    """A short digest of messages as sent; equal messages have equal digests."""
    body = json.dumps([item.as_json() for item in messages], ensure_ascii=False, sort_keys=True)
    return hashlib.blake2b(body.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _parts(content: Json) -> tuple[TextPart | ImagePart, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(content),)
    assert isinstance(content, list)
    parts: list[TextPart | ImagePart] = []
    for part in content:
        assert isinstance(part, dict)
        if part["type"] == "text":
            parts.append(TextPart(str(part["text"])))
        else:
            image = part["image_url"]
            assert isinstance(image, dict)
            parts.append(ImagePart(str(image["url"])))
    return tuple(parts)


def _call(call: Json) -> ToolCall:
    assert isinstance(call, dict)
    function = call["function"]
    assert isinstance(function, dict)
    return ToolCall(str(call["id"]), str(function["name"]), str(function["arguments"]))


def json_list(value: Json) -> list[Json]:
    """The list; empty if it is not a list."""
    return value if isinstance(value, list) else []


def _text_or_none(value: Json) -> str | None:
    return None if value is None else str(value)


def is_too_deep(text: str) -> bool:
    """Whether the JSON text opens more than MOST_DEPTH lists and objects inside one another."""
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return False
    depth = 0
    for found in _PIECES.finditer(text):
        piece = found[0]
        if piece in "[{":
            depth += 1
            if depth > MOST_DEPTH:
                return True
        elif piece in "]}":
            depth -= 1
    return False
