"""The events of a streamed chat answer. All that does not change from one to the next is made once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.message import Json
from openclaw_rl.render.detokenise import TokenBytes
from openclaw_rl.render.parsers import ArgumentsDelta, CallDelta, ReasoningDelta, ReplyDelta, TextDelta
from openclaw_rl.serve.generate import Generation
from openclaw_rl.serve.logprobs import token_entries
from openclaw_rl.serve.outbox import DONE

_encode = msgspec.json.Encoder().encode


class ChatChunks:
    """Builds the events; with `table` they carry log-probabilities."""

    def __init__(
        self, response_id: str, created: int, model: str, *, includes_usage: bool, table: TokenBytes | None
    ) -> None:
        self._has_usage = includes_usage
        self._table = table
        self._head = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,' % (
            _encode(response_id),
            created,
            _encode(model),
        )
        self._usage = b',"usage":null' if includes_usage else b""
        self._tail = b',"logprobs":null,"finish_reason":null}]%b}\n\n' % self._usage
        self._starts: dict[int, bytes] = {}

    def first(self, index: int) -> bytes:
        """The answer begins: the role, before any token."""
        return b'%b{"role":"assistant","content":""}%b' % (self._start(index), self._tail)

    def event(self, index: int, deltas: Sequence[ReplyDelta], sampled: Sequence[SampledToken]) -> bytes:
        """What one token added; empty where there is nothing to tell."""
        if self._table is not None:
            entries = token_entries(sampled, self._table)
            if not entries and not deltas:
                return b""
            tail = b',"logprobs":%b,"finish_reason":null}]%b}\n\n' % (
                _encode({"content": entries, "refusal": None}) if entries else b"null",
                self._usage,
            )
            return self._start(index) + _encode(_delta(deltas)) + tail
        if len(deltas) == 1 and isinstance(deltas[0], TextDelta):
            return b'%b{"content":%b}%b' % (self._start(index), _encode(deltas[0].text), self._tail)
        return self._start(index) + _encode(_delta(deltas)) + self._tail if deltas else b""

    def last(self, index: int, reason: str) -> bytes:
        """How the answer ended."""
        tail = b',"logprobs":null,"finish_reason":%b}]%b}\n\n' % (_encode(reason), self._usage)
        return self._start(index) + b"{}" + tail

    def end(self, generation: Generation) -> bytes:
        """What the request used where that was asked for, in an event with no choices; then the mark of the end."""
        if not self._has_usage:
            return DONE
        return b'%b"choices":[],"usage":%b}\n\n%b' % (self._head, _encode(usage_json(generation)), DONE)

    def problem(self, body: bytes) -> bytes:
        """An error after the status has gone out; no mark of the end follows, so clients see that it was cut."""
        return b"data: %b\n\n" % body

    def _start(self, index: int) -> bytes:
        found = self._starts.get(index)
        if found is None:
            found = self._starts[index] = b'%b"choices":[{"index":%d,"delta":' % (self._head, index)
        return found


def usage_json(generation: Generation) -> dict[str, Json]:
    """Tokens read and sampled, in OpenAI's shape."""
    read, sampled = len(generation.prompt), generation.sampled_tokens
    return {
        "prompt_tokens": read,
        "completion_tokens": sampled,
        "total_tokens": read + sampled,
        "prompt_tokens_details": {"cached_tokens": generation.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": generation.reasoning_tokens},
    }


def _delta(deltas: Sequence[ReplyDelta]) -> dict[str, Json]:
    """All that one token added as one object."""
    body: dict[str, Json] = {}
    said = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    thought = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    calls: list[Json] = []
    for delta in deltas:
        if isinstance(delta, CallDelta):
            function: Json = {"name": delta.name, "arguments": ""}
            calls.append({"index": delta.index, "id": delta.id, "type": "function", "function": function})
        elif isinstance(delta, ArgumentsDelta):
            calls.append({"index": delta.index, "function": {"arguments": delta.text}})
    if thought:
        body["reasoning_content"] = thought
    if said:
        body["content"] = said
    if calls:
        body["tool_calls"] = calls
    return body
