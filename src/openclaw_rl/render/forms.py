"""What an answer is held to, and the grammar of it in a model's own format: thinking first, then text or calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from openclaw_rl.core.sampling import Grammar
from openclaw_rl.errors import RequestError
from openclaw_rl.render.call_forms import call_form
from openclaw_rl.render.called import CallableTool, CallForm
from openclaw_rl.render.lark import Lark, any_of
from openclaw_rl.render.parsers import Family

_THINK = {Family.MISTRAL: ("[THINK]", "[/THINK]")}
_USUAL_THINK = ("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What a request holds its answer to.

    `text` writes the rule of the answer's text; None leaves it free. `own` is a client's whole grammar instead, in Lark
    or GBNF. `tools` are those that may be called, and with `needs_call` nothing else is an answer.
    """

    text: Callable[[Lark], str] | None = None
    own: str = ""
    tools: tuple[CallableTool, ...] = ()
    needs_call: bool = False
    has_one_call: bool = False
    param: str = ""  # as its client called it

    @property
    def is_needed(self) -> bool:
        """Whether another answer would be wrong, beyond the arguments of calls that are strict."""
        return self.needs_call or self.text is not None or bool(self.own)


@dataclass(frozen=True, slots=True)
class Speech:
    """How the model at hand writes: its family, what an answer begins after, and which ids may end it.

    With `is_opened` the prompt opens all thinking there is; `is_bare` says that an answer is text and nothing else.
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
    """The grammar; None where it would hold nothing. Raises RequestError where it cannot be written."""
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
    """Whether a call in free text is told by one token, so that what follows it can be held."""
    return not calls.trigger or lark.is_token(calls.trigger)


def _ends(form: AnswerForm, speech: Speech) -> tuple[int, ...]:
    """A call of harmony ends with a mark of its own."""
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
    if not calls.trigger:  # a call is told by its brace alone: free text must not begin with one
        return any_of([lark.terminal(r"/([^{\s](?s:.*))?/"), called])
    return f"{lark.free(calls.trigger)} ({called})?"


def _thought(speech: Speech, lark: Lark) -> str:
    """What is thought in front: opened by the prompt, or by the answer where it may think at all."""
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
