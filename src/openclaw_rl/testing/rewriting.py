"""What clients do to a served reply before they send it back, and whether a prompt made of it is honest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from openclaw_rl.core.message import Json, Message, Role, TextPart, ToolCall
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.turn import Turn
from openclaw_rl.render.detokenise import TokenBytes

_EMPTY_THINK = re.compile(r"<think>\s*(?:</think>\s*)?\Z")


class Thinking(StrEnum):
    """What becomes of a reply's thinking."""

    KEPT = "kept"
    DROPPED = "dropped"
    MOVED = "moved"  # into the text, between marks


@dataclass(frozen=True, slots=True)
class Rewriting:
    """One client's manners; what OpenClaw does is `Rewriting()` with thinking kept."""

    thinking: Thinking = Thinking.KEPT
    trims: bool = True
    writes_arguments: bool = True
    changes_ids: bool = True

    def reply(self, served: Message) -> Message:
        """The reply as this client sends it back."""
        text = served.text.strip() if self.trims else served.text
        if self.thinking is Thinking.MOVED and served.reasoning:
            text = f"<think>\n{served.reasoning.strip()}\n</think>\n\n{text}"
        return Message(
            Role.ASSISTANT,
            (TextPart(text),) if text else (),
            served.reasoning if self.thinking is Thinking.KEPT else None,
            tuple(self._call(call) for call in served.tool_calls),
        )

    def id(self, told: str) -> str:
        """A call's id as this client sends it back: OpenClaw's has letters and digits alone."""
        return re.sub(r"[^0-9A-Za-z]", "", told) if self.changes_ids else told

    def _call(self, call: ToolCall) -> ToolCall:
        written = call.arguments
        if self.writes_arguments and isinstance(given := call.parsed(), dict):
            written = json.dumps(_as_double(given), ensure_ascii=False, separators=(",", ":"))
        return ToolCall(self.id(call.id), call.name, written)


def served_form(messages: Sequence[Message], replies: Mapping[int, Message]) -> list[Message]:
    """The messages with each reply (by its place) as it was served, and results under the ids of its calls."""
    found: list[Message] = []
    names: dict[str | None, str] = {}
    for index, item in enumerate(messages):
        form = replies.get(index)
        if form is not None:
            names = {ours.id: own.id for ours, own in zip(item.tool_calls, form.tool_calls, strict=True)}
            found.append(form)
        elif item.role is Role.TOOL:
            found.append(replace(item, tool_call_id=names.get(item.tool_call_id, item.tool_call_id)))
        else:
            found.append(item)
    return found


def is_honest(prompt: Prompt, told: str, before: Sequence[Turn], table: TokenBytes) -> bool:
    """Whether the prompt is what the template says (`told`), but for replies that stand in it as they were sampled.

    `before` are the turns whose replies may stand in it, in order. What was sampled may differ from what the template
    writes for that reply as white space and JSON do; its words, thinking and calls must be in both.
    """
    gaps: list[str] = []
    replies: list[Message] = []
    at = start = 0
    for turn in before:
        sampled = turn.completion.tokens
        found = _place(prompt.tokens, sampled, at) if sampled else -1
        if found < 0 and len(sampled) > 1 and (found := _place(prompt.tokens, sampled[:-1], at)) >= 0:
            sampled = sampled[:-1]
        if found < 0:
            continue
        gaps.append(_EMPTY_THINK.sub("", table.text(prompt.tokens[start:found])))
        replies.append(turn.reply)
        at = start = found + len(sampled)
    gaps.append(table.text(prompt.tokens[start:]))
    pattern = "(.*?)".join(re.escape(gap) for gap in gaps)
    match = re.compile(pattern, re.DOTALL).fullmatch(told)
    return match is not None and all(_says(body, reply) for body, reply in zip(match.groups(), replies, strict=True))


def _says(body: str, reply: Message) -> bool:
    words = [reply.reasoning or "", reply.text, *(call.name for call in reply.tool_calls)]
    return all(word.strip() in body for word in words)


def _place(tokens: Sequence[int], part: Sequence[int], start: int) -> int:
    for at in range(start, len(tokens) - len(part) + 1):
        if tuple(tokens[at : at + len(part)]) == tuple(part):
            return at
    return -1


def _as_double(value: Json) -> Json:
    """Numbers as a client writes them that knows only doubles."""
    if isinstance(value, dict):
        return {key: _as_double(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_as_double(held) for held in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
