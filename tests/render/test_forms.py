"""Answers held to a form, in every family's own format: what the grammar lets through is read as what was asked for."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from openclaw_rl.core.message import Json, Message, Role, Tool, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Grammar
from openclaw_rl.engines.local.grammars import Grammars
from openclaw_rl.errors import RequestError
from openclaw_rl.render.called import CallableTool
from openclaw_rl.render.forms import AnswerForm
from openclaw_rl.render.lark import Lark, prepared, regex
from openclaw_rl.render.parsers import Family, opens_thinking
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.testing.families import STAND_INS, VOCAB, StandIn

MODELS = pytest.mark.parametrize("model", STAND_INS, ids=lambda model: model.name)
READ: dict[str, Json] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "maxLength": 6},
        "lines": {"type": "integer", "minimum": 1, "maximum": 20},
        "mode": {"type": "string", "enum": ["all", "some"]},
        "more": {"$ref": "#/$defs/more"},
        "note": {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "null"}]},
        "kind": {"$ref": "#/$defs/kind"},
    },
    "required": ["path", "lines", "more", "note", "kind"],
    "additionalProperties": False,
    "$defs": {"more": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, "kind": {"enum": ["a", 1, None]}},
}
SEARCH: dict[str, Json] = {"type": "object", "properties": {"query": {"enum": ["one", "two"]}}, "required": ["query"]}
TOOLS = (Tool("read", "", READ), Tool("search-it", "", {**SEARCH, "additionalProperties": False}))
CALLED = tuple(CallableTool(tool.name, tool.parameters) for tool in TOOLS)
PERSON: dict[str, Json] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "maximum": 9, "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@cache
def renderer_of(model: StandIn) -> ChatRenderer:
    return ChatRenderer(model.template())


@pytest.fixture(scope="module")
def grammars_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Grammars]:
    folder, found = tmp_path_factory.mktemp("tokenizers"), {}
    for model in STAND_INS:
        path: Path = folder / f"{model.name}.json"
        tokenizer = renderer_of(model).template.tokenizer
        path.write_text(tokenizer.to_str(), "utf-8")
        found[model.name] = Grammars(path, VOCAB, tokenizer.token_to_id(model.eos))
    return found


def _ends(model: StandIn) -> tuple[int, ...]:
    return tuple(renderer_of(model).template.tokenizer.token_to_id(end) for end in model.ends)


def _walk(model: StandIn, grammars: Grammars, grammar: Grammar, seed: int) -> list[int]:
    """A random answer that the grammar allows, which likes to come to its end."""
    source, table = random.Random(seed), renderer_of(model).table
    guide, words, said = grammars.guide(grammar), np.zeros(VOCAB // 32, dtype=np.int32), list[int]()
    for _ in range(600):
        words[:] = 0
        guide.mask(words.ctypes.data, words.nbytes)
        guide.narrow(words, int(np.bitwise_count(words.view(np.uint32)).sum()))
        assert not guide.problem
        allowed = np.unpackbits(words.view(np.uint8), bitorder="little").nonzero()[0].tolist()
        ending = [
            token for token in allowed if token in grammar.ends or table(token)[:1] in b'"}]' or token > VOCAB - 99
        ]
        marks = [token for token in allowed if token in table.special or table(token)[:1] in (b"<", b"{")]
        pool = source.choice([ending or allowed, marks or allowed, allowed])
        said.append(source.choice(pool))
        guide.take(said[-1])
        if guide.is_over:
            return said
    raise AssertionError(f"no end: {table.text(said)[-300:]}")


def _asked(model: StandIn, **options: Json) -> Prompt:
    return renderer_of(model).prompt((message(Role.USER, "asked"),), TOOLS, None, options=options)


def _read(model: StandIn, prompt: Prompt, said: list[int]) -> Message:
    parser = renderer_of(model).parser(prompt, tools=TOOLS)
    parser.feed(said)
    parser.finish()
    return parser.message()


def _holds(schema: dict[str, Json], value: Json) -> None:
    Draft202012Validator(schema).validate(value)


@MODELS
@pytest.mark.parametrize("has_one", [True, False])
def test_a_needed_call_is_read_as_calls_of_the_tools_with_valid_arguments(
    model: StandIn, grammars_of: dict[str, Grammars], has_one: bool
) -> None:
    prompt, seen = _asked(model), 0
    form = AnswerForm(tools=CALLED, needs_call=True, has_one_call=has_one)
    grammar = renderer_of(model).grammar(form, prompt, _ends(model), is_bare=False)
    assert grammar is not None
    for seed in range(12):
        reply = _read(model, prompt, _walk(model, grammars_of[model.name], grammar, seed))
        assert reply.text == ""
        assert len(reply.tool_calls) == 1 if has_one else reply.tool_calls
        seen = max(seen, len(reply.tool_calls))
        for call in reply.tool_calls:
            _holds(dict(next(tool for tool in TOOLS if tool.name == call.name).parameters), json.loads(call.arguments))
    assert has_one or seen > 1 or model.family is Family.HARMONY


@MODELS
def test_a_named_tool_alone_is_called(model: StandIn, grammars_of: dict[str, Grammars]) -> None:
    prompt = _asked(model)
    form = AnswerForm(tools=CALLED[1:], needs_call=True, has_one_call=True)
    grammar = renderer_of(model).grammar(form, prompt, _ends(model), is_bare=False)
    assert grammar is not None
    for seed in range(4):
        (call,) = _read(model, prompt, _walk(model, grammars_of[model.name], grammar, seed)).tool_calls
        assert call.name == "search-it"
        assert json.loads(call.arguments)["query"] in ("one", "two")


@MODELS
@pytest.mark.parametrize("thinks", [True, False])
def test_text_is_held_to_a_schema_behind_whatever_was_thought(
    model: StandIn, grammars_of: dict[str, Grammars], thinks: bool
) -> None:
    prompt, thought = _asked(model, enable_thinking=thinks, thinking=thinks), 0
    form = AnswerForm(text=lambda lark: lark.json(PERSON))
    grammar = renderer_of(model).grammar(form, prompt, _ends(model), is_bare=False)
    assert grammar is not None
    for seed in range(12):
        reply = _read(model, prompt, _walk(model, grammars_of[model.name], grammar, seed))
        _holds(PERSON, json.loads(reply.text))
        assert not reply.tool_calls
        thought += reply.reasoning is not None
    assert thought > 0 if thinks and model.has_thinking else thought < 12


@MODELS
def test_text_of_a_schema_or_calls_are_either_of_both(model: StandIn, grammars_of: dict[str, Grammars]) -> None:
    prompt = _asked(model)
    form = AnswerForm(text=lambda lark: lark.json(PERSON), tools=CALLED)
    grammar = renderer_of(model).grammar(form, prompt, _ends(model), is_bare=False)
    assert grammar is not None
    kinds = set()
    for seed in range(24):
        reply = _read(model, prompt, _walk(model, grammars_of[model.name], grammar, seed))
        kinds.add(bool(reply.tool_calls))
        if reply.tool_calls:
            assert reply.text == ""
        else:
            _holds(PERSON, json.loads(reply.text))
    assert kinds == {True, False}


@MODELS
def test_strict_tools_hold_the_calls_of_an_answer_that_is_free_otherwise(
    model: StandIn, grammars_of: dict[str, Grammars]
) -> None:
    prompt = _asked(model)
    form = AnswerForm(tools=CALLED)
    grammar = renderer_of(model).grammar(form, prompt, _ends(model), is_bare=False)
    assert grammar is not None
    texts = calls = 0
    for seed in range(40):
        reply = _read(model, prompt, _walk(model, grammars_of[model.name], grammar, seed))
        texts += bool(reply.text)
        for call in reply.tool_calls:
            calls += 1
            _holds(dict(next(tool for tool in TOOLS if tool.name == call.name).parameters), json.loads(call.arguments))
    assert texts and calls


def test_a_model_without_a_form_for_calls_says_so() -> None:
    plain = ChatRenderer(STAND_INS[0].template())
    plain.family = Family.PLAIN
    with pytest.raises(RequestError, match="no format for tool calls"):
        plain.grammar(AnswerForm(tools=CALLED, needs_call=True), None, (2,), is_bare=False)
    assert plain.grammar(AnswerForm(tools=CALLED), None, (2,), is_bare=False) is None


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "b"}}}, "pattern"),
        ({"anyOf": [{"type": "object"}]}, "anyOf"),
        ({"type": "object", "properties": {"a": {"type": "string", "contentEncoding": "x"}}}, "contentEncoding"),
    ],
)
def test_what_a_tagged_form_cannot_hold_is_named(schema: dict[str, Json], word: str) -> None:
    coder = renderer_of(next(model for model in STAND_INS if model.family is Family.QWEN_CODER))
    with pytest.raises(RequestError, match=word):
        coder.grammar(AnswerForm(tools=(CallableTool("read", schema),), needs_call=True), None, (2,), is_bare=False)


def test_a_tool_whose_name_could_be_a_mark_cannot_be_forced() -> None:
    with pytest.raises(RequestError, match="marks"):
        renderer_of(STAND_INS[0]).grammar(
            AnswerForm(tools=(CallableTool("a<b", None),), needs_call=True), None, (2,), is_bare=False
        )


@pytest.mark.parametrize(
    ("own", "answers"),
    [
        ("start: WORD\nWORD: /[ab]{2}/", {"aa", "ab", "ba", "bb"}),
        ('root ::= "yes" | "no"', {"yes", "no"}),
    ],
)
def test_a_clients_own_grammar_holds_the_text(own: str, answers: set[str], grammars_of: dict[str, Grammars]) -> None:
    model = STAND_INS[0]
    prompt = _asked(model)
    grammar = renderer_of(model).grammar(AnswerForm(own=own), prompt, _ends(model), is_bare=False)
    assert grammar is not None
    seen = {_read(model, prompt, _walk(model, grammars_of[model.name], grammar, seed)).text for seed in range(9)}
    assert seen <= answers and len(seen) > 1


def test_a_regular_expression_may_hold_slashes_and_new_lines(grammars_of: dict[str, Grammars]) -> None:
    model = STAND_INS[0]
    form = AnswerForm(text=lambda lark: regex("a/b\\/c\nd\\n[0-9]"))
    grammar = renderer_of(model).grammar(form, None, _ends(model), is_bare=True)
    assert grammar is not None
    said = _walk(model, grammars_of[model.name], grammar, 1)
    assert renderer_of(model).table.text(said[:-1])[:-1] == "a/b/c\nd\n"


def test_formats_that_nobody_checks_are_no_reason_to_refuse_a_schema() -> None:
    lark = Lark({}.get)
    lark.json({"type": "object", "properties": {"format": {"type": "string", "format": "password"}}})
    written = lark.written("rule_0")
    assert "password" not in written and '"format": {"type": "string"}' in written


A: dict[str, Json] = {"type": "object", "properties": {"a": {}}}
B: dict[str, Json] = {"type": "object", "properties": {"b": {}}}


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (A, 1),
        ({**A, "required": ["a"]}, 1),
        ({**A, "required": ["z"]}, 0),  # needs one that is not named
        ({**A, "additionalProperties": True}, 0),
        ({"type": "object"}, 0),
        ({"anyOf": [A, B]}, 2),
        ({"allOf": [A, B]}, 0),  # each would forbid what the other names
        ({**A, "anyOf": [B, {}]}, 0),
        ({"type": "array", "items": {"$ref": "#/$defs/x"}, "$defs": {"x": A}}, 1),
        ({"properties": {"additionalProperties": {"const": {"properties": 1}}}}, 1),
    ],
    ids=str,
)
def test_an_object_holds_what_it_names_where_that_cannot_contradict(schema: dict[str, Json], closed: int) -> None:
    assert json.dumps(prepared(schema)).count('"additionalProperties": false') == closed


def test_a_model_whose_prompt_opens_its_thinking_does_not_think_unasked() -> None:
    opened = 0
    for model in STAND_INS:
        if not opens_thinking(renderer_of(model).template):
            continue
        opened += 1
        form = AnswerForm(text=lambda lark: lark.text("yes"))
        unasked = renderer_of(model).grammar(form, _asked(model, enable_thinking=False), (2,), is_bare=False)
        assert unasked is not None and unasked.text == 'start: "yes"'
    assert opened
