"""Every field of every route, as every wrong type and size: made from the served description, one request for each.

A place is a field somewhere in a body, or a header, a query parameter or a part of a path. What stands around it is
valid, so that nothing else is what gets the request refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from benchmarks.fuzz_raw import BODIES, Shot, request_bytes

Schema = Mapping[str, object]
Builder = Callable[[object], object]
DEPTH = 6  # objects and lists in one another: blocks hold blocks
MARK = "the value stands here"
LARGE = 1 << 20
# Values as JSON text, since no library writes some of them.
VALUES: dict[str, str] = {
    "null": "null",
    "true": "true",
    "false": "false",
    "minus one": "-1",
    "zero": "0",
    "one": "1",
    "past 31 bits": str(2**31),
    "past 63 bits": str(2**63),
    "past 64 bits": str(2**64 + 1),
    "least of 64 bits": str(-(2**63)),
    "400 digits": "1" + "0" * 400,
    "5,000 digits": "9" * 5000,
    "a share": "0.5",
    "least float": "5e-324",
    "largest float": "1e308",
    "infinite": "1e999",
    "NaN": "NaN",
    "Infinity": "-Infinity",
    "empty": '""',
    "a letter": '"x"',
    "spaces": '"  \\t\\n "',
    "NUL": '"\\u0000"',
    "half a pair": '"\\ud83d"',
    "pairs turned": '"\\udc00\\ud83d"',
    "last letters": '"' + "\\udbff\\udfff" * 40 + '"',
    "600 letters": '"' + "x" * 600 + '"',
    "a megabyte": '"' + "word and " * (LARGE // 9) + '"',
    "empty list": "[]",
    "list of null": "[null]",
    "list of numbers": "[1, -1, 2.5]",
    "list of ids": "[-1]",
    "list of lists": "[[[]], [1, [2]]]",
    "list of texts": '["", "x"]',
    "long list": "[" + "1," * 100_000 + "1]",
    "empty object": "{}",
    "an object": '{"a": 1}',
    "an object of its like": '{"type": "object", "role": {}, "name": [], "id": 0, "function": "x", "text": null}',
    "empty key": '{"": {"": ""}}',
    "deep list": "[" * 2000 + "]" * 2000,
    "deep object": '{"a":' * 2000 + "1" + "}" * 2000,
}
TEXTS: dict[str, str] = {  # of headers, queries and paths
    "nothing": "",
    "a letter": "x",
    "600 letters": "x" * 600,
    "6,000 letters": "x" * 6000,
    "a number": "-1",
    "a long number": "9" * 5000,
    "an object": '{"a": [1]}',
    "outside ASCII": "ü€😀",
    "a step up": "../..",
    "a slash": "a/b",
    "an escape": "%00%ff",
    "words": "a b\tc",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A field of a body: where it is, and the body around a value for it."""

    method: str
    path: str
    name: str
    body: Builder


def field_shots(description: Schema, *, every: int = 1) -> Iterator[Shot]:
    """Each value in each place; or each `every`-th pair of them, so that every place and value still comes up."""
    at = 0
    for place in places_of(description):
        for name, text in VALUES.items():
            at += 1
            if at % every == 0:
                body = json.dumps(place.body(MARK)).replace(json.dumps(MARK), text).encode()
                asked = f"{place.method} {place.path} {place.name} = {name}"
                yield Shot(asked, request_bytes(place.path, body, method=place.method))
    for asked, method, path, header in _worded(description):
        at += 1
        if at % every == 0:
            body = json.dumps(BODIES.get(path.partition("?")[0], {})).encode() if method != "GET" else b""
            yield Shot(asked, request_bytes(path, body, *header, method=method))


def places_of(description: Schema) -> Iterator[Place]:
    """Every field of every body that is described."""
    components = _object(_object(description["components"])["schemas"])
    for path, operations in _object(description["paths"]).items():
        for method, operation in _object(operations).items():
            held = _object(operation).get("requestBody")
            if held is None:
                continue
            schema = _object(_object(_object(held)["content"])["application/json"])["schema"]
            for name, body in _fields(_object(schema), components, _example(path), DEPTH):
                yield Place(method.upper(), path.replace("{id}", "x"), name or "body", body)


def _fields(schema: Schema, known: Schema, around: object, depth: int) -> Iterator[tuple[str, Builder]]:
    """Places in this schema, the schema itself first; `around` is what a valid body holds here, where that is known."""
    yield "", lambda value: value
    for option in _options(schema, known):
        properties = option.get("properties")
        if depth and properties is not None:
            valid = dict(around) if isinstance(around, dict) else _least(option, known)
            for name, inner in _object(properties).items():
                for below, build in _fields(_object(inner), known, valid.get(name), depth - 1):
                    yield f"{name}{'.' if below else ''}{below}", _in_object(valid, name, build)
        items = option.get("items")
        if depth and items is not None:
            first, *others = around if isinstance(around, list) and around else (None,)
            for below, build in _fields(_object(items), known, first, depth - 1):
                yield f"[0]{'.' if below else ''}{below}", _in_list(build, others)


def _in_object(valid: dict[str, object], name: str, build: Builder) -> Builder:
    return lambda value: {**valid, name: build(value)}


def _in_list(build: Builder, others: Sequence[object]) -> Builder:
    return lambda value: [build(value), *others]


def _options(schema: Schema, known: Schema) -> Iterator[Schema]:
    """The schema, or each that it may be."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield from _options(_object(known[reference.rpartition("/")[2]]), known)
    elif isinstance(choices := schema.get("anyOf"), list):
        for option in choices:
            yield from _options(_object(option), known)
    else:
        yield schema


def _least(schema: Schema, known: Schema) -> dict[str, object]:
    """The least that this object may hold."""
    required, properties = schema.get("required"), _object(schema.get("properties", {}))
    names = required if isinstance(required, list) else []
    return {name: _valid(_object(properties[name]), known) for name in names}


def _valid(schema: Schema, known: Schema) -> object:
    option = next(_options(schema, known))
    choices = option.get("enum")
    if isinstance(choices, list):
        return choices[0]
    match option.get("type"):
        case "object":
            return _least(option, known)
        case "array":
            return []
        case "integer" | "number":
            return 1
        case "boolean":
            return True
    return "x"


def _worded(description: Schema) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Each text in each header, query and path: what is asked, the method, the path and the header."""
    for path, operations in _object(description["paths"]).items():
        for method, operation in _object(operations).items():
            parameters = _object(operation).get("parameters")
            for parameter in parameters if isinstance(parameters, list) else []:
                name, place = str(parameter["name"]), parameter["in"]
                for what, text in TEXTS.items():
                    asked = f"{method.upper()} {path} {place} {name} = {what}"
                    plain = re.sub(r"{\w+}", "x", path)
                    if place == "header":
                        yield asked, method.upper(), plain, (f"{name}: {text}",)
                    elif place == "query":
                        yield asked, method.upper(), f"{plain}?{name}={quote(text, safe='')}", ()
                    else:
                        yield asked, method.upper(), path.replace(f"{{{name}}}", quote(text, safe="%")), ()


def _example(path: str) -> object:
    """A valid body for the path; nothing is streamed, so that the status tells of the whole answer."""
    held = BODIES.get(path)
    return None if held is None else {**held, "stream": False} if "stream" in held else dict(held)


def _object(held: object) -> dict[str, object]:
    assert isinstance(held, dict)
    return held
