"""Calls whose arguments are in tags, as grammars: texts are written bare, all else as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.message import Json
from openclaw_rl.render.called import CallableTool, CallForm, unforced
from openclaw_rl.render.lark import Lark, any_of, regex, regex_of

# Keys of an argument's schema that do not change what is written.
_NOTES = frozenset({"title", "description", "default", "examples", "$comment", "deprecated", "format"})
_OF_TEXT = frozenset({"type", "enum", "const", "minLength", "maxLength", "pattern"}) | _NOTES
_OF_ARGUMENTS = frozenset({"type", "properties", "required", "additionalProperties", "$defs", "definitions", "$schema"})
# A text that would be read as JSON unless the schema says directly that it is a text.
_READ_AS_JSON = r"/\s*(-?[0-9.eE+\-]+|true|false|null|[\[{\"](?s:.*))?\s*/"
_MOST_REFS = 32


@dataclass(frozen=True, slots=True)
class TagGrammar:
    """The format of one family: expressions before a call's arguments and each value, and around a call.

    `closes` is the text after a value, and `after` what follows it.
    """

    head: Callable[[str], str]
    key: Callable[[str], str]
    any_key: str
    closes: str
    after: str
    foot: str


def qwen_coder_tags(lark: Lark) -> TagGrammar:
    """<function=name>, <parameter=key> value </parameter>, </function>."""
    return TagGrammar(
        head=lambda name: lark.text(f"\n<function={name}>\n"),
        key=lambda name: lark.text(f"<parameter={name}>\n"),
        any_key=rf"{lark.text('<parameter=')} /[^<>\n]+/ {lark.text('>' + chr(10))}",
        closes="\n</parameter>\n",
        after="",
        foot=lark.text("</function>\n"),
    )


def glm_tags(lark: Lark) -> TagGrammar:
    """name, <arg_key>key</arg_key>, <arg_value>value</arg_value>."""
    opens, between = (
        lark.mark("<arg_key>"),
        f"{lark.mark('</arg_key>')} {lark.text(chr(10))} {lark.mark('<arg_value>')}",
    )
    return TagGrammar(
        head=lambda name: lark.text(f"{name}\n"),
        key=lambda name: f"{opens} {lark.text(name)} {between}",
        any_key=rf"{opens} /[^<>\n]+/ {between}",
        closes="</arg_value>",
        after=lark.text("\n"),
        foot="",
    )


def tagged(lark: Lark, tools: Sequence[CallableTool], tags: TagGrammar) -> CallForm:
    """Calls of these tools. Raises RequestError for arguments that cannot be constrained to their schema there."""
    opens, closes = lark.mark("<tool_call>"), lark.mark("</tool_call>")
    ways = any_of([_call(lark, tool, tags) for tool in tools])
    return CallForm(lark.rule(f"{opens} {ways} {tags.foot} {closes}"), "<tool_call>", between=lark.text("\n"))


def _call(lark: Lark, tool: CallableTool, tags: TagGrammar) -> str:
    """The rule of one tool's name and arguments."""
    schema, head = tool.schema, tags.head(tool.name)
    if schema is None:
        return lark.rule(f"{head} ({tags.any_key} {_text(lark, tags, {}, is_told=True)})*")
    strange = sorted(set(schema) - _OF_ARGUMENTS - _NOTES)
    if strange:
        raise unforced(f"the arguments of {tool.name} are more than a list of properties: {strange[0]}")
    properties, needed = schema.get("properties"), schema.get("required")
    held: Mapping[str, Json] = properties if isinstance(properties, dict) else {}
    required = [str(name) for name in needed] if isinstance(needed, list) else []
    pairs = []
    for name in (*held, *(name for name in required if name not in held)):
        of = f"the argument {name} of the tool {tool.name}"
        pair = f"{tags.key(name)} {_value(lark, tags, held.get(name, {}), schema, of=of)}"
        pairs.append(pair if name in required else f"({pair})?")
    return lark.rule(" ".join((head, *pairs)))


def _value(lark: Lark, tags: TagGrammar, schema: Json, whole: Mapping[str, Json], *, of: str) -> str:
    """One value, and what closes it. `of` names it."""
    if not isinstance(schema, dict) or not set(schema) - _NOTES:
        return _text(lark, tags, {}, is_told=True)  # any value
    definitions = {name: whole[name] for name in ("$defs", "definitions") if name in whole}
    ways = []
    for way in _ways(schema, whole, left=_MOST_REFS):
        if way.get("type") == "string":
            ways.append(_text(lark, tags, way, is_told=schema.get("type") == "string"))
        else:
            ways.append(f"{lark.json({**definitions, **way}, of=of)} {_closing(lark, tags)}")
    return any_of(ways)


def _ways(schema: Mapping[str, Json], whole: Mapping[str, Json], *, left: int) -> list[Mapping[str, Json]]:
    """The kinds of value that a schema allows: texts are distinguished from all others."""
    if "$ref" in schema:
        target = _target(schema["$ref"], whole)
        if target is None or left <= 0 or set(schema) - _NOTES - {"$ref"}:
            raise unforced(f"an argument given as {schema['$ref']}")
        return _ways(target, whole, left=left - 1)
    for name in ("anyOf", "oneOf"):
        several = schema.get(name)
        if isinstance(several, list):
            if set(schema) - _NOTES - {name}:
                raise unforced(f"{name} of an argument together with {sorted(set(schema) - _NOTES - {name})[0]}")
            return [way for one in several if isinstance(one, dict) for way in _ways(one, whole, left=left - 1)]
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return [way for kind in kinds for way in _ways({**schema, "type": kind}, whole, left=left - 1)]
    if kinds is None:
        choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if not isinstance(choices, list):
            raise unforced("an argument without a type")
        texts: list[Json] = [choice for choice in choices if isinstance(choice, str)]
        others: list[Json] = [choice for choice in choices if not isinstance(choice, str)]
        found: list[Mapping[str, Json]] = [{"type": "string", "enum": texts}] if texts else []
        return [*found, {"enum": others}] if others else found
    return [schema]


def _target(name: Json, whole: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """The target of a reference within the same schema."""
    if not isinstance(name, str) or not name.startswith("#/"):
        return None
    found: Json = dict(whole)
    for part in name[2:].split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _text(lark: Lark, tags: TagGrammar, schema: Mapping[str, Json], *, is_told: bool) -> str:
    """A text, and what closes it. Unless the schema says directly that it is one, it must not read as JSON."""
    strange = sorted(set(schema) - _OF_TEXT)
    if strange:
        raise unforced(f"{strange[0]} of a text that is an argument")
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, list):
        if not is_told and any(_reads_as_json(str(choice)) for choice in choices):
            raise unforced("a choice that reads as JSON, of an argument without a type")
        return f"{any_of([lark.text(str(choice)) for choice in choices])} {_closing(lark, tags)}"
    body = _body(schema)
    if is_told and not lark.is_token(tags.closes):
        return lark.rule(f"/{body}/", options=f"[suffix={json.dumps(tags.closes)}]")
    without = "" if is_told else f" & ~{_READ_AS_JSON}"
    if lark.is_token(tags.closes):
        piece = lark.terminal(f"/{body}/ & ~/(?s:.*){regex_of(tags.closes)}(?s:.*)/{without}")
        return f"{piece} {_closing(lark, tags)}"
    return lark.rule(lark.terminal(f"/{body}/{without}"), options=f"[suffix={json.dumps(tags.closes)}]")


def _body(schema: Mapping[str, Json]) -> str:
    least, most, pattern = schema.get("minLength", 0), schema.get("maxLength", ""), schema.get("pattern")
    if pattern is None:
        return f"(?s:.){{{least},{most}}}" if least or most != "" else "(?s:.*)"
    if not isinstance(pattern, str) or least or most != "" or pattern[:1] != "^" or pattern[-1:] != "$":
        raise unforced(f"the pattern {pattern} of a text that is an argument: write it as ^...$, without a length")
    return regex(pattern[1:-1])[1:-1]


def _closing(lark: Lark, tags: TagGrammar) -> str:
    closes = lark.mark(tags.closes) if lark.is_token(tags.closes) else lark.text(tags.closes)
    return f"{closes} {tags.after}"


def _reads_as_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
