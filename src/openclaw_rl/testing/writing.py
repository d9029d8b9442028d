"""Answers in each family's format: the text a model would sample, without its end mark."""

from __future__ import annotations

import json
from collections.abc import Sequence

from openclaw_rl.core.message import Json, Message, ToolCall
from openclaw_rl.testing.families import StandIn


def written(model: StandIn, reply: Message, *, opening: str = "") -> str:
    """The reply as this model writes it after the template's opening."""
    if model.name == "gpt_oss":
        return _harmony(reply, opening)
    calls = _CALLS[model.name](reply.tool_calls)
    gap = "\n" if calls and reply.text and calls.startswith("<tool_call>") else ""
    return _thinking(model, reply.reasoning, opening) + reply.text + gap + calls


def end_of(model: StandIn, reply: Message) -> str:
    """The mark this model ends the reply with."""
    if model.name == "gpt_oss":
        return "<|call|>" if reply.tool_calls else "<|return|>"
    if model.name == "glm45":
        return "<|observation|>" if reply.tool_calls else "<|user|>"
    return model.eos


def _thinking(model: StandIn, thought: str | None, opening: str) -> str:
    is_open = opening.rstrip().endswith("<think>")
    if thought is None and not is_open:
        return ""
    marks = ("<think>\n", "\n</think>\n\n") if model.name in ("qwen3", "deepseek_v3") else ("<think>", "</think>")
    return ("" if is_open else marks[0]) + (thought or "") + marks[1]


def _values(call: ToolCall) -> list[tuple[str, str]]:
    given = call.parsed()
    assert isinstance(given, dict)
    return [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in given.items()]


def _hermes(calls: Sequence[ToolCall]) -> str:
    return "\n".join(
        f'<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}\n</tool_call>'
        for call in calls
    )


def _qwen_coder(calls: Sequence[ToolCall]) -> str:
    return "\n".join(
        f"<tool_call>\n<function={call.name}>\n"
        + "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in _values(call))
        + "</function>\n</tool_call>"
        for call in calls
    )


def _llama(calls: Sequence[ToolCall]) -> str:
    return "; ".join(f'{{"name": {json.dumps(call.name)}, "parameters": {call.arguments}}}' for call in calls)


def _deepseek_v3(calls: Sequence[ToolCall]) -> str:
    inside = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.name}\n```json\n{call.arguments}\n```<｜tool▁call▁end｜>"
        for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{inside}<｜tool▁calls▁end｜>" if calls else ""


def _deepseek_v31(calls: Sequence[ToolCall]) -> str:
    inside = "".join(
        f"<｜tool▁call▁begin｜>{call.name}<｜tool▁sep｜>{call.arguments}<｜tool▁call▁end｜>" for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{inside}<｜tool▁calls▁end｜>" if calls else ""


def _glm(calls: Sequence[ToolCall]) -> str:
    return "\n".join(
        f"<tool_call>{call.name}\n"
        + "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in _values(call))
        + "</tool_call>"
        for call in calls
    )


def _kimi(calls: Sequence[ToolCall]) -> str:
    inside = "".join(
        f"<|tool_call_begin|>functions.{call.name}:{index}<|tool_call_argument_begin|>{call.arguments}<|tool_call_end|>"
        for index, call in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inside}<|tool_calls_section_end|>" if calls else ""


def _mistral_v3(calls: Sequence[ToolCall]) -> str:
    inside = ", ".join(f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}' for call in calls)
    return f"[TOOL_CALLS] [{inside}]" if calls else ""


def _mistral_v11(calls: Sequence[ToolCall]) -> str:
    return "".join(f"[TOOL_CALLS]{call.name}[ARGS]{call.arguments}" for call in calls)


def _harmony(reply: Message, opening: str) -> str:
    parts: list[str] = []
    if reply.reasoning is not None:
        parts.append(f"<|channel|>analysis<|message|>{reply.reasoning}")
    if reply.text:
        channel = "commentary" if reply.tool_calls else "final"
        parts.append(f"<|channel|>{channel}<|message|>{reply.text}")
    parts += [
        f" to=functions.{call.name}<|channel|>commentary json<|message|>{call.arguments}" for call in reply.tool_calls
    ]
    text = "<|end|><|start|>assistant".join(parts)
    return text if opening or not text else f"<|start|>assistant{text}"


_CALLS = {
    "qwen3": _hermes,
    "qwen_coder": _qwen_coder,
    "llama3": _llama,
    "deepseek_v3": _deepseek_v3,
    "deepseek_v31": _deepseek_v31,
    "glm45": _glm,
    "kimi_k2": _kimi,
    "mistral_v3": _mistral_v3,
    "mistral_v11": _mistral_v11,
}


def arguments(**given: Json) -> str:
    """Arguments as a model writes them, with one space more than a client would."""
    return json.dumps(given, ensure_ascii=False, separators=(", ", ":  "))
