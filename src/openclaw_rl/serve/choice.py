"""One of a request's answers as it grows: its tokens, the part that the client may see, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openclaw_rl.core.completion import Completion, Finish, SampledToken, Span, SpanKind, completion_of
from openclaw_rl.core.message import Message, TextPart
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.render.parsers import CallDelta, ReplyDelta, StreamParser, TextDelta


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


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text begin the stop text."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
