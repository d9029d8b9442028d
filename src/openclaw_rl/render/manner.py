"""In which form a template takes thinking and calls, found out by trying."""

from __future__ import annotations

from dataclasses import replace

from openclaw_rl.core.message import Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.errors import RequestError
from openclaw_rl.render.template import ChatTemplate, TemplateConventions

_TOOL = Tool("probe", "A probe.", {"type": "object", "properties": {}})
_CALL = ToolCall("probe0000", "probed_name", '{"probed_key": "probed_value"}')
_MANNERS = [
    TemplateConventions(is_content_none=is_none, are_arguments_text=are_text)
    for are_text in (False, True)
    for is_none in (False, True)
]


def settled(template: ChatTemplate) -> ChatTemplate:
    """The template in the first manner in which it writes calls and thinking whole; as it was where none does."""
    for manner in _MANNERS:
        tried = replace(template, manner=manner)
        if _writes_call(tried):
            return _with_thinking(tried)
    return _with_thinking(template)


def _writes_call(template: ChatTemplate) -> bool:
    """Whether name and arguments are in the text, and neither the word None nor arguments as Python writes them."""
    text = _written(template, Message(Role.ASSISTANT, (), tool_calls=(_CALL,)))
    if text is None or _CALL.name not in text or "None" in text:
        return False
    return "probed_value" in text and "'probed_key'" not in text


def _with_thinking(template: ChatTemplate) -> ChatTemplate:
    replies = [
        Message(Role.ASSISTANT, (), reasoning="probed thought", tool_calls=(_CALL,)),
        Message(Role.ASSISTANT, (TextPart("said"),), reasoning="probed thought"),
    ]
    for field in ("reasoning_content", "thinking", "reasoning"):
        tried = replace(template, manner=replace(template.manner, thinking=field))
        if any("probed thought" in (_written(tried, reply) or "") for reply in replies):
            return tried
    return template


def _written(template: ChatTemplate, reply: Message) -> str | None:
    """The reply as the template writes it after a question, its call answered."""
    results = [
        Message(Role.TOOL, (TextPart("done"),), tool_call_id=call.id, name=call.name) for call in reply.tool_calls
    ]
    talk = [message(Role.USER, "asked"), reply, *results]
    try:
        return template.text(talk, (_TOOL,) if results else (), generation_prompt=bool(results))
    except RequestError:
        return None
