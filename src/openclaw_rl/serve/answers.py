"""The answers to a request as they grow: the tokens, the part that the client may see, and how each ended; and what an
answer carries besides its text: the ids of turns, headers, and log-probabilities.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from openclaw_rl.core.completion import Completion, Finish, SampledToken, Span, SpanKind, completion_of
from openclaw_rl.core.message import Json, Message, TextPart
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.render.encoding import TokenBytes
from openclaw_rl.render.parsers import CallDelta, ReplyDelta, StreamParser, TextDelta

_PREFIXES = ("chatcmpl-", "cmpl-", "resp_", "msg_")
TURN = "x-openclaw-rl-turn"
VERSION = "x-openclaw-rl-version"
IGNORED = "x-openclaw-rl-ignored"
PLACEHOLDERS = "x-openclaw-rl-placeholders"
_OTHERS = re.compile(r"[^A-Za-z0-9_.\-]+")
_MOST_CHARS = 64  # of a name; clients choose them
_MOST_NAMES = 32
_encode = msgspec.json.Encoder().encode
LEAST_LOGP = -9999.0  # JSON has no minus infinity


class Choice:
    """One answer. Stop texts are looked for in what the model says, not in its thinking or its calls."""

    def __init__(
        self, index: int, turn: str, parser: StreamParser, stops: Sequence[str], *, has_one_call: bool = False
    ) -> None:
        self.index = index
        self.turn = turn
        self.sampled: list[SampledToken] = []
        self.finish: Finish | None = None
        self.cached = 0
        self._parser = parser
        self._stops = StopFilter(stops) if stops else None
        self._has_one_call = has_one_call
        self._said: list[str] = []
        self._calls_shown = 0
        self._has_ended = False

    @property
    def spans(self) -> tuple[Span, ...]:
        """What its tokens are."""
        return self._parser.spans()

    @property
    def stop_met(self) -> str | None:
        """The stop text that ended the answer."""
        return None if self._stops is None else self._stops.met

    def take(self, token: SampledToken) -> list[ReplyDelta]:
        """What this token adds for the client to see."""
        self.sampled.append(token)
        deltas = self._parser.feed((token.token,))
        if token.finish is not None:
            self.finish = token.finish
        elif self._has_one_call and self._parser.calls_ended:
            self.finish = Finish.STOP
        return deltas if self._stops is None or not deltas else self._until_stop(deltas, self._stops)

    def end(self) -> list[ReplyDelta]:
        """The text that was held back, once the last token was taken."""
        self._has_ended = True
        deltas = self._parser.finish()
        if self._stops is None:
            return deltas
        shown = self._until_stop(deltas, self._stops)
        return [*shown, *self._shown(self._stops.finish())]

    def cancel(self) -> None:
        """The client went away; an answer that was complete by then stays complete."""
        if self.finish is None:
            self.finish = Finish.CANCELLED
        if not self._has_ended:
            self.end()

    def completion(self, version: PolicyVersion) -> Completion:
        """The tokens as sampled, those after a stop text included."""
        assert self.finish is not None
        return replace(completion_of(self.sampled, version, self.finish), spans=self.spans)

    def reply(self) -> Message:
        """The answer as the client saw it."""
        message = self._parser.message()
        if self._stops is None:
            return message
        text = "".join(self._said)
        calls = message.tool_calls[: self._calls_shown]
        return replace(message, content=(TextPart(text),) if text else (), tool_calls=calls)

    def count(self, kind: SpanKind) -> int:
        """How many of the tokens are of this kind."""
        return sum(span.stop - span.start for span in self.spans if span.kind is kind)

    def said(self) -> list[SampledToken]:
        """The tokens of its text, those after a stop text included."""
        return [
            token for span in self.spans if span.kind is SpanKind.TEXT for token in self.sampled[span.start : span.stop]
        ]

    @property
    def reason(self) -> str:
        """`finish_reason` as OpenAI's clients know it."""
        if self.finish is Finish.STOP and self.reply().tool_calls:
            return "tool_calls"
        return "length" if self.finish is Finish.LENGTH else "stop"

    def _until_stop(self, deltas: Sequence[ReplyDelta], stops: StopFilter) -> list[ReplyDelta]:
        shown: list[ReplyDelta] = []
        for delta in deltas:
            if stops.is_met:
                break
            if isinstance(delta, TextDelta):
                shown.extend(self._shown(stops.feed(delta.text)))
            else:  # no stop text reaches across a call
                shown.extend(self._shown(stops.finish()))
                shown.append(delta)
                self._calls_shown += isinstance(delta, CallDelta)
        if stops.is_met:
            self.finish = Finish.STOP
        return shown

    def _shown(self, text: str) -> list[ReplyDelta]:
        if not text:
            return []
        self._said.append(text)
        return [TextDelta(text)]


class StopFilter:
    """Passes text through until a stop text appears, and holds back what might become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.met: str | None = None

    @property
    def is_met(self) -> bool:
        """Whether a stop text has appeared; `met` is which."""
        return self.met is not None

    def feed(self, text: str) -> str:
        """The text that may be given out now."""
        if not self._stops:
            return text
        if self.is_met:
            return ""
        self._held += text
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            at, self.met = min(found)
            ready, self._held = self._held[:at], ""
            return ready
        keep = max(_overlap(self._held, stop) for stop in self._stops)
        cut = len(self._held) - keep
        ready, self._held = self._held[:cut], self._held[cut:]
        return ready

    def finish(self) -> str:
        """The text that was held back and did not become a stop text."""
        rest, self._held = self._held, ""
        return rest


def new_turn_id() -> str:
    """32 hex digits that sort by time and never repeat: the layout of UUID version 7.

    48 bits of milliseconds, version and variant, 74 random bits.
    """
    milliseconds = time.time_ns() // 1_000_000
    chance = int.from_bytes(os.urandom(10), "big")
    high, low = chance >> 62 & 0xFFF, chance & (1 << 62) - 1
    return f"{milliseconds:012x}{0x7000 | high:04x}{0x8000000000000000 | low:016x}"


def turn_of_response(response: str) -> str:
    """The turn that a response id names, whichever API gave it out."""
    for prefix in _PREFIXES:
        if response.startswith(prefix):
            return response.removeprefix(prefix)
    return response


def note_headers(ignored: Sequence[str], placeholders: Mapping[str, int]) -> dict[str, str]:
    """Headers that list the ignored parameters and the placeholders in the prompt; none if there are none."""
    found: dict[str, str] = {}
    if ignored:
        found[IGNORED] = _listed([_safe(name) for name in dict.fromkeys(ignored)])
    if placeholders:
        found[PLACEHOLDERS] = _listed([f"{_safe(kind)}={count}" for kind, count in sorted(placeholders.items())])
    return found


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f", and {more} more" if more > 0 else "")


def _safe(name: str) -> str:
    return _OTHERS.sub("_", name)[:_MOST_CHARS] or "_"


def token_entries(sampled: Sequence[SampledToken], table: TokenBytes) -> list[Json]:
    """Log-probabilities as OpenAI's clients know them, of the model at temperature 1: one entry for each token.

    Tokens of the format's own ending have no entry.
    """
    return [
        {
            **_entry(item.token, item.logp, table),
            "top_logprobs": [_entry(token, logp, table) for token, logp in item.top],
        }
        for item in sampled
        if item.finish is None or item.token not in table.special
    ]


def entries_json(sampled: Sequence[SampledToken], table: TokenBytes) -> bytes:
    """`token_entries` as JSON, without the list's brackets: made for each token of a stream."""
    return b",".join(
        [
            b'{%b,"top_logprobs":[%b]}'
            % (
                _entry_json(item.token, item.logp, table),
                b",".join([b"{%b}" % _entry_json(token, logp, table) for token, logp in item.top]) if item.top else b"",
            )
            for item in sampled
            if item.finish is None or item.token not in table.special
        ]
    )


def _entry_json(token: int, logp: float, table: TokenBytes) -> bytes:
    text, held = table.as_json(token)
    return b'"token":%b,"logprob":%b,"bytes":%b' % (text, _encode(max(logp, LEAST_LOGP)), held)


def _entry(token: int, logp: float, table: TokenBytes) -> dict[str, Json]:
    held = table(token)
    return {"token": held.decode("utf-8", "replace"), "logprob": max(logp, LEAST_LOGP), "bytes": list(held)}


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text begin the stop text."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
