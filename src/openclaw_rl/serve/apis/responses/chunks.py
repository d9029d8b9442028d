"""The events of a streamed response of OpenAI's Responses API: items that open, grow and close, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.message import Json, ToolCall
from openclaw_rl.errors import ContextError
from openclaw_rl.render.encoding import TokenBytes
from openclaw_rl.render.parsers import ArgumentsDelta, CallDelta, ReasoningDelta, ReplyDelta, TextDelta
from openclaw_rl.serve.answers import new_turn_id, token_entries
from openclaw_rl.serve.apis.responses.items import (
    COMPLETED,
    IN_PROGRESS,
    INCOMPLETE,
    ItemNames,
    begun,
    call_item,
    ended,
    head_of,
    message_item,
    reasoning_item,
    shows_summary,
    text_part,
)
from openclaw_rl.serve.apis.responses.tools import shape_of
from openclaw_rl.serve.failures import context_problem, error_body, told_of
from openclaw_rl.serve.generate import Generation, GenerationRequest

_encode = msgspec.json.Encoder().encode
_REASONING, _MESSAGE, _CALL = "reasoning", "message", "function_call"


class ResponseChunks:
    """Builds the events of one response; with `table` its text carries log-probabilities."""

    def __init__(self, generation: Generation, table: TokenBytes | None) -> None:
        self._generation = generation
        self._table = table
        self._names = ItemNames(generation.choices[0].turn)
        self._as_summary = shows_summary(generation.asked.shown)
        self._sequence = 2  # of the next event: tokens may come before the first two are asked for
        self._output: list[Json] = []
        self._opened = {_REASONING: 0, _MESSAGE: 0, _CALL: 0}
        self._open = ""  # the kind of the item that is open
        self._name = ""  # its id
        self._pieces: list[str] = []  # its text
        self._shapes = generation.asked.shown.get("tool_shapes")
        self._call = ToolCall("", "", "")  # without its arguments
        self._number = 0  # of that call
        self._head = b""  # of its deltas: the part that is the same in each
        self._weighed = 0  # tokens of the text whose log-probabilities were sent
        self._logprobs: list[Json] = []  # those of the open message

    def first(self, index: int) -> bytes:
        """The response begins."""
        body = begun(self._generation)
        return _event("response.created", 0, {"response": body}) + _event("response.in_progress", 1, {"response": body})

    def event(self, index: int, deltas: Sequence[ReplyDelta], sampled: Sequence[SampledToken]) -> bytes:
        """What one token added."""
        return b"".join(self._piece(delta) for delta in deltas)

    def last(self, index: int, reason: str) -> bytes:
        """The item that is still open closes."""
        return self._closed(INCOMPLETE if reason == "length" else COMPLETED)

    def end(self, generation: Generation) -> bytes:
        """The whole response, once it is in the store."""
        body = ended(generation, self._output)
        return self._event(f"response.{body['status']}", {"response": body})

    def problem(self, body: bytes) -> bytes:
        """An error after the status was sent, and the response that failed."""
        code, message, param = told_of(body)
        failed = {**begun(self._generation), "status": "failed", "output": self._output}
        failed["error"] = {"code": "server_error", "message": message}
        error = self._event("error", {"code": code, "message": message, "param": param})
        return error + self._event("response.failed", {"response": failed})

    def _piece(self, delta: ReplyDelta) -> bytes:
        match delta:
            case TextDelta(text):
                start = b"" if self._open == _MESSAGE else self._message_begins()
                return start + self._grown(text, self._weigh())
            case ReasoningDelta(text):
                start = b"" if self._open == _REASONING else self._reasoning_begins()
                return start + self._grown(text)
            case CallDelta():
                return self._call_begins(delta)
            case ArgumentsDelta():
                if shape_of(self._call.name, self._shapes)[2]:  # its text is inside JSON until the call has ended
                    self._pieces.append(delta.text)
                    return b""
                return self._grown(delta.text)

    def _message_begins(self) -> bytes:
        name = self._names.message(self._opened[_MESSAGE])
        start = self._begins(_MESSAGE, name, message_item(name, [], IN_PROGRESS))
        self._head = self._delta("response.output_text.delta", '"content_index":0')
        return start + self._event("response.content_part.added", self._at(content_index=0, part=text_part("", [])))

    def _reasoning_begins(self) -> bytes:
        name = self._names.reasoning(self._opened[_REASONING])
        start = self._begins(_REASONING, name, reasoning_item(name, "", IN_PROGRESS, as_summary=self._as_summary))
        if self._as_summary:
            self._head = self._delta("response.reasoning_summary_text.delta", '"summary_index":0')
            part: Json = {"type": "summary_text", "text": ""}
            return start + self._event("response.reasoning_summary_part.added", self._at(summary_index=0, part=part))
        self._head = self._delta("response.reasoning_text.delta", '"content_index":0')
        part = {"type": "reasoning_text", "text": ""}
        return start + self._event("response.content_part.added", self._at(content_index=0, part=part))

    def _call_begins(self, delta: CallDelta) -> bytes:
        call = ToolCall(delta.id, delta.name, "")
        item = call_item(self._names, delta.index, call, IN_PROGRESS, shapes=self._shapes)
        start = self._begins(_CALL, str(item["id"]), item)
        self._call, self._number = call, delta.index
        self._head = self._delta("response.function_call_arguments.delta", "")
        return start

    def _begins(self, kind: str, name: str, item: dict[str, Json]) -> bytes:
        before = self._closed(COMPLETED)
        self._open, self._name, self._pieces, self._logprobs = kind, name, [], []
        self._opened[kind] += 1
        return before + self._event("response.output_item.added", {"output_index": len(self._output), "item": item})

    def _closed(self, status: str) -> bytes:
        """The complete open item, and its end."""
        if not self._open:
            return b""
        kind, text, self._open = self._open, "".join(self._pieces), ""
        if kind == _CALL:
            item = call_item(
                self._names, self._number, replace(self._call, arguments=text), status, shapes=self._shapes
            )
            done = self._called(item)
        elif kind == _MESSAGE:
            part = text_part(text, self._logprobs)
            item = message_item(self._name, [part], status)
            at = self._at(content_index=0)
            done = self._event("response.output_text.done", {**at, "text": text, "logprobs": self._logprobs})
            done += self._event("response.content_part.done", {**at, "part": part})
        else:
            item = reasoning_item(self._name, text, status, as_summary=self._as_summary)
            done = self._thought(text)
        ending: dict[str, Json] = {"output_index": len(self._output), "item": item}
        self._output.append(item)
        return done + self._event("response.output_item.done", ending)

    def _called(self, item: dict[str, Json]) -> bytes:
        """The end of a call's arguments; the text of a custom tool is sent in one piece."""
        if item["type"] == "function_call":
            arguments = self._at(arguments=item["arguments"], name=item["name"])
            return self._event("response.function_call_arguments.done", arguments)
        grown = self._event("response.custom_tool_call_input.delta", self._at(delta=item["input"]))
        return grown + self._event("response.custom_tool_call_input.done", self._at(input=item["input"]))

    def _thought(self, text: str) -> bytes:
        if self._as_summary:
            at, part = self._at(summary_index=0), {"type": "summary_text", "text": text}
            done = self._event("response.reasoning_summary_text.done", {**at, "text": text})
            return done + self._event("response.reasoning_summary_part.done", {**at, "part": {**part}})
        at, part = self._at(content_index=0), {"type": "reasoning_text", "text": text}
        done = self._event("response.reasoning_text.done", {**at, "text": text})
        return done + self._event("response.content_part.done", {**at, "part": {**part}})

    def _grown(self, text: str, tail: bytes = b"") -> bytes:
        self._pieces.append(text)
        self._sequence += 1
        return b'%b%b%b,"sequence_number":%d}\n\n' % (self._head, _encode(text), tail, self._sequence - 1)

    def _weigh(self) -> bytes:
        """The log-probabilities that were not sent yet, as the end of a delta."""
        if self._table is None:
            return b',"logprobs":[]'
        said = self._generation.choices[0].said()
        entries = token_entries(said[self._weighed :], self._table)
        self._weighed = len(said)
        self._logprobs.extend(entries)
        return b',"logprobs":' + _encode(entries)

    def _delta(self, kind: str, where: str) -> bytes:
        at = f'"item_id":"{self._name}","output_index":{len(self._output)},{where + "," if where else ""}"delta":'
        return f'event: {kind}\ndata: {{"type":"{kind}",{at}'.encode()

    def _at(self, **more: Json) -> dict[str, Json]:
        return {"item_id": self._name, "output_index": len(self._output), **more}

    def _event(self, kind: str, body: dict[str, Json]) -> bytes:
        self._sequence += 1
        return _event(kind, self._sequence - 1, body)


def refused_stream(asked: GenerationRequest, problem: ContextError, at_s: float) -> bytes:
    """The stream of a request whose prompt is too long, as OpenAI's servers refuse it; Codex reads only this."""
    code, message, param = told_of(error_body(context_problem(problem))[1])
    begun: dict[str, Json] = {**head_of(new_turn_id(), asked), "created_at": int(at_s)}
    failed: dict[str, Json] = {**begun, "status": "failed", "error": {"code": code, "message": message}}
    error: Json = {"type": "invalid_request_error", "code": code, "message": message, "param": param}
    return (
        _event("response.created", 0, {"response": begun})
        + _event("error", 1, {"code": code, "message": message, "param": param, "error": error})
        + _event("response.failed", 2, {"response": failed})
    )


def _event(kind: str, number: int, body: dict[str, Json]) -> bytes:
    event = {"type": kind, "sequence_number": number, **body}
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode(event))
