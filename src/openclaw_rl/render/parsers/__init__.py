"""Parsers of sampled tokens: one file for each way of writing calls, which several families may share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from openclaw_rl.core.completion import Span
from openclaw_rl.core.message import Message, Tool
from openclaw_rl.render.encoding import Detokeniser, TokenBytes
from openclaw_rl.render.parsers.family import THINK_MARKS, Family, family_of, opens_thinking, writes_fences
from openclaw_rl.render.parsers.harmony import HarmonyFormat
from openclaw_rl.render.parsers.headed import deepseek, kimi
from openclaw_rl.render.parsers.llama import llama
from openclaw_rl.render.parsers.mistral import mistral, nine_letters
from openclaw_rl.render.parsers.objects import hermes
from openclaw_rl.render.parsers.plain import PlainParser
from openclaw_rl.render.parsers.reply import (
    ArgumentsDelta,
    CallDelta,
    ReasoningDelta,
    Reply,
    ReplyDelta,
    StreamParser,
    TextDelta,
)
from openclaw_rl.render.parsers.tagged import glm, qwen_coder

__all__ = [
    "ArgumentsDelta",
    "CallDelta",
    "Family",
    "ReasoningDelta",
    "ReplyDelta",
    "StreamParser",
    "TextDelta",
    "family_of",
    "opens_thinking",
    "parser_of",
    "writes_fences",
]


def parser_of(
    family: Family, table: TokenBytes, *, opening: str, call_prefix: str, tools: Sequence[Tool] | None = None
) -> StreamParser:
    """A parser for one answer; `opening` is what the template put in front of it.

    `tools` are those that were offered, for formats that write calls without marks or arguments without types.
    """
    if family is Family.PLAIN:
        return PlainParser(table)
    has_rule = family is Family.MISTRAL
    reply = Reply(lambda index: nine_letters(f"{call_prefix}{index}") if has_rule else f"{call_prefix}{index}")
    is_thinking = opening.rstrip().endswith(THINK_MARKS)
    return FormatParser(table, _format(family, reply, tools, is_thinking), reply)


def _format(family: Family, reply: Reply, tools: Sequence[Tool] | None, is_thinking: bool) -> Format:
    match family:
        case Family.QWEN_CODER:
            return qwen_coder(reply, tools, is_thinking=is_thinking)
        case Family.LLAMA:
            return llama(reply, tools, is_thinking=is_thinking)
        case Family.DEEPSEEK:
            return deepseek(reply, is_thinking=is_thinking)
        case Family.GLM:
            return glm(reply, tools, is_thinking=is_thinking)
        case Family.KIMI:
            return kimi(reply, is_thinking=is_thinking)
        case Family.MISTRAL:
            return mistral(reply, is_thinking=is_thinking)
        case Family.HARMONY:
            return HarmonyFormat(reply)
        case _:
            return hermes(reply, is_thinking=is_thinking)


class Format(Protocol):
    """How answers of one family are written."""

    marks: frozenset[str]  # special tokens with a meaning; all others are left out
    undecided: frozenset[str] | None  # text without these letters is plain text; None if that does not follow

    def read(self, held: str, *, is_over: bool) -> int:
        """Writes decided characters from the front of `held` into the reply, and returns their number.

        0 asks for more text. With `is_over` no more text comes, and only an unfinished call may be left undecided.
        """


class FormatParser:
    """Finds marks in the text, so it does not matter whether a tokenizer has one id for them."""

    def __init__(self, table: TokenBytes, form: Format, reply: Reply) -> None:
        self._special = table.silent(form.marks)
        self._detokeniser = Detokeniser(table)
        self._format = form
        self._reply = reply
        self._held = ""  # text not yet decided

    def feed(self, tokens: Sequence[int]) -> list[ReplyDelta]:
        """The deltas of these ids, id by id."""
        regions = self._reply.regions
        for token in tokens:
            if token in self._special:
                text = self._detokeniser.flush()
                regions.special(text)
            else:
                text = self._detokeniser.feed(token)
                undecided = self._format.undecided
                if undecided is not None and text and not self._held and undecided.isdisjoint(text):
                    self._reply.say_token(text)  # the common case, kept fast: a client waits for each token
                    continue
                regions.token(text)
            if text:
                self._held += text
                self._read(is_over=False)
        return self._reply.deltas()

    def finish(self) -> list[ReplyDelta]:
        """The deltas of text held back: a broken character, half a mark, an unfinished call."""
        text = self._detokeniser.flush()
        self._reply.regions.leftover(text)
        self._held += text
        self._read(is_over=True)
        rest, self._held = self._held, ""
        self._reply.say(rest)
        return self._reply.deltas()

    def message(self) -> Message:
        """The reply as an assistant's message."""
        return self._reply.message()

    def spans(self) -> tuple[Span, ...]:
        """Reasoning, text, calls and marks."""
        return self._reply.regions.spans()

    @property
    def calls_ended(self) -> int:
        """The number of complete tool calls."""
        return self._reply.calls_ended

    def _read(self, *, is_over: bool) -> None:
        while used := self._format.read(self._held, is_over=is_over):
            self._held = self._held[used:]
            if not self._held and not is_over:
                return
