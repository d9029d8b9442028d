"""What our parsers read, against what published parsers read from the same text: mistral-common's, transformers'.

Behind `make test-oracle`; skipped where those packages are not there. transformers brings the parser and leaves the
description of a format to each model: TRL publishes those of gpt-oss, Llama and GLM, and the descriptions here follow
the published templates.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_families import ARGUMENTS, SAID, parser_for, read, renderer_of

from openclaw_rl.core.message import Json, Message, Role, TextPart, ToolCall
from openclaw_rl.testing.families import STAND_INS, StandIn
from openclaw_rl.testing.writing import end_of, written

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
has_mistral = pytest.mark.skipif(importlib.util.find_spec("mistral_common") is None, reason="no mistral-common")
has_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="no transformers")
has_trl = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="no TRL")
Read = tuple[str, list[tuple[str, Json]]]  # an answer's words, and its calls
HARMONY_OPENING = "<|start|>assistant"
NAMES = st.text("abcxyz", min_size=1, max_size=8)
BODIES = st.lists(ARGUMENTS, min_size=1, max_size=3)
MANY = settings(max_examples=80, deadline=None)
_CALLS = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
TEMPLATES: dict[str, dict[str, Any]] = {
    "qwen3": {
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "reasoning_content": {"open": "<think>\n", "close": "\n</think>\n\n"},
            "tool_calls": {
                "open_pattern": r"\n?<tool_call>\n",
                "close": "\n</tool_call>",
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            "content": {"close": "<|im_end|>"},
        },
    },
    "kimi_k2": {
        "start_anchor": "<|im_middle|>",
        "fields": {
            "tool_calls": {
                "open_pattern": r"(?:<\|tool_calls_section_begin\|>)?<\|tool_call_begin\|>"
                r"functions\.(?P<name>[^:]+):\d+<\|tool_call_argument_begin\|>",
                "close_pattern": r"<\|tool_call_end\|>(?:<\|tool_calls_section_end\|>)?",
                "repeats": True,
                "content": "json",
                "transform": _CALLS,
            },
            "content": {"close": "<|im_end|>"},
        },
    },
    "deepseek_v31": {
        "start_anchor": "</think>",
        "fields": {
            "tool_calls": {
                "open_pattern": r"(?:<｜tool▁calls▁begin｜>)?<｜tool▁call▁begin｜>(?P<name>[^<]+)<｜tool▁sep｜>",
                "close_pattern": r"<｜tool▁call▁end｜>(?:<｜tool▁calls▁end｜>)?",
                "repeats": True,
                "content": "json",
                "transform": _CALLS,
            },
            "content": {"close": "<｜end▁of▁sentence｜>"},
        },
    },
}
PREFIXES = {"qwen3": "<|im_start|>assistant\n", "kimi_k2": "<|im_middle|>", "deepseek_v31": "</think>"}


def stand_in(name: str) -> StandIn:
    return next(model for model in STAND_INS if model.name == name)


def reply(text: str, bodies: list[dict[str, Json]], thought: str | None = None) -> Message:
    calls = tuple(ToolCall("", "read", json.dumps(body, ensure_ascii=False)) for body in bodies)
    return Message(Role.ASSISTANT, (TextPart(text),) if text else (), thought, calls)


def ours(model: StandIn, text: str) -> Read:
    message = read(parser_for(model), [renderer_of(model).encode(text)])[1]
    return message.text, calls_of(message)


def calls_of(message: Message) -> list[tuple[str, Json]]:
    return [(call.name, call.parsed()) for call in message.tool_calls]


def read_by_transformers(sampled: str, template: dict[str, Any], prefix: str) -> Read:
    from transformers.utils.chat_parsing.response_parser import parse_response

    found = parse_response(sampled, template, prefix=prefix)
    calls = [call["function"] for call in found.get("tool_calls") or []]
    return (found.get("content") or "").strip(), [(call["name"], call["arguments"]) for call in calls]


@has_mistral
@pytest.mark.parametrize(("name", "version"), [("mistral_v3", "v3"), ("mistral_v11", "v13")])
@MANY
@given(bodies=BODIES)
def test_mistrals_own_decoder_reads_the_same_calls(name: str, version: str, bodies: list[dict[str, Json]]) -> None:
    from mistral_common.experimental.tools import _decode_tool_calls, _split_content_and_tool_calls

    model = stand_in(name)
    text = written(model, reply("", bodies))
    tokenizer = _tekken(version)
    marks = ["[TOOL_CALLS]", "[ARGS]"]
    ids: list[int] = []
    rest = text
    while rest:
        at, mark = min(((rest.find(mark), mark) for mark in marks if mark in rest), default=(len(rest), ""))
        ids += tokenizer.encode(rest[:at], bos=False, eos=False)
        ids += [tokenizer.get_special_token(mark)] if mark else []
        rest = rest[at + len(mark) :]
    _, parts = _split_content_and_tool_calls(ids, tokenizer.get_special_token("[TOOL_CALLS]"))
    theirs = [
        (call.function.name, json.loads(call.function.arguments)) for call in _decode_tool_calls(parts, tokenizer)
    ]
    assert ours(model, text) == ("", theirs)


@cache
def _tekken(version: str) -> Any:
    """mistral-common's own vocabulary, told to be of this version."""
    import mistral_common
    from mistral_common.tokens.tokenizers.tekken import SpecialTokenInfo, Tekkenizer

    body = json.loads((Path(mistral_common.__file__).parent / "data" / "tekken_240911.json").read_text("utf-8"))
    body["config"]["version"] = version
    if version != "v3":
        kept = list(Tekkenizer.DEPRECATED_SPECIAL_TOKENS)
        names = {str(each["token_str"]) for each in kept}
        added = [mark for mark in ("[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]") if mark not in names]
        told = [SpecialTokenInfo(rank=len(kept) + at, token_str=mark, is_control=True) for at, mark in enumerate(added)]
        body["special_tokens"] = [*kept, *told]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "tekken.json"
        path.write_text(json.dumps(body), "utf-8")
        return Tekkenizer.from_file(path)


@has_transformers
@pytest.mark.parametrize("name", TEMPLATES)
@MANY
@given(text=SAID, bodies=st.lists(ARGUMENTS, max_size=3))
def test_transformers_parser_reads_the_same_reply(name: str, text: str, bodies: list[dict[str, Json]]) -> None:
    model = stand_in(name)
    sampled = written(model, reply(text, bodies)) + model.eos
    assert ours(model, sampled) == read_by_transformers(sampled, TEMPLATES[name], PREFIXES[name])


@has_trl
@MANY
@given(thought=st.none() | SAID.filter(bool), text=SAID.filter(bool), body=st.none() | ARGUMENTS)
def test_trls_description_of_gpt_oss_reads_the_same_reply(
    thought: str | None, text: str, body: dict[str, Json] | None
) -> None:
    """Words or one call: of several calls in one answer the description reads none."""
    from trl.chat_template_utils import gptoss_template

    model = stand_in("gpt_oss")
    said = reply(text if body is None else "", [] if body is None else [body], thought)
    sampled = written(model, said, opening=HARMONY_OPENING) + end_of(model, said)
    message = read(parser_for(model), [renderer_of(model).encode(sampled)])[1]
    theirs = read_by_transformers(sampled, gptoss_template, HARMONY_OPENING)
    assert (message.text, calls_of(message), message.reasoning) == (*theirs, thought)


@has_trl
@MANY
@given(text=SAID.filter(lambda said: "{" not in said), body=st.none() | ARGUMENTS)
def test_trls_description_of_llama_reads_the_same_reply(text: str, body: dict[str, Json] | None) -> None:
    from trl.chat_template_utils import llama3_template

    model = stand_in("llama3")
    sampled = written(model, reply(text if body is None else "", [] if body is None else [body])) + model.eos
    theirs = read_by_transformers(sampled, llama3_template, "<|start_header_id|>assistant<|end_header_id|>\n\n")
    assert ours(model, sampled) == theirs


@has_trl
@MANY
@given(
    text=SAID,
    bodies=st.lists(st.dictionaries(NAMES, NAMES.map(lambda word: f"{word} {word}"), min_size=1), max_size=3),
)
def test_trls_description_of_glm_reads_the_same_reply(text: str, bodies: list[dict[str, Json]]) -> None:
    """Arguments of words: what looks like JSON is text there, where no tool's schema is known."""
    from trl.chat_template_utils import glm4moe_template

    model = stand_in("glm45")
    said = reply(text, bodies)
    sampled = written(model, said) + end_of(model, said)
    theirs = read_by_transformers(sampled.removesuffix("<|observation|>"), glm4moe_template, "<|assistant|>")
    assert ours(model, sampled) == theirs
