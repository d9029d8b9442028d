"""Grammars in Lark's syntax as llguidance reads it, written rule by rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from openclaw_rl.core.message import Json

# A single space, or a new line and an indent: what JSON writers emit. Without a bound, a small model fills an
# answer with it.
WHITESPACE = r"( |\n[ \t]{0,40})"
# The library allows a leap second in any minute; validators do not.
_SECONDS = {"time": "^[0-9]{2}:[0-9]{2}:[0-5]", "date-time": "^[^:]*:[0-9]{2}:[0-5]"}
_META = frozenset("\\.^$|?*+()[]{}/")
_SCHEMAS = ("items", "additionalProperties", "not", "contains", "if", "then", "else", "propertyNames")
_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_OPENS = frozenset(("additionalProperties", "patternProperties", "unevaluatedProperties"))
_JOINS = frozenset(("anyOf", "oneOf", "$ref", "if", "dependentSchemas"))
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
# A `format` is a note unless a validator is asked to check it; these are checked, all others are notes.
_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown")
)


class Lark:
    """Rules as they are added. `id_of` gives the id of a mark that is one token of the model's vocabulary."""

    def __init__(self, id_of: Callable[[str], int | None]) -> None:
        self._id_of = id_of
        self._rules: dict[str, str] = {}  # bodies and their names

    def text(self, text: str) -> str:
        """This very text."""
        return json.dumps(text, ensure_ascii=False)

    def mark(self, mark: str) -> str:
        """One of the format's marks, as its own token if it is one."""
        found = self._id_of(mark)
        return self.text(mark) if found is None else f"<[{found}]>"

    def is_token(self, mark: str) -> bool:
        """Whether the mark is one token."""
        return self._id_of(mark) is not None

    def rule(self, body: str, *, options: str = "") -> str:
        """The name of a rule with this body."""
        return self._named("rule_", body, options)

    def terminal(self, body: str) -> str:
        """The name of a terminal: a regular expression, read as one piece."""
        return self._named("PIECE_", body)

    def free(self, *without: str) -> str:
        """Any text that contains none of these."""
        parts = " ".join(f"& ~/(?s:.*){regex_of(each)}(?s:.*)/" for each in without)
        return self.terminal(f"/(?s:.*)/ {parts}".strip())

    def json(self, schema: Mapping[str, Json] | bool, whitespace: str = WHITESPACE, *, of: str = "") -> str:
        """JSON of this schema; `whitespace` may stand where JSON allows it, nothing if it is empty.

        `of` says whose schema it is, for the message if the library refuses it.
        """
        found = prepared(schema, whitespace)
        if isinstance(found, dict) and (of or "$comment" in found):
            found = {**found, "$comment": of}
        return self.rule(f"%json {json.dumps(found, ensure_ascii=False)}")

    def written(self, start: str) -> str:
        """The grammar that begins with this expression."""
        rules = (f"{name}: {body}" for body, name in self._rules.items())
        return "\n".join((f"start: {start}", *rules))

    def _named(self, prefix: str, body: str, options: str = "") -> str:
        found = self._rules.get(body)
        if found is None:
            found = self._rules[body] = f"{prefix}{len(self._rules)}{options}"
        return found.partition("[")[0]


def any_of(choices: list[str]) -> str:
    """One of these expressions."""
    return choices[0] if len(choices) == 1 else f"({' | '.join(choices)})"


def regex_of(text: str) -> str:
    """A regular expression, for use between slashes, that matches exactly this text."""
    return "".join(f"\\{char}" if char in _META else char for char in text).replace("\n", "\\n")


def regex(pattern: str) -> str:
    """A client's regular expression between slashes."""
    found, is_escaped = [], False
    for char in pattern:
        if char == "/" and not is_escaped:
            found.append("\\/")
        elif char == "\n":
            found.append("n" if is_escaped else "\\n")
        else:
            found.append(char)
        is_escaped = char == "\\" and not is_escaped
    return f"/{''.join(found)}/"


def prepared(schema: Mapping[str, Json] | bool, whitespace: str = WHITESPACE) -> Json:
    """The schema for the library: with a rule for white space, and without formats that nobody checks.

    Objects contain only the properties they name unless they set `additionalProperties`. The result is
    still valid, and a small model that may add properties hardly ends.
    """
    guidance: dict[str, Json] = {"whitespace_pattern": whitespace} if whitespace else {"whitespace_flexible": False}
    found = {} if schema is True else _checked(schema, closes=not _is_joined(schema))
    return {**found, "x-guidance": guidance} if isinstance(found, dict) else found


def _inner(schema: Mapping[str, Any]) -> list[Any]:
    """The direct subschemas of a schema."""
    found = [value for name, value in schema.items() if name in _SCHEMAS]
    for name, value in schema.items():
        if name in _SCHEMA_MAPS and isinstance(value, Mapping):
            found += value.values()
        elif name in _SCHEMA_LISTS and isinstance(value, list):
            found += value
    return found


def _is_joined(schema: Any) -> bool:
    """Whether several places describe one object in it, each with its own properties."""
    if not isinstance(schema, Mapping):
        return False
    if len(_JOINS & schema.keys()) > ("properties" not in schema) or "allOf" in schema:
        return True
    return any(_is_joined(each) for each in _inner(schema))


def _checked(schema: Any, *, closes: bool) -> Json:
    """The schema without formats that are only notes; `closes` objects that name properties."""
    if not isinstance(schema, Mapping):
        return schema  # type: ignore[no-any-return]  # true, false, or what the library refuses
    found: dict[str, Json] = {}
    for name, value in schema.items():
        if name in _SCHEMAS and isinstance(value, Mapping):
            found[name] = _checked(value, closes=closes)
        elif name in _SCHEMA_MAPS and isinstance(value, Mapping):
            found[name] = {key: _checked(each, closes=closes) for key, each in value.items()}
        elif name in _SCHEMA_LISTS and isinstance(value, list):
            found[name] = [_checked(each, closes=closes) for each in value]
        elif name != "format" or value in _FORMATS:
            found[name] = value
    if schema.get("format") in _SECONDS and "pattern" not in schema:
        found["pattern"] = _SECONDS[str(schema["format"])]
    properties, required = schema.get("properties"), schema.get("required", [])
    may_close = closes and isinstance(properties, Mapping) and isinstance(required, list) and not _OPENS & schema.keys()
    if may_close and properties and all(name in properties for name in required):
        found["additionalProperties"] = False
    return found
