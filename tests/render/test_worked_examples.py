"""Answers in each family's published format, as they are read; and answers that break it, which stay text."""

from __future__ import annotations

import pytest
from test_families import parser_for, read, renderer_of

from openclaw_rl.core.completion import SpanKind
from openclaw_rl.core.message import Message
from openclaw_rl.render.parsers import ArgumentsDelta, CallDelta, Family, TextDelta
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.settings import RenderSettings
from openclaw_rl.testing.families import STAND_INS, StandIn

BY_NAME = {model.name: model for model in STAND_INS}
Calls = list[tuple[str, str]]


def answer(name: str, text: str, *, opening: str = "") -> Message:
    model = BY_NAME[name]
    return read(parser_for(model, opening), [renderer_of(model).encode(text)])[1]


def calls_of(message: Message) -> Calls:
    return [(call.name, call.arguments) for call in message.tool_calls]


@pytest.mark.parametrize(
    ("name", "text", "thought", "said", "calls"),
    [
        (
            "qwen_coder",
            "Reading.\n<tool_call>\n<function=read>\n<parameter=path>\na\n b\n</parameter>\n<parameter=lines>\n3\n"
            "</parameter>\n</function>\n</tool_call><|im_end|>",
            None,
            "Reading.",
            [("read", '{"path": "a\\n b", "lines": 3}')],
        ),
        ("qwen_coder", "<tool_call>\n<function=ls>\n</function>\n</tool_call>", None, "", [("ls", "{}")]),
        ("llama3", '{"name": "read", "parameters": {"path":  "a"}}<|eot_id|>', None, "", [("read", '{"path":  "a"}')]),
        (
            "llama3",
            '<|python_tag|>{"type": "function", "name": "read", "parameters": {}}; '
            '{"name": "search", "parameters": {"query": ";"}}<|eom_id|>',
            None,
            "",
            [("read", "{}"), ("search", '{"query": ";"}')],
        ),
        (
            "llama3",
            '<|python_tag|>brave_search.call(query="who")<|eom_id|>',
            None,
            "",
            [("brave_search", '{"query": "who"}')],
        ),
        (
            "deepseek_v3",
            "<think>\nhm\n</think>\n\nSo.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n```json\n"
            '{"path": "a"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{}\n```'
            "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
            "hm",
            "So.",
            [("read", '{"path": "a"}'), ("search", "{}")],
        ),
        (
            "deepseek_v31",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            None,
            "",
            [("function", "{}")],
        ),
        (
            "glm45",
            "\n<think>hm</think>\nSo.\n<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>5</arg_value>\n"
            "<arg_key>lines</arg_key>\n<arg_value>5</arg_value>\n<arg_key>x</arg_key>\n<arg_value>[1,  2]</arg_value>\n"
            "</tool_call><|observation|>",
            "hm",
            "So.",
            [("read", '{"path": "5", "lines": 5, "x": [1,  2]}')],
        ),
        (
            "kimi_k2",
            "So.<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{}"
            "<|tool_call_end|><|tool_call_begin|>functions.a.b:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
            "<|tool_calls_section_end|><|im_end|>",
            None,
            "So.",
            [("read", "{}"), ("a.b", "{}")],
        ),
        (
            "mistral_v3",
            'x[TOOL_CALLS] [{"name": "read", "arguments": {"path":  "]"}, "id": "abcdefghi"}, '
            '{"id": "ABCDEFGHI", "name": "ls", "arguments": {"a":  1}}]</s>',
            None,
            "x",
            [("read", '{"path":  "]"}'), ("ls", '{"a":  1}')],
        ),
        (
            "mistral_v11",
            "[THINK]hm[/THINK]So.[TOOL_CALLS]read[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS]ls[ARGS]{}</s>",
            "hm",
            "So.",
            [("read", "{}"), ("ls", "{}")],
        ),
        (
            "gpt_oss",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>So.<|end|>"
            "<|start|>assistant<|channel|>commentary to=functions.read <|constrain|>json<|message|>{}<|call|>",
            "hm",
            "So.",
            [("read", "{}")],
        ),
        ("gpt_oss", "<|channel|>final<|message|>So.<|return|>", None, "So.", []),
    ],
)
def test_published_formats(name: str, text: str, thought: str | None, said: str, calls: Calls) -> None:
    opening = "<|start|>assistant" if name == "gpt_oss" else ""
    message = answer(name, text, opening=opening)
    assert (message.reasoning, message.text, calls_of(message)) == (thought, said, calls)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen_coder", "<tool_call>\nread it\n</tool_call>"),
        ("qwen_coder", "<tool_call>\n<function=read>\n<parameter=path>\na</tool_call>"),
        ("llama3", '{"answer": 42, "name": "read"}'),
        ("llama3", '{"name": "unknown", "parameters": {}}'),
        ("llama3", "{not json} at all"),
        ("llama3", "<|python_tag|>print(1)"),
        ("deepseek_v31", "<｜tool▁call▁begin｜>read {}<｜tool▁call▁end｜>"),
        ("deepseek_v31", "<｜tool▁call▁begin｜>read<｜tool▁sep｜>[1]<｜tool▁call▁end｜>"),
        ("glm45", "<tool_call>two words\n</tool_call>"),
        ("kimi_k2", "<|tool_call_begin|>read<|tool_call_argument_begin|>{}<|tool_call_end|>"),
        ("mistral_v11", "[TOOL_CALLS]read the file"),
        ("mistral_v11", "[TOOL_CALLS][1, 2]"),
        ("gpt_oss", "Hello there"),
        ("gpt_oss", "<|channel|>analysis and no message"),
    ],
)
def test_what_breaks_the_format_is_text_to_the_letter(name: str, text: str) -> None:
    message = answer(name, text)
    assert (message.text, message.tool_calls, message.reasoning) == (text, (), None)


def test_calls_keep_the_ids_that_their_model_writes_and_all_others_get_one() -> None:
    def ids(name: str, text: str) -> list[str]:
        return [call.id for call in answer(name, text).tool_calls]

    section = "<|tool_call_begin|>functions.read:7<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert ids("kimi_k2", section) == ["functions.read:7"]
    assert ids("mistral_v11", "[TOOL_CALLS]a[CALL_ID]abcdefghi[ARGS]{}") == ["abcdefghi"]
    listed = ids("mistral_v3", '[TOOL_CALLS] [{"name": "a", "arguments": {}, "id": "abcdefghi"}, {"name": "b"}]')
    assert listed[0] == "abcdefghi" and len(listed[1]) == 9 and listed[1].isalnum()
    assert ids("llama3", '{"name": "read", "parameters": {}}') == ["call_0"]


def test_without_tools_a_bare_object_is_an_answer_and_no_call() -> None:
    renderer = renderer_of(BY_NAME["llama3"])
    text = '{"name": "read", "parameters": {}}'
    for tools, calls in ((None, 1), ((), 0)):
        message = read(renderer.parser(tools=tools), [renderer.encode(text)])[1]
        assert len(message.tool_calls) == calls and message.text == ("" if calls else text)


@pytest.mark.parametrize("name", ["llama3", "kimi_k2", "deepseek_v31", "mistral_v11", "gpt_oss"])
def test_arguments_are_handed_out_as_they_are_written(name: str) -> None:
    begun = {
        "llama3": '{"name": "read", "parameters": {"path": "no',
        "kimi_k2": '<|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{"path": "no',
        "deepseek_v31": '<｜tool▁call▁begin｜>read<｜tool▁sep｜>{"path": "no',
        "mistral_v11": '[TOOL_CALLS]read[ARGS]{"path": "no',
        "gpt_oss": ' to=functions.read<|channel|>commentary json<|message|>{"path": "no',
    }[name]
    parser = parser_for(BY_NAME[name], "<|start|>assistant" if name == "gpt_oss" else "")
    deltas = parser.feed(renderer_of(BY_NAME[name]).encode(begun))
    assert isinstance(deltas[0], CallDelta) and deltas[0].name == "read" and parser.calls_ended == 0
    written = [delta.text for delta in deltas[1:] if isinstance(delta, ArgumentsDelta)]
    assert len(written) == len(deltas) - 1 > 1 and "".join(written) == '{"path": "no'


def test_arguments_in_tags_that_are_cut_stay_open() -> None:
    cut = answer(
        "glm45", "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n<arg_key>lines</arg_key>"
    )
    assert calls_of(cut) == [("read", '{"path": "a"')]


def test_a_cut_call_is_still_a_conversation_every_template_takes() -> None:
    for model in STAND_INS:
        renderer = ChatRenderer(model.template())
        cut = answer("qwen3", '<tool_call>\n{"name": "read", "arguments": {"path": "a')
        assert calls_of(cut) == [("read", '{"path": "a')]
        named = Message(cut.role, tool_calls=tuple(cut.tool_calls))
        asked = Message(type(cut.role).USER, ())
        assert renderer.prompt([asked, named, asked], (), None).tokens


def test_marks_are_marks_and_calls_are_calls_among_the_spans() -> None:
    model = BY_NAME["gpt_oss"]
    parser = parser_for(model, "<|start|>assistant")
    parser.feed(renderer_of(model).encode("<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.a"))
    parser.feed(renderer_of(model).encode("<|channel|>commentary json<|message|>{}<|call|>"))
    parser.finish()
    kinds = [span.kind for span in parser.spans()]
    assert kinds == [SpanKind.MARK, SpanKind.REASONING, SpanKind.MARK, SpanKind.TOOL_CALL, SpanKind.MARK]


def test_a_format_can_be_chosen_against_what_the_template_tells() -> None:
    model: StandIn = BY_NAME["qwen3"]
    plain = ChatRenderer(model.template(), RenderSettings(format="plain"))
    assert plain.family is Family.PLAIN
    assert plain.decode(plain.encode("<think>a</think>"))[0].text == "<think>a</think>"
    with pytest.raises(ValueError, match="choose one of auto, hermes"):
        RenderSettings(format="hermse")


def test_half_a_mark_is_never_text_until_it_cannot_become_one() -> None:
    model = BY_NAME["kimi_k2"]
    parser = parser_for(model)
    deltas = [delta for token in renderer_of(model).encode("a <|tool") for delta in parser.feed([token])]
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "a "
    assert parser.finish() == [TextDelta("<|tool")]
