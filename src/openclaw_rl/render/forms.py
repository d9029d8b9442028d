"""The form an answer is constrained to, and its grammar in a model's own format: thinking first, then text or calls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.message import Json
from openclaw_rl.core.sampling import Grammar
from openclaw_rl.errors import RequestError
from openclaw_rl.render.called import CallableTool, CallForm, unforced
from openclaw_rl.render.lark import Lark, any_of
from openclaw_rl.render.parsers import Family
from openclaw_rl.render.tagged_forms import glm_tags, qwen_coder_tags, tagged

_THINK = {Family.MISTRAL: ("[THINK]", "[/THINK]")}
_USUAL_THINK = ("<think>", "</think>")
_NAME = re.compile(r"[\w.:/-]+")
_OPEN: dict[str, Json] = {"type": "object"}
_JSON_HEAD, _JSON_FOOT = '\n{"name": "', "}\n"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form that a request constrains its answer to.

    `text` writes the rule of the answer's text; None leaves it free. `own` is a client's whole grammar instead, in Lark
    or GBNF. `tools` may be called, and with `needs_call` the answer must be a call.
    """

    text: Callable[[Lark], str] | None = None
    own: str = ""
    tools: tuple[CallableTool, ...] = ()
    needs_call: bool = False
    has_one_call: bool = False
    param: str = ""  # the client's name for it

    @property
    def is_needed(self) -> bool:
        """Whether it constrains more than the arguments of strict calls."""
        return self.needs_call or self.text is not None or bool(self.own)


@dataclass(frozen=True, slots=True)
class Speech:
    """The model's way of writing: its family, the text before an answer, and the ids that may end it.

    With `is_opened` only the prompt opens thinking; `is_bare` says that an answer is text only.
    `id_of` gives the id of a mark that is one token.
    """

    family: Family
    opening: str
    ends: tuple[int, ...]
    id_of: Callable[[str], int | None]
    is_fenced: bool = False
    is_bare: bool = False
    is_opened: bool = False


def grammar_of(form: AnswerForm, speech: Speech) -> Grammar | None:
    """The grammar; None if it would not constrain anything. Raises RequestError if it cannot be written."""
    lark = Lark(speech.id_of)
    calls = None
    if form.tools and not speech.is_bare:
        calls = call_form(speech.family, lark, form.tools, is_fenced=speech.is_fenced)
    if form.needs_call and calls is None:
        raise RequestError(
            "this model's chat template has no format for tool calls, so none can be forced",
            fix="leave tool_choice out",
            code="unsupported_parameter",
            param="tool_choice",
        )
    if not form.is_needed and (calls is None or not _is_told(calls, lark)):
        return None
    own = "@answer" if form.own else ""
    if speech.family is Family.HARMONY and not speech.is_bare:
        start = _harmony(form, lark, calls, own)
    else:
        body = _body(form, lark, calls, own)
        start = body if speech.is_bare else f"{_thought(speech, lark)} {body}"
    text = lark.written(start.strip())
    if form.own:
        own_rules = {"name": "answer", ("gbnf" if "::=" in form.own else "lark_grammar"): form.own}
        text = json.dumps({"grammars": [{"lark_grammar": text}, own_rules]})
    return Grammar(text, _ends(form, speech))


def _is_told(calls: CallForm, lark: Lark) -> bool:
    """Whether one token marks a call in free text, so that the text after it can be constrained."""
    return not calls.trigger or lark.is_token(calls.trigger)


def _ends(form: AnswerForm, speech: Speech) -> tuple[int, ...]:
    """A call of harmony ends with its own mark."""
    call = speech.id_of("<|call|>") if speech.family is Family.HARMONY else None
    if call is None or not form.tools:
        return speech.ends
    return (call,) if form.needs_call else tuple(dict.fromkeys((*speech.ends, call)))


def _body(form: AnswerForm, lark: Lark, calls: CallForm | None, own: str) -> str:
    called = "" if calls is None else calls.calls(is_single=form.has_one_call)
    if form.needs_call:
        return called
    if form.text is not None or own:
        text = own if form.text is None else form.text(lark)
        return any_of([text, called]) if called else text
    assert calls is not None
    if not calls.trigger:  # only its brace marks a call, so free text must not begin with one
        return any_of([lark.terminal(r"/([^{\s](?s:.*))?/"), called])
    return f"{lark.free(calls.trigger)} ({called})?"


def _thought(speech: Speech, lark: Lark) -> str:
    """The thinking in front: opened by the prompt, or by the answer if it may think."""
    opens, closes = _THINK.get(speech.family, _USUAL_THINK)
    opening = speech.opening.rstrip()
    is_open = opening.endswith(opens)
    if not is_open and (speech.is_opened or closes in opening or not lark.is_token(opens)):
        return ""
    if lark.is_token(closes):
        thinking = f"{lark.free(closes)} {lark.mark(closes)}"
    else:
        thinking = lark.rule("/(?s:.*)/", options=f"[suffix={json.dumps(closes)}]")
    thinking = f"{thinking} /\\n{{0,2}}/"
    lead = '"\\n"? ' if speech.family is Family.GLM else ""
    return thinking if is_open else f"({lead}{lark.mark(opens)} {thinking})?"


def _harmony(form: AnswerForm, lark: Lark, calls: CallForm | None, own: str) -> str:
    """Messages of analysis, then one that is the answer."""
    channel, message = lark.mark("<|channel|>"), lark.mark("<|message|>")
    between = f"{lark.mark('<|end|>')} {lark.mark('<|start|>')} {lark.text('assistant')}"
    thought = f"({channel} {lark.text('analysis')} {message} {lark.free()} {between})*"
    ways: list[str] = []
    if not form.needs_call:
        text = own or (lark.free() if form.text is None else form.text(lark))
        ways.append(f"{channel} {lark.text('final')} {message} {text}")
    if calls is not None:
        ways.append(calls.calls(is_single=True))
    return f"{thought} {any_of(ways)}"


def call_form(family: Family, lark: Lark, tools: Sequence[CallableTool], *, is_fenced: bool) -> CallForm | None:
    """How each family writes tool calls, as grammars: what is sampled by them is read as calls of these tools.

    How calls of these tools are written; None if the family writes none. Raises RequestError.

    `is_fenced` selects the older of DeepSeek's two formats.
    """
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            raise unforced(f"the name {tool.name!r} cannot be distinguished from the format's own marks")
    match family:
        case Family.HERMES:
            return _hermes(lark, tools)
        case Family.QWEN_CODER:
            return tagged(lark, tools, qwen_coder_tags(lark))
        case Family.GLM:
            return tagged(lark, tools, glm_tags(lark))
        case Family.LLAMA:
            return _llama(lark, tools)
        case Family.DEEPSEEK:
            return _deepseek(lark, tools, is_fenced=is_fenced)
        case Family.KIMI:
            return _kimi(lark, tools)
        case Family.MISTRAL:
            return _mistral(lark, tools)
        case Family.HARMONY:
            return _harmony_calls(lark, tools)
        case _:
            return None


def _each(lark: Lark, tools: Sequence[CallableTool], before: str, between: str) -> str:
    """The name of a tool between two expressions, and its arguments as JSON."""
    ways = [
        f"{lark.text(tool.name)} {between} {lark.json(_arguments(tool), of=f'the tool {tool.name}')}".strip()
        for tool in tools
    ]
    return f"{before} {any_of(ways)}"


def _arguments(tool: CallableTool) -> Mapping[str, Json]:
    """The schema of the arguments, always an object."""
    schema = _OPEN if tool.schema is None else tool.schema
    return schema if "type" in schema else {**schema, **_OPEN}


def _hermes(lark: Lark, tools: Sequence[CallableTool]) -> CallForm:
    opens, closes = lark.mark("<tool_call>"), lark.mark("</tool_call>")
    call = _each(lark, tools, f"{opens} {lark.text(_JSON_HEAD)}", lark.text('", "arguments": '))
    return CallForm(lark.rule(f"{call} {lark.text(_JSON_FOOT)} {closes}"), "<tool_call>", between=lark.text("\n"))


def _llama(lark: Lark, tools: Sequence[CallableTool]) -> CallForm:
    call = _each(lark, tools, lark.text('{"name": "'), lark.text('", "parameters": '))
    return CallForm(lark.rule(f"{call} {lark.text('}')}"), "", between=lark.text("; "))


def _deepseek(lark: Lark, tools: Sequence[CallableTool], *, is_fenced: bool) -> CallForm:
    separator = lark.mark("<｜tool▁sep｜>")
    opens, closes = lark.mark("<｜tool▁call▁begin｜>"), lark.mark("<｜tool▁call▁end｜>")
    if is_fenced:
        before, between, after = f"{opens} {lark.text('function')} {separator}", "\n```json\n", "\n```"
        call = f"{_each(lark, tools, before, lark.text(between))} {lark.text(after)} {closes}"
    else:
        call = f"{_each(lark, tools, opens, separator)} {closes}"
    calls_begin = "<｜tool▁calls▁begin｜>"
    return CallForm(
        lark.rule(call),
        calls_begin,
        opens=lark.mark(calls_begin),
        between=lark.text("\n") if is_fenced else "",
        closes=lark.mark("<｜tool▁calls▁end｜>"),
    )


def _kimi(lark: Lark, tools: Sequence[CallableTool]) -> CallForm:
    before = f"{lark.mark('<|tool_call_begin|>')} {lark.text('functions.')}"
    between = f"/:[0-9]{{1,3}}/ {lark.mark('<|tool_call_argument_begin|>')}"
    section = "<|tool_calls_section_begin|>"
    return CallForm(
        lark.rule(f"{_each(lark, tools, before, between)} {lark.mark('<|tool_call_end|>')}"),
        section,
        opens=lark.mark(section),
        closes=lark.mark("<|tool_calls_section_end|>"),
    )


def _mistral(lark: Lark, tools: Sequence[CallableTool]) -> CallForm:
    mark = "[TOOL_CALLS]"
    if lark.is_token("[ARGS]"):
        return CallForm(lark.rule(_each(lark, tools, lark.mark(mark), lark.mark("[ARGS]"))), mark)
    call = _each(lark, tools, lark.text('{"name": "'), lark.text('", "arguments": '))
    return CallForm(
        lark.rule(f"{call} {lark.text('}')}"),
        mark,
        opens=f'{lark.mark(mark)} " "? "["',
        between=lark.text(", "),
        closes=lark.text("]"),
    )


def _harmony_calls(lark: Lark, tools: Sequence[CallableTool]) -> CallForm:
    """One call: a second is another message."""
    before = f"{lark.mark('<|channel|>')} {lark.text('commentary to=functions.')}"
    between = f"{lark.text(' ')} {lark.mark('<|constrain|>')} {lark.text('json')} {lark.mark('<|message|>')}"
    return CallForm(lark.rule(_each(lark, tools, before, between)), "<|channel|>")
