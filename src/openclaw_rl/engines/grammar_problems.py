"""The grammar library's refusals, in terms of what the client sent, without the rules that were added around it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

MOST_TRIED = 64  # schemas within a schema, to find the one that is wrong
_JSON = re.compile(r"^at (\d+)\(\d+\): failed to compile JSON schema: (.*)", re.DOTALL)
_PLACE = re.compile(r"^at \d+\(\d+\): ")
_WHERE = re.compile(r"at \d+\(\d+\): failed to compile JSON schema: ")
_QUOTED = re.compile(r"^\s*\d+ \| .*$|^[\s^]*$", re.MULTILINE)
_KEYS = re.compile(r"^Unimplemented keys: (\[.*\])$")
_REGEX = re.compile(
    r'^(?:invalid regex "(?P<of>.*)" \(in regex\): )?regex parse error: (?P<shown>.*) error: (?P<why>.*)$'
)
_OWN_WORDS = (
    (re.compile(r" <non-verbose/>"), ""),
    (re.compile(r"^NoExtensionBias$"), "no answer could ever be complete"),
    (
        re.compile(r"^Parser Error: Current row has (\d+) items; max is (\d+).*"),
        r"\1 items may follow in one place, and at most \2 are possible",
    ),
    (re.compile(r"Regex is empty:.*"), "no text fits its pattern, format and lengths together"),
    (
        re.compile(r"oneOf constraints are not supported\..*"),
        "oneOf is not supported if its schemas cannot be distinguished; anyOf is",
    ),
    (
        re.compile(r"Resource '(.*?)' is not present in a registry.*"),
        r"the $ref '\1' leads out of the schema, and nothing is fetched",
    ),
)
_MOST_CHARS = 400

Tried = Callable[[str], str]


def problem_of(message: str, text: str, tried: Tried) -> str:
    """Why a grammar is refused. `tried` returns the library's refusal of another one, empty if it accepts it."""
    found = _JSON.match(message)
    if found is None:
        return plain(
            message if text.startswith("{") else _PLACE.sub("", message)
        )  # the lines are those of a client's grammar
    why = plain(found[2])
    for rule in _rules(text, int(found[1])):
        schema = _schema_in(rule)
        if isinstance(schema, dict):
            return f"{why} ({_place(schema, message, why, tried)})"
    return why


def unquoted(message: str) -> str:
    """A server's refusal in one line, without the grammar that its library repeats."""
    return " ".join(_WHERE.sub("", _QUOTED.sub("", message)).split())


def plain(message: str) -> str:
    """The library's message in one line, without the grammar that it repeats and without its internal names."""
    why = " ".join(_QUOTED.sub("", message).split())[:_MOST_CHARS]
    keys = _KEYS.match(why)
    if keys is not None:
        names = json.loads(keys[1])
        many = "s" if len(names) > 1 else ""
        return f"the keyword{many} {', '.join(names)} {'are' if many else 'is'} not supported"
    pattern = _REGEX.match(why)
    if pattern is not None:
        return f"the pattern {pattern['of'] or pattern['shown']} cannot be read: {pattern['why']}"
    for words, own in _OWN_WORDS:
        why = words.sub(own, why)
    return why


def _rules(text: str, line: int) -> Iterator[str]:
    """The lines with this number, one from each part of the grammar."""
    parts = [text]
    if text.startswith("{"):
        parts = [str(part.get("lark_grammar", "")) for part in json.loads(text)["grammars"]]
    for part in parts:
        lines = part.split("\n")
        if line <= len(lines) and "%json" in lines[line - 1]:
            yield lines[line - 1]


def _schema_in(rule: str) -> object:
    try:
        return json.JSONDecoder().raw_decode(rule.partition("%json")[2].lstrip())[0]
    except ValueError:
        return None  # a client's own grammar, which continues on the next line


def _place(schema: dict[str, object], message: str, why: str, tried: Tried) -> str:
    """A JSON pointer to the fault: the innermost schema that is refused with the same message."""
    kept = {name: schema[name] for name in ("$defs", "definitions", "x-guidance") if name in schema}
    pointer, inner, left, seen = "#", schema, MOST_TRIED, set[str]()
    while True:
        for at, each in _within(inner, schema, pointer):
            if left == 0 or at in seen:
                continue
            left -= 1
            seen.add(at)
            answer = _JSON.match(tried(f"start: %json {json.dumps({**kept, **each})}"))
            if answer is not None and plain(answer[2]) == why:
                pointer, inner = at, each
                break
        else:
            break
    of = schema.get("$comment")
    names = re.match(r"the keywords? (.*?)(?:,| is| are)", why)
    if names is not None and names[1] in inner:
        pointer += f"/{_escaped(names[1])}"
    return f"at {pointer}{f' of {of}' if of else ''}"


def _within(schema: dict[str, object], whole: dict[str, object], at: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The schemas directly inside a schema, and the one that it refers to, with their pointers."""
    refers = schema.get("$ref")
    if isinstance(refers, str) and refers.startswith("#/"):
        target: object = whole
        for part in refers[2:].split("/"):
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        if isinstance(target, dict):
            yield refers, target
    for name, value in schema.items():
        if name in ("enum", "const", "default", "examples", "x-guidance"):
            continue
        if name in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"):
            inside = value.items() if isinstance(value, dict) else ()
            yield from ((f"{at}/{name}/{_escaped(key)}", each) for key, each in inside if isinstance(each, dict))
        elif isinstance(value, dict):
            yield f"{at}/{name}", value
        elif isinstance(value, list):
            yield from ((f"{at}/{name}/{index}", each) for index, each in enumerate(value) if isinstance(each, dict))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
