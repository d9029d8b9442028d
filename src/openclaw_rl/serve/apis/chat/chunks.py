"""The events of a streamed chat answer. The parts that are the same in every event are made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.message import Json
from openclaw_rl.render.encoding import TokenBytes
from openclaw_rl.render.parsers import CallDelta, ReasoningDelta, ReplyDelta, TextDelta
from openclaw_rl.serve.answers import entries_json
from openclaw_rl.serve.generate import Generation
from openclaw_rl.serve.stream import DONE

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
        """What one token added; empty if it added nothing that is sent."""
        if self._table is not None:
            entries = entries_json(sampled, self._table)
            if not entries and not deltas:
                return b""
            if len(deltas) == 1 and isinstance(deltas[0], TextDelta):
                first, others = b'{"content":%b}' % _encode(deltas[0].text), b""
            else:
                body, *more = _bodies(deltas) or [{}]
                first, others = _encode(body), self._grown(index, more)
            held = b'{"content":[%b],"refusal":null}' % entries if entries else b"null"
            return b'%b%b,"logprobs":%b,"finish_reason":null}]%b}\n\n%b' % (
                self._start(index), first, held, self._usage, others,
            )  # fmt: skip
        if len(deltas) == 1 and isinstance(deltas[0], TextDelta):
            return b'%b{"content":%b}%b' % (self._start(index), _encode(deltas[0].text), self._tail)
        return self._grown(index, _bodies(deltas)) if deltas else b""

    def last(self, index: int, reason: str) -> bytes:
        """How the answer ended."""
        tail = b',"logprobs":null,"finish_reason":%b}]%b}\n\n' % (_encode(reason), self._usage)
        return self._start(index) + b"{}" + tail

    def end(self, generation: Generation) -> bytes:
        """The usage, if requested, in an event without choices; then the end marker."""
        if not self._has_usage:
            return DONE
        return b'%b"choices":[],"usage":%b}\n\n%b' % (self._head, _encode(usage_json(generation)), DONE)

    def problem(self, body: bytes) -> bytes:
        """An error after the status was sent; no end marker follows, so clients see that the stream was cut."""
        return b"data: %b\n\n" % body

    def _grown(self, index: int, bodies: Sequence[Mapping[str, Json]]) -> bytes:
        return b"".join(self._start(index) + _encode(body) + self._tail for body in bodies)

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


def _bodies(deltas: Sequence[ReplyDelta]) -> list[dict[str, Json]]:
    """What one token added, one object for each event.

    An event has at most one entry of one call, as in OpenAI's API: a call begins with its id, its name and no
    arguments, and its arguments follow. Some clients read only the first entry of an event.
    """
    found: list[dict[str, Json]] = []
    words: dict[str, str] = {}  # of the event that is being filled

    def put_down() -> None:
        if words:
            found.append({**words})
            words.clear()

    for delta in deltas:
        if isinstance(delta, TextDelta | ReasoningDelta):
            name = "content" if isinstance(delta, TextDelta) else "reasoning_content"
            words[name] = words.get(name, "") + delta.text
            continue
        put_down()
        entry: dict[str, Json] = {"index": delta.index}
        if isinstance(delta, CallDelta):
            entry |= {"id": delta.id, "type": "function", "function": {"name": delta.name, "arguments": ""}}
        else:
            entry["function"] = {"arguments": delta.text}
        found.append({"tool_calls": [entry]})
    put_down()
    return found
