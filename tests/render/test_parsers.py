"""Answers read as they are sampled: however they are cut, the same comes out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from render_models import bundled_source, letters, renderer_of

from openclaw_rl.core.completion import SpanKind
from openclaw_rl.core.message import Message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.render.parsers import (
    ArgumentsDelta,
    CallDelta,
    Family,
    ReasoningDelta,
    ReplyDelta,
    StreamParser,
    TextDelta,
)
from openclaw_rl.render.renderer import ChatRenderer

RENDERER = renderer_of(bundled_source())
PARTS = st.sampled_from(
    [
        "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_", "</th", "<", "\n", "\n\n", " ", "hello", "日本",
        "🙂", "é", '{"name": "read", "arguments": {"path": "a}b"}}', '{"name": "x", "arguments": {"a": "\\"', '"}}',
        "{", "}", '"', "\\", "nonsense", '{"name": "ls"}', "<|im_end|>",
    ]
)  # fmt: skip
TEXTS = st.lists(PARTS, max_size=12).map("".join)


def read(parser: StreamParser, pieces: Sequence[Sequence[int]]) -> tuple[list[ReplyDelta], Message]:
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas += parser.finish()
    return deltas, parser.message()


@settings(deadline=None)
@given(TEXTS, st.lists(st.integers(0, 60), max_size=8))
def test_any_split_of_the_tokens_gives_the_same_deltas(text: str, cuts: list[int]) -> None:
    ids = RENDERER.encode(text)
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    pieces = [ids[start:stop] for start, stop in pairwise(edges)]
    assert read(RENDERER.parser(), pieces) == read(RENDERER.parser(), [ids])


@settings(deadline=None)
@given(TEXTS)
def test_the_deltas_add_up_to_the_message(text: str) -> None:
    deltas, message = read(RENDERER.parser(), [RENDERER.encode(text)])
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == message.text
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == (message.reasoning or "")
    begun = [(delta.id, delta.name) for delta in deltas if isinstance(delta, CallDelta)]
    assert begun == [(call.id, call.name) for call in message.tool_calls]
    for index, call in enumerate(message.tool_calls):
        written = "".join(d.text for d in deltas if isinstance(d, ArgumentsDelta) and d.index == index)
        assert written == call.arguments


@settings(deadline=None)
@given(TEXTS)
def test_spans_tile_the_tokens(text: str) -> None:
    ids = RENDERER.encode(text)
    parser = RENDERER.parser()
    parser.feed(ids)
    parser.finish()
    at = 0
    for span in parser.spans():
        assert span.start == at < span.stop
        at = span.stop
    assert at == len(ids)


@settings(deadline=None)
@given(TEXTS)
def test_how_the_text_was_tokenised_does_not_change_the_message(text: str) -> None:
    text = text.replace("<|im_end|>", "")  # a special token is special only as its id
    assert read(RENDERER.parser(), [letters(text)])[1] == read(RENDERER.parser(), [RENDERER.encode(text)])[1]


def test_thinking_text_and_a_call_are_told_apart() -> None:
    ids = RENDERER.encode(
        "<think>\nhm ö\n</think>\n\nHello 日本\n"
        '<tool_call>\n{"name": "read", "arguments": {"path": "a}b"}}\n</tool_call><|im_end|>'
    )
    message, spans = RENDERER.decode(ids)
    assert (message.reasoning, message.text) == ("hm ö", "Hello 日本")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("read", '{"path": "a}b"}')]
    kinds = [span.kind for span in spans]
    assert kinds == [
        SpanKind.MARK, SpanKind.REASONING, SpanKind.MARK, SpanKind.TEXT, SpanKind.MARK, SpanKind.TOOL_CALL,
        SpanKind.MARK,
    ]  # fmt: skip
    said = next(span for span in spans if span.kind is SpanKind.TEXT)
    assert RENDERER.table.text(ids[said.start : said.stop]) == "Hello 日本"


def test_a_call_streams_its_name_first_and_then_its_arguments() -> None:
    parser = RENDERER.parser(call_prefix="call_x")
    ids = RENDERER.encode('<tool_call>\n{"name": "read", "arguments": {"path": "notes.txt"}}')
    deltas = parser.feed(ids)  # the call has not ended yet
    assert deltas[0] == CallDelta(0, "call_x0", "read")
    assert len(deltas) > 3 and all(isinstance(delta, ArgumentsDelta) for delta in deltas[1:])
    assert parser.calls_ended == 0
    parser.feed(RENDERER.encode("\n</tool_call>"))
    assert parser.calls_ended == 1


@pytest.mark.parametrize(
    "text",
    [
        "so\n<tool_call>\nnot json\n</tool_call> more",
        '<tool_call>\n{"arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": 5, "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "x", "arguments": 5}\n</tool_call>',
        "<tool_call>",
        "a < b <tool",
    ],
)
def test_a_call_that_is_no_call_is_kept_as_text(text: str) -> None:
    message, spans = RENDERER.decode(RENDERER.encode(text))
    assert (message.text, message.tool_calls) == (text, ())
    assert {span.kind for span in spans} == {SpanKind.TEXT}


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('<tool_call>{"arguments": {"a": 1}, "name": "x"}</tool_call>', "x", '{"a": 1}'),  # the other way round
        ('<tool_call>{"name": "x"}</tool_call>', "x", "{}"),
        ('<tool_call>{"name": "x", "arguments": "{\\"a\\": 1}"}</tool_call>', "x", '{"a": 1}'),
        ('<tool_call>{"name": "x", "arguments": {"a": 1}</tool_call>', "x", '{"a": 1}'),  # the last brace is missing
        ('<tool_call>{"name": "x", "arguments": {"a": "cut', "x", '{"a": "cut'),  # cut by length: as far as it came
    ],
)
def test_calls_written_in_unusual_ways_are_still_calls(text: str, name: str, arguments: str) -> None:
    message, _ = RENDERER.decode(RENDERER.encode(text))
    assert [(call.name, call.arguments) for call in message.tool_calls] == [(name, arguments)] and message.text == ""


def test_thinking_opened_by_the_prompt_is_read_as_thinking() -> None:
    opened = Prompt(RENDERER.encode("<|im_start|>assistant\n<think>\n"))
    deltas, message = read(RENDERER.parser(opened), [RENDERER.encode("hm\n</think>\n\nyes<|im_end|>")])
    assert (message.reasoning, message.text) == ("hm", "yes")
    assert isinstance(deltas[0], ReasoningDelta)
    closed = Prompt(RENDERER.encode("<|im_start|>assistant\n<think>\n\n</think>\n\n"))
    assert read(RENDERER.parser(closed), [RENDERER.encode("yes")])[1].reasoning is None


def test_a_character_is_given_out_once_it_is_whole() -> None:
    parser = RENDERER.parser()
    found = [parser.feed([token]) for token in letters("a🙂")]
    assert found == [[TextDelta("a")], [], [], [], [TextDelta("🙂")]]


def test_a_broken_character_becomes_a_mark_and_nothing_is_lost() -> None:
    ids = [*letters("🙂")[:2], *RENDERER.encode("x")]
    assert RENDERER.decode(ids)[0].text == "\ufffdx"
    assert RENDERER.decode(letters("🙂")[:2])[0].text == "\ufffd"


def test_new_lines_that_only_set_marks_apart_are_left_out_and_all_others_kept() -> None:
    assert RENDERER.decode(RENDERER.encode("a\n\nb\n"))[0].text == "a\n\nb\n"
    assert RENDERER.decode(RENDERER.encode('a\n\n<tool_call>{"name": "x"}</tool_call>'))[0].text == "a"


def test_a_template_without_marks_gets_the_plain_parser(shapeless: ChatRenderer) -> None:
    assert shapeless.family is Family.PLAIN and RENDERER.family is Family.HERMES
    message, spans = shapeless.decode(shapeless.encode("<think>x</think><|endoftext|>"))
    assert message.text == "<think>x</think>" and spans[-1].kind is SpanKind.MARK
