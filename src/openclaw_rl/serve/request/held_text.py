"""What a request constrains its answer's text to: a JSON schema, JSON, a regular expression, a choice or a grammar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from openclaw_rl.core.message import Json
from openclaw_rl.errors import RequestError
from openclaw_rl.render.lark import WHITESPACE, Lark, any_of, regex
from openclaw_rl.serve.apis.chat.wire import value_of
from openclaw_rl.serve.request.extras import Extras

_NAMES = ("json", "regex", "choice", "grammar", "json_object")
_IDLE = frozenset(("disable_fallback", "disable_additional_properties"))  # options of vLLM's own libraries
_SPACES = ("whitespace_pattern", "disable_any_whitespace")


@dataclass(frozen=True, slots=True)
class HeldText:
    """A rule for the text, or the client's whole grammar instead."""

    text: Callable[[Lark], str] | None = None
    own: str = ""
    param: str = ""  # the client's name for it


def held_text(body: Extras, format_: Json, param: str) -> HeldText | None:
    """The rule for the text, from the API's own `format_` (called `param` there) or from vLLM's parameters.

    None if the text is free. Raises RequestError if two rules are given or one cannot be read.
    """
    found = {param: _of_format(format_, param)}
    space = WHITESPACE if body.guided_whitespace_pattern is None else body.guided_whitespace_pattern
    schema = value_of(body.guided_json)
    if schema is not None:
        found["guided_json"] = _of_json(schema, "guided_json", space)
    if body.guided_regex is not None:
        found["guided_regex"] = _of_regex(body.guided_regex)
    if body.guided_choice is not None:
        found["guided_choice"] = _of_choice(body.guided_choice, "guided_choice")
    if body.guided_grammar is not None:
        found["guided_grammar"] = _of_grammar(body.guided_grammar, "guided_grammar")
    found["structured_outputs"] = _of_structured(value_of(body.structured_outputs))
    asked = {name: held for name, held in found.items() if held is not None}
    if len(asked) > 1:
        raise RequestError(
            f"several constraints on the answer are given: {', '.join(asked)}",
            fix="send one of them",
            param=list(asked)[1],
        )
    return next((replace(held, param=name) for name, held in asked.items()), None)


def _of_format(value: Json, param: str) -> HeldText | None:
    if value is None or value == {}:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if not isinstance(value, dict) or kind not in ("json_object", "json_schema"):
        raise RequestError(
            f"{param} is of type {kind!r}",
            fix="use text, json_object or json_schema",
            code="unsupported_parameter",
            param=param,
        )
    if kind == "json_object":
        return _of_json({"type": "object"}, param)
    inner = value.get("json_schema", value)
    if not isinstance(inner, dict):
        raise RequestError(f"{param}.json_schema is not an object", fix="send name and schema", param=param)
    return _of_json(inner.get("schema", {"type": "object"}), param)


def _of_structured(value: Json) -> HeldText | None:
    if value is None or value == {}:
        return None
    param = "structured_outputs"
    if not isinstance(value, dict):
        raise RequestError(f"{param} is not an object", fix="send one", param=param)
    given = {name: each for name, each in value.items() if each is not None and each is not False}
    strange = sorted(set(given) - set(_NAMES) - _IDLE - set(_SPACES))
    if strange:
        raise RequestError(
            f"{param}.{strange[0]} is not supported",
            fix=f"use one of {', '.join(_NAMES)}",
            code="unsupported_parameter",
            param=param,
        )
    asked = [name for name in _NAMES if name in given]
    if not asked:
        return None
    if len(asked) > 1:
        raise RequestError(f"{param} holds {' and '.join(asked)}", fix="send one of them", param=param)
    name, each = asked[0], given[asked[0]]
    pattern = given.get("whitespace_pattern", "" if "disable_any_whitespace" in given else WHITESPACE)
    if name == "json":
        return _of_json(each, f"{param}.json", str(pattern))
    if name == "json_object":
        return _of_json({"type": "object"}, param, str(pattern))
    if name == "choice":
        return _of_choice(each, f"{param}.choice")
    if not isinstance(each, str):
        raise RequestError(f"{param}.{name} is not a string", fix="send a text", param=param)
    return _of_regex(each) if name == "regex" else _of_grammar(each, f"{param}.grammar")


def _of_json(schema: Json, param: str, space: str = WHITESPACE) -> HeldText:
    if isinstance(schema, str):  # a schema may be sent as text
        try:
            schema = msgspec.json.decode(schema)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise RequestError(
                f"{param} is not valid JSON: {problem}", fix="send a JSON schema", param=param
            ) from problem
    if not isinstance(schema, dict | bool):
        raise RequestError(f"{param} is not a JSON schema", fix="send an object", param=param)
    return HeldText(partial(_json, schema=schema, space=space))


def _json(lark: Lark, *, schema: dict[str, Json] | bool, space: str) -> str:
    return lark.json(schema, space)


def _of_regex(pattern: str) -> HeldText:
    written = regex(pattern)
    return HeldText(lambda lark: lark.rule(written))


def _of_choice(choices: Json | list[str], param: str) -> HeldText:
    texts = [choice for choice in choices if isinstance(choice, str)] if isinstance(choices, list) else []
    if not isinstance(choices, list) or not texts or len(texts) != len(choices):
        raise RequestError(f"{param} is not a list of strings", fix="send at least one text", param=param)
    return HeldText(lambda lark: any_of([lark.text(text) for text in texts]))


def _of_grammar(grammar: str, param: str) -> HeldText:
    if not grammar.strip():
        raise RequestError(f"{param} is empty", fix="send a grammar in Lark or GBNF", param=param)
    if grammar.lstrip().startswith("{"):
        raise RequestError(f"{param} is JSON", fix="send a grammar in Lark or GBNF", param=param)
    return HeldText(own=grammar)
