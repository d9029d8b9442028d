"""The families of answer formats, and how a model's template reveals its family."""

from __future__ import annotations

import contextlib
from enum import StrEnum

from openclaw_rl.core.message import Json, Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.errors import RequestError
from openclaw_rl.render.template import ChatTemplate

_TOOL = Tool("probed_name", "A probe.", {"type": "object", "properties": {"key": {"type": "string"}}})
_CALL = ToolCall("probe0000", "probed_name", '{"key": "value"}')


THINK_MARKS = ("<think>", "[THINK]")


class Family(StrEnum):
    """Formats of thinking and tool calls that we can read; a new one is a file here and a line in `_MARKS`."""

    HERMES = "hermes"
    QWEN_CODER = "qwen-coder"
    LLAMA = "llama"
    DEEPSEEK = "deepseek"
    GLM = "glm"
    KIMI = "kimi"
    MISTRAL = "mistral"
    HARMONY = "harmony"
    PLAIN = "plain"


# The marks of each family; the first that fits counts. A line fits if all its marks are in the written text.
_MARKS: tuple[tuple[Family, tuple[str, ...]], ...] = (
    (Family.HARMONY, ("<|channel|>", "<|message|>")),
    (Family.KIMI, ("<|tool_calls_section_begin|>",)),
    (Family.DEEPSEEK, ("<｜tool▁calls▁begin｜>",)),
    (Family.MISTRAL, ("[TOOL_CALLS]",)),
    (Family.GLM, ("<arg_key>",)),
    (Family.QWEN_CODER, ("<tool_call>", "<function=")),
    (Family.HERMES, ("<tool_call>",)),
    (Family.LLAMA, ("<|start_header_id|>", '"parameters": {')),
    (Family.LLAMA, ("<|python_tag|>",)),
    (Family.HERMES, ("<think>",)),
)


def family_of(template: ChatTemplate) -> Family | None:
    """The format in which the template itself writes a reply that thinks and calls a tool, or asks for one.

    If the template has no calls, as for some reasoning models, the tokenizer's own marks decide. None if
    neither has any.
    """
    texts = _written(template)
    for family, marks in _MARKS:
        if any(all(mark in text for mark in marks) for text in texts):
            return family
    added = {item.content for item in template.tokenizer.get_added_tokens_decoder().values()}
    for family, marks in _MARKS:
        if family is not Family.HERMES and all(
            mark in added for mark in marks
        ):  # Hermes' marks are in many vocabularies
            return family
    return None


def opens_thinking(template: ChatTemplate) -> bool:
    """Whether the template opens the thinking of an answer if it is asked for: the model does not do so itself."""
    options: dict[str, Json] = {"enable_thinking": True, "thinking": True}
    try:
        text = template.text([message(Role.USER, "asked")], (), generation_prompt=True, options=options)
    except RequestError:
        return False
    return text.rstrip().endswith(THINK_MARKS)


def writes_fences(template: ChatTemplate) -> bool:
    """Whether calls are in a fence, as the older of DeepSeek's templates write them."""
    return any("```json" in text for text in _written(template))


def _written(template: ChatTemplate) -> list[str]:
    asked = message(Role.USER, "asked")
    called = Message(Role.ASSISTANT, (), reasoning="thought", tool_calls=(_CALL,))
    thought = Message(Role.ASSISTANT, (TextPart("text"),), reasoning="thought")
    result = Message(Role.TOOL, (TextPart("done"),), tool_call_id=_CALL.id, name=_CALL.name)
    found: list[str] = []
    for talk, tools in (
        ([asked, called, result], (_TOOL,)),
        ([asked, called], ()),
        ([asked, thought], ()),
        ([asked], (_TOOL,)),
        ([asked], ()),
    ):
        with contextlib.suppress(RequestError):  # a template without tools may refuse them
            found.append(template.text(talk, tools, generation_prompt=True))
    return found
