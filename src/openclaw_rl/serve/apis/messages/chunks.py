"""The events of a streamed answer of Anthropic's Messages API: blocks that open, grow and close, one after another."""

from __future__ import annotations

from collections.abc import Sequence

import jiter
import msgspec

from openclaw_rl.core.completion import Finish, SampledToken
from openclaw_rl.core.message import Json, Message, is_too_deep
from openclaw_rl.render.parsers import ArgumentsDelta, CallDelta, ReasoningDelta, ReplyDelta, TextDelta
from openclaw_rl.serve.answers import Choice
from openclaw_rl.serve.failures import as_anthropic
from openclaw_rl.serve.generate import Generation

_encode = msgspec.json.Encoder().encode
_REASONS = {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}


class MessageChunks:
    """Builds the events of one answer."""

    def __init__(self, turn: str, model: str, prompt_tokens: int) -> None:
        self._turn = turn
        self._model = model
        self._prompt_tokens = prompt_tokens
        self._index = -1
        self._open = ""  # the kind of the block that is open

    def first(self, index: int) -> bytes:
        """The message begins. How much of the prompt was reused is known only in the last event."""
        usage = _usage(self._prompt_tokens, 0, 0, 0)
        body = message_json(self._turn, self._model, [], usage)
        return _event("message_start", {"message": body}) + _event("ping", {})

    def event(self, index: int, deltas: Sequence[ReplyDelta], sampled: Sequence[SampledToken]) -> bytes:
        """What one token added."""
        return b"".join(self._piece(delta) for delta in deltas)

    def last(self, index: int, reason: str) -> bytes:
        """The block that is still open closes."""
        return self._closed()

    def end(self, generation: Generation) -> bytes:
        """Why it ended, and what it used."""
        reason, stop = ending_of(generation.choices[0])
        delta: Json = {"stop_reason": reason, "stop_sequence": stop}
        ending = _event("message_delta", {"delta": delta, "usage": usage_of(generation)})
        return ending + _event("message_stop", {})

    def problem(self, body: bytes) -> bytes:
        """An error after the status was sent."""
        return b"event: error\ndata: %b\n\n" % as_anthropic(500, body)

    def _piece(self, delta: ReplyDelta) -> bytes:
        match delta:
            case TextDelta(text):
                start = self._opened("text", {"type": "text", "text": ""})
                return start + self._grown({"type": "text_delta", "text": text})
            case ReasoningDelta(text):
                start = self._opened("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                return start + self._grown({"type": "thinking_delta", "thinking": text})
            case CallDelta():
                block: Json = {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}}
                return self._closed() + self._opened("tool_use", block)
            case ArgumentsDelta():
                return self._grown({"type": "input_json_delta", "partial_json": delta.text})

    def _opened(self, kind: str, block: Json) -> bytes:
        if self._open == kind:
            return b""
        before = self._closed()
        self._open = kind
        self._index += 1
        return before + _event("content_block_start", {"index": self._index, "content_block": block})

    def _grown(self, delta: Json) -> bytes:
        return _event("content_block_delta", {"index": self._index, "delta": delta})

    def _closed(self) -> bytes:
        if not self._open:
            return b""
        signed = self._grown({"type": "signature_delta", "signature": self._turn}) if self._open == "thinking" else b""
        self._open = ""
        return signed + _event("content_block_stop", {"index": self._index})


def message_json(turn: str, model: str, content: list[Json], usage: Json) -> dict[str, Json]:
    """A message in Anthropic's shape, not ended yet."""
    return {
        "id": f"msg_{turn}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def blocks_of(reply: Message, turn: str, finish: Finish | None) -> list[Json]:
    """A reply as blocks; thinking is signed with its turn. The input of a cut call has its complete members only."""
    found: list[Json] = []
    if reply.reasoning is not None:
        found.append({"type": "thinking", "thinking": reply.reasoning, "signature": turn})
    if reply.text:
        found.append({"type": "text", "text": reply.text})
    for call in reply.tool_calls:
        parsed = call.parsed()
        given: Json = parsed if isinstance(parsed, dict) else {"arguments": call.arguments}
        if given is not parsed and finish is Finish.LENGTH and call is reply.tool_calls[-1]:
            given = written_input(call.arguments)
        found.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
    return found


def written_input(arguments: str) -> dict[str, Json]:
    """The complete members of an object whose text was cut, as Anthropic's clients derive them from a stream."""
    if is_too_deep(arguments):
        return {}
    try:
        found: Json = jiter.from_json(arguments.encode("utf-8", "surrogatepass"), partial_mode=True)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def ending_of(choice: Choice) -> tuple[str, str | None]:
    """`stop_reason`, and the stop text that ended the answer."""
    stop = choice.stop_met
    return ("stop_sequence", stop) if stop is not None else (_REASONS[choice.reason], None)


def usage_of(generation: Generation) -> Json:
    """Tokens computed, reused and sampled."""
    cached, sampled, thought = generation.cached_tokens, generation.sampled_tokens, generation.reasoning_tokens
    return _usage(len(generation.prompt), cached, sampled, thought)


def _usage(read: int, cached: int, sampled: int, thought: int) -> Json:
    return {
        "input_tokens": read - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": sampled,
        "output_tokens_details": {"thinking_tokens": thought},
        "service_tier": "standard",
    }


def _event(kind: str, body: dict[str, Json]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind, **body}))
