"""What a client is told of a schema that the grammar library refuses: of its own schema, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import openclaw_rl
from openclaw_rl.core.message import Json
from openclaw_rl.core.sampling import Grammar
from openclaw_rl.engines.grammar_problems import unquoted
from openclaw_rl.engines.local.grammars import Grammars
from openclaw_rl.errors import RequestError
from openclaw_rl.render.lark import Lark, regex

TOKENIZER = Path(openclaw_rl.__file__).parent / "tiny" / "weights" / "tokenizer.json"
INTERNALS = (
    "x-guidance",
    "rule_",
    "%json",
    "failed to compile",
    "$comment",
    "coerce_one_of",
    "non-verbose",
    "SearchRegex",
)
RECURSIVE: dict[str, Json] = {
    "$ref": "#/$defs/A",
    "$defs": {
        "B": {"properties": {"a": {"$ref": "#/$defs/A"}}},
        "A": {"properties": {"x/y": {"contains": {}}, "b": {"$ref": "#/$defs/B"}}},
    },
}
TWO: dict[str, Json] = {"oneOf": [{"type": "object", "properties": {name: {"type": "string"}}} for name in ("a", "b")]}


def _problem(text: str) -> str:
    with pytest.raises(RequestError) as told:
        Grammars(TOKENIZER, 4096, 2).compile(Grammar(text))
    found = told.value.problem
    assert not any(word in found for word in INTERNALS)
    return found.removeprefix("the answer cannot be constrained to this format: ")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array", "uniqueItems": True}, "the keyword uniqueItems is not supported (at #/uniqueItems"),
        (
            {"properties": {"not": {"anyOf": [{"type": "null"}, {"if": {}, "then": {}}]}}},
            "the keywords if, then are not supported (at #/properties/not/anyOf/1/if",
        ),
        (RECURSIVE, "the keyword contains is not supported (at #/$defs/A/properties/x~1y/contains"),
        (
            {"properties": {"a": {"type": "string", "pattern": "(?=a)b"}}},
            "the pattern (?=a)b cannot be read: look-around, including look-ahead and look-behind, is not supported"
            " (at #/properties/a",
        ),
        (
            {"type": "array", "items": {"$ref": "http://a/b"}},
            "the $ref 'http://a/b' leads out of the schema, and nothing is fetched (at #/items",
        ),
        (
            {"type": "string", "format": "date", "pattern": "^x"},
            "Unsatisfiable schema: no text fits its pattern, format and lengths together (at #",
        ),
        (TWO, "oneOf is not supported if its schemas cannot be distinguished; anyOf is (at #"),
        ({"enum": [{"not": 1}], "not": {}, "$comment": "mine"}, "the keyword not is not supported (at #/not"),
    ],
)
@pytest.mark.parametrize("of", ["", "the tool weather"])
def test_a_refused_schema_is_spoken_of_as_its_client_wrote_it(schema: dict[str, Json], words: str, of: str) -> None:
    lark = Lark(lambda _: None)
    text = lark.written(f"{lark.json({'type': 'object'})} {lark.json(schema, of=of)}")
    assert _problem(text) == f"{words}{' of the tool weather' if of else ''})"


def test_a_refused_pattern_or_grammar_is_spoken_of_without_the_rules_around_it() -> None:
    lark = Lark(lambda _: None)
    told = _problem(lark.written(lark.rule(regex("a{2,1}"))))
    assert told == "the pattern a{2,1} cannot be read: invalid repetition count range, the start must be <= the end"
    own = '{"grammars": [{"lark_grammar": "start: @answer"}, {"name": "answer", "lark_grammar": "start: nowhere"}]}'
    assert _problem(own) == 'at 1(8): unknown name: "nowhere"'
    endless = lark.written(lark.json({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}))
    assert _problem(endless) == "no answer could ever be complete"


def test_a_servers_refusal_is_handed_on_without_the_grammar_that_it_repeats() -> None:
    told = (
        'Grammar error: at 2(9): failed to compile JSON schema: Unimplemented keys: ["not"]\n   1 | start: rule_0\n'
        '   2 | rule_0: %json {"not": {}, "x-guidance": {}}\n               ^\n'
    )
    assert unquoted(told) == 'Grammar error: Unimplemented keys: ["not"]'
    assert unquoted("max_tokens is too large: 3 | 4") == "max_tokens is too large: 3 | 4"
