"""How clients change a served reply before they send it back, and a check of prompts made from it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from openclaw_rl.core.message import Json, Message, Role, TextPart, ToolCall
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.turn import Turn
from openclaw_rl.render.encoding import TokenBytes
from openclaw_rl.render.shape import read_key

_EMPTY_THINK = re.compile(r"<think>\s*(?:</think>\s*)?\Z")


class ThinkingTreatment(StrEnum):
    """What clients do with a reply's thinking."""

    KEPT = "kept"
    DROPPED = "dropped"
    MOVED = "moved"  # into the text, between marks


@dataclass(frozen=True, slots=True)
class Rewriting:
    """One client's changes; OpenClaw's are `Rewriting()` with thinking kept."""

    thinking: ThinkingTreatment = ThinkingTreatment.KEPT
    trims: bool = True
    writes_arguments: bool = True
    changes_ids: bool = True

    def reply(self, served: Message) -> Message:
        """The reply as this client sends it back."""
        text = served.text.strip() if self.trims else served.text
        if self.thinking is ThinkingTreatment.MOVED and served.reasoning:
            text = f"<think>\n{served.reasoning.strip()}\n</think>\n\n{text}"
        return Message(
            Role.ASSISTANT,
            (TextPart(text),) if text else (),
            served.reasoning if self.thinking is ThinkingTreatment.KEPT else None,
            tuple(self._call(call) for call in served.tool_calls),
        )

    def id(self, call_id: str) -> str:
        """A call's id as this client sends it back: OpenClaw's has only letters and digits."""
        return re.sub(r"[^0-9A-Za-z]", "", call_id) if self.changes_ids else call_id

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


def claimed(prompt: Prompt) -> frozenset[int]:
    """The places of the replies that the prompt claims to contain as sampled."""
    keys = [read_key(segment.key) for segment in prompt.segments]
    return frozenset(key.run[0] for key in keys if key is not None and key.sampled is not None)


def is_honest(prompt: Prompt, told: str, replies: Mapping[int, Turn], table: TokenBytes) -> bool:
    """Whether the prompt is what the template says (`told`), but for replies that are in it as they were sampled.

    `replies` are the served turns by their reply's place in the conversation, and `told` is rendered with those replies
    as served that the prompt claims to contain (`claimed`). Each such segment must contain that turn's ids. What was
    sampled may differ from the template's in white space and JSON notation; its words, thinking and calls
    must be the same.
    """
    gaps: list[str] = []
    held: list[Message] = []
    start = 0
    for segment in prompt.segments:
        key = read_key(segment.key)
        if key is None or key.sampled is None:
            continue
        turn = replies.get(key.run[0])
        at = segment.start + key.sampled[0]
        if turn is None or not _stands_at(prompt.tokens, turn.completion.tokens, at, segment.stop - key.sampled[1]):
            return False
        gaps.append(_EMPTY_THINK.sub("", table.text(prompt.tokens[start:at])))
        held.append(turn.reply)
        start = segment.stop - key.sampled[1]
    gaps.append(table.text(prompt.tokens[start:]))
    match = re.compile("(.*?)".join(re.escape(gap) for gap in gaps), re.DOTALL).fullmatch(told)
    return match is not None and all(_says(body, reply) for body, reply in zip(match.groups(), held, strict=True))


def _stands_at(tokens: Sequence[int], sampled: Sequence[int], start: int, stop: int) -> bool:
    """Whether these are the sampled ids; the last may belong to the next block, if that begins with the same mark."""
    if tuple(tokens[start:stop]) == tuple(sampled):
        return True
    return tuple(tokens[start : stop + 1]) == tuple(sampled) and stop - start == len(sampled) - 1


def _says(body: str, reply: Message) -> bool:
    words = [reply.reasoning or "", reply.text, *(call.name for call in reply.tool_calls)]
    return all(word.strip() in body for word in words)


def _as_double(value: Json) -> Json:
    """Numbers as written by a client that knows only doubles."""
    if isinstance(value, dict):
        return {key: _as_double(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_as_double(held) for held in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
