"""A renderer for which each character is an id, under the rules of a real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from openclaw_rl.core.completion import Span, SpanKind
from openclaw_rl.core.hint import Hint, hinted
from openclaw_rl.core.message import Json, Message, Role, Tool, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.turn import Turn

END = ord("$")  # ends an answer, and separates messages


def ids_of(text: str) -> tuple[int, ...]:
    """One id for each character."""
    return tuple(map(ord, text))


def text_of(tokens: Sequence[int]) -> str:
    """The characters."""
    return "".join(map(chr, tokens))


def every_message(messages: Sequence[Message]) -> str:
    """The texts of all messages, each with its end."""
    return "".join(f"{item.text}{chr(END)}" for item in messages)


class LetterRenderer:
    """A prompt is `written` from its messages, one id per character; an answer that begins with `?` is unreadable.

    `options` are those of the last call.
    """

    def __init__(self, written: Callable[[Sequence[Message]], str] = every_message) -> None:
        self._written = written
        self.options: Mapping[str, Json] | None = None

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        served: Turn | None,
        *,
        options: Mapping[str, Json] | None = None,
    ) -> Prompt:
        """The ids; they begin with the served prompt and answer if the messages continue these."""
        self.options = options
        if served is not None:
            before = (*served.messages, served.reply)
            if tuple(messages[: len(before)]) == before:
                held = (*served.prompt.tokens, *served.completion.tokens)
                return Prompt((*held, *ids_of(self._written(messages[len(before) :]))), continued=len(held))
        return Prompt(ids_of(self._written(messages)))

    def hinted(self, turn: Turn, hint: Hint) -> Prompt:
        """The turn's messages with the hint where it belongs. Raises ValueError without a user message."""
        return self.reread(turn, hinted(turn.read, hint))

    def reread(self, turn: Turn, messages: Sequence[Message]) -> Prompt:
        """The ids of these messages; as served if they equal the messages of that time."""
        return turn.prompt if tuple(messages) == turn.read else Prompt(ids_of(self._written(messages)))

    def user_opening(self) -> tuple[Prompt, int] | None:
        """None: nothing comes before a user's words."""
        return None

    def decode(self, tokens: Sequence[int]) -> tuple[Message, tuple[Span, ...]]:
        """The characters without the end. Raises ValueError for unreadable answers."""
        text = text_of(tokens)
        if text.startswith("?"):
            raise ValueError("a tool call that cannot be read")
        whole = text.removesuffix(chr(END))
        spans = (Span(SpanKind.TEXT, 0, len(whole)),) if whole else ()
        marks = (Span(SpanKind.MARK, len(whole), len(text)),) if len(whole) < len(text) else ()
        return message(Role.ASSISTANT, whole), (*spans, *marks)
