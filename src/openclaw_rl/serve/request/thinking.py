"""How much a request wants the model to think, whichever of a dozen names it uses, as options of the chat template.

A template knows a switch, a level, a budget, or nothing. What it does not know has no effect, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from openclaw_rl.core.message import Json
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import value_of

_SWITCHES = ("enable_thinking", "thinking")  # as templates name them
_LEVEL, _BUDGET = "reasoning_effort", "thinking_budget"
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt"})


@dataclass(frozen=True, slots=True)
class ThinkingRequest:
    """One field about thinking: whether there should be any, how much of it, in how many tokens.

    If it has none of the three, its kind is unknown.
    """

    name: str
    is_on: bool | None = None
    level: str | None = None
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """Arguments of the chat template, and the fields that this template does not know."""

    values: dict[str, Json]
    ignored: list[str]


def options_of(kwargs: msgspec.Raw, wishes: Sequence[ThinkingRequest], known: Collection[str]) -> Options:
    """The options of a template that knows these names. `chat_template_kwargs` go first, then the wishes in order.

    Raises RequestError for arguments that are not the client's to set.
    """
    given = _arguments(kwargs)
    values = {name: value for name, value in given.items() if name in known}
    ignored = [f"chat_template_kwargs.{name}" for name in given if name not in known]
    for wish in wishes:
        found: dict[str, Json] = {}
        is_on = False if wish.level == "none" else wish.is_on
        if is_on is not None:
            found |= {name: is_on for name in _SWITCHES if name in known}
        if wish.level is not None and _LEVEL in known:
            found[_LEVEL] = wish.level
        if wish.budget is not None and _BUDGET in known:
            found[_BUDGET] = wish.budget
        if not found:
            ignored.append(wish.name)
        for name, value in found.items():
            values.setdefault(name, value)
    return Options(values, ignored)


def chat_wishes(
    effort: str | None, reasoning: msgspec.Raw, thinking: msgspec.Raw, enable_thinking: msgspec.Raw
) -> list[ThinkingRequest]:
    """The thinking fields of a chat request: OpenAI's `reasoning_effort`, and what other clients send instead."""
    found = [ThinkingRequest("reasoning_effort", level=effort)] if effort is not None else []
    held = value_of(enable_thinking)
    if held is not None:
        found.append(ThinkingRequest("enable_thinking", is_on=held if isinstance(held, bool) else None))
    return [*found, *_of_thinking(value_of(thinking)), *_of_reasoning(value_of(reasoning))]


def unheeded(sent: msgspec.Raw, name: str, known: Collection[str]) -> list[str]:
    """The fields of an object `name` that are not among these."""
    held = value_of(sent)
    return [f"{name}.{key}" for key in held if key not in known] if isinstance(held, dict) else []


def _of_thinking(held: Json) -> list[ThinkingRequest]:
    """`thinking` as a switch, or as Anthropic and others write it."""
    if held is None or isinstance(held, bool):
        return [] if held is None else [ThinkingRequest("thinking", is_on=held)]
    if not isinstance(held, dict):
        return [ThinkingRequest("thinking")]
    kind, budget = held.get("type"), held.get("budget_tokens")
    found = [ThinkingRequest("thinking", is_on=kind == "enabled")] if kind in ("enabled", "disabled") else []
    if kind not in (None, "enabled", "disabled", "adaptive", "auto"):
        found = [ThinkingRequest("thinking.type")]
    return [*found, ThinkingRequest("thinking.budget_tokens", budget=budget)] if isinstance(budget, int) else found


def _of_reasoning(held: Json) -> list[ThinkingRequest]:
    """`reasoning` as gateways write it: a level, a switch, a budget."""
    if held is None:
        return []
    if not isinstance(held, dict):
        return [ThinkingRequest("reasoning")]
    level, is_on, budget = held.get("effort"), held.get("enabled"), held.get("max_tokens")
    found = [ThinkingRequest("reasoning.effort", level=level)] if isinstance(level, str) else []
    if isinstance(is_on, bool):
        found.append(ThinkingRequest("reasoning.enabled", is_on=is_on))
    return [*found, ThinkingRequest("reasoning.max_tokens", budget=budget)] if isinstance(budget, int) else found


def _arguments(sent: msgspec.Raw) -> dict[str, Json]:
    given = value_of(sent)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise RequestError("chat_template_kwargs is not an object", fix="send one", param="chat_template_kwargs")
    reserved = sorted(_RESERVED & given.keys())
    if reserved:
        raise RequestError(
            f"chat_template_kwargs sets {', '.join(reserved)}",
            fix="use the request's own parameters",
            param="chat_template_kwargs",
        )
    return given
