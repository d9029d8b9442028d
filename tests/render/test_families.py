"""Every family's format: however an answer is cut into tokens, the same is read, and garbage is never refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.core.message import Json, Message, Role, TextPart, Tool, ToolCall
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.render.parsers import ArgumentsDelta, CallDelta, ReasoningDelta, ReplyDelta, StreamParser, TextDelta
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.testing.families import STAND_INS, StandIn
from openclaw_rl.testing.writing import written

TOOLS = (
    Tool("read", "", {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}}),
    Tool("search", "", {"type": "object", "properties": {"query": {"type": "string"}}}),
)
MODELS = pytest.mark.parametrize("model", STAND_INS, ids=lambda model: model.name)
WORDS = [
    "hello",
    "日本",
    "🙂",
    "é",
    "a < b",
    "[1]",
    '"',
    "\\",
    " ",
    "\n",
    "x{y}",
    "`",
    "<|",
    "to=",
    "<",
    "[",
    "</",
    "|>",
]
MARKS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=read>", "<parameter=path>", "</parameter>",
    "</function>", "<|python_tag|>", '{"name": "read", "parameters": {"path": "a"}}', "; ", "read.call(path='a')",
    "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>",
    "function", "\n```json\n", "read\n", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "read",
    "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.read:0", "<|tool_call_argument_begin|>",
    "<|tool_call_end|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "abcdefghi", "[{", "}]", ", ", '"id": "abcdefghi"',
    "[THINK]", "[/THINK]", "<|start|>", "assistant", "<|channel|>", "analysis", "commentary", "final", "<|message|>",
    " to=functions.read", "<|constrain|>json", "<|end|>", "<|return|>", "<|call|>", "{", "}", '{"a": "\\"', '"}',
]  # fmt: skip
GARBAGE = st.lists(st.sampled_from(MARKS + WORDS), max_size=14).map("".join)
SAID = st.lists(st.sampled_from(WORDS), max_size=6).map(lambda words: "".join(words).strip())


def _reads_as_json(said: str) -> bool:
    try:
        json.loads(said)
    except ValueError:
        return False
    return True


# Where no schema says what a value is, a format that writes it bare cannot tell text that reads as a list from one:
# `search` has none for its path.
UNTYPED = SAID.filter(lambda said: not _reads_as_json(said))
VALUES: st.SearchStrategy[Json] = st.one_of(UNTYPED, st.integers(-5, 5), st.booleans(), st.lists(st.integers(0, 3)))
ARGUMENTS = st.fixed_dictionaries({}, optional={"path": UNTYPED, "lines": st.integers(0, 9), "other": VALUES})


@cache
def renderer_of(model: StandIn) -> ChatRenderer:
    return ChatRenderer(model.template())


@cache
def _byte_ids(model: StandIn) -> dict[bytes, int]:
    table = renderer_of(model).table
    size = renderer_of(model).template.tokenizer.get_vocab_size()
    return {table(token): token for token in range(size) if len(table(token)) == 1 and token not in table.special}


def in_letters(model: StandIn, text: str) -> list[int]:
    """One id for each byte, but for special tokens: never how the text would be encoded."""
    special = sorted((*model.special,), key=len, reverse=True)
    ids: list[int] = []
    at = 0
    while at < len(text):
        mark = next((token for token in special if text.startswith(token, at)), None)
        if mark is not None:
            found = renderer_of(model).template.tokenizer.token_to_id(mark)
            assert found is not None
            ids.append(found)
            at += len(mark)
        else:
            ids += [_byte_ids(model)[bytes((byte,))] for byte in text[at].encode()]
            at += 1
    return ids


def parser_for(model: StandIn, opening: str = "") -> StreamParser:
    renderer = renderer_of(model)
    prompt = Prompt(renderer.encode(opening)) if opening else None
    return renderer.parser(prompt, tools=TOOLS)


def read(parser: StreamParser, pieces: Sequence[Sequence[int]]) -> tuple[list[ReplyDelta], Message]:
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    return deltas + parser.finish(), parser.message()


def added_up(deltas: Sequence[ReplyDelta]) -> tuple[str, str, list[tuple[str, str, str]]]:
    calls: list[tuple[str, str, str]] = []
    for delta in deltas:
        if isinstance(delta, CallDelta):
            assert delta.index == len(calls)
            calls.append((delta.id, delta.name, ""))
        elif isinstance(delta, ArgumentsDelta):
            told, name, text = calls[delta.index]
            calls[delta.index] = (told, name, text + delta.text)
    said = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    return "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)), said, calls


def of_message(message: Message) -> tuple[str, str, list[tuple[str, str, str]]]:
    calls = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    return message.reasoning or "", message.text, calls


@MODELS
@settings(max_examples=25, deadline=None)
@given(text=GARBAGE, cuts=st.lists(st.integers(0, 60), max_size=8))
def test_any_cut_and_any_tokens_give_the_same_reply_and_deltas_that_add_up_to_it(
    model: StandIn, text: str, cuts: list[int]
) -> None:
    if model.is_sentence_piece:
        text = "x" + text.replace("▁", "_")  # such a vocabulary writes spaces so, and its first piece loses one
    ids = renderer_of(model).encode(text)
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    deltas, message = read(parser_for(model), [ids[start:stop] for start, stop in pairwise(edges)])
    assert (deltas, message) == read(parser_for(model), [ids])
    assert added_up(deltas) == of_message(message)
    assert read(parser_for(model), [in_letters(model, text)])[1] == message


@MODELS
@settings(max_examples=25, deadline=None)
@given(ids=st.lists(st.integers(0, 1023), max_size=60))
def test_random_ids_are_read_without_complaint_and_every_one_of_them_is_of_some_kind(
    model: StandIn, ids: list[int]
) -> None:
    parser = parser_for(model)
    deltas, message = read(parser, [ids])
    assert added_up(deltas) == of_message(message)
    at = 0
    for span in parser.spans():
        assert span.start == at < span.stop
        at = span.stop
    assert at == len(ids)


@MODELS
@settings(max_examples=25, deadline=None)
@given(thought=SAID, text=SAID, given_arguments=st.lists(ARGUMENTS, max_size=3), is_opened=st.booleans())
def test_what_a_model_of_the_family_writes_is_read_back(
    model: StandIn, thought: str, text: str, given_arguments: list[dict[str, Json]], is_opened: bool
) -> None:
    calls = tuple(
        ToolCall("", name, json.dumps(body, ensure_ascii=False))
        for name, body in zip(("read", "search", "read"), given_arguments, strict=False)
    )
    if model.name == "llama3":
        text = "" if calls else "so " + text
    reasoning = thought if model.has_thinking and thought else None
    reply = Message(Role.ASSISTANT, (TextPart(text),) if text else (), reasoning, calls)
    opening = {"gpt_oss": "<|start|>assistant"}.get(model.name, "")
    if is_opened and reasoning and model.name != "gpt_oss":
        opening = "<think>"
    ids = in_letters(model, written(model, reply, opening=opening))
    _, message = read(parser_for(model, opening), [ids])
    assert message.reasoning == reasoning
    assert message.text == text
    assert [call.name for call in message.tool_calls] == [call.name for call in calls]
    assert [json.loads(call.arguments) for call in message.tool_calls] == given_arguments
    if model.name not in ("glm45", "qwen_coder"):  # those write no JSON
        assert [call.arguments for call in message.tool_calls] == [call.arguments for call in calls]


@MODELS
def test_a_template_tells_its_own_format(model: StandIn) -> None:
    assert renderer_of(model).family is model.family
