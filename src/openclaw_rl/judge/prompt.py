"""The messages a judge reads: the conversation as fenced data under one of the two instructions in `prompts/`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from importlib.resources import files

from openclaw_rl.core.message import Message, Role, message

HISTORY_CHARS = 1200  # the recent history, oldest cut first
PART_CHARS = 2400  # each of request, reply and next state, cut in the middle


class Question(StrEnum):
    """What a judge is asked; the name of a file in `prompts/`."""

    SCORE = "score"
    HINT = "hint"


def question(
    asked: Question, request: Sequence[Message], reply: Message, next_state: Sequence[Message]
) -> tuple[Message, ...]:
    """The prompt: instruction as system text, then history, request, reply and next state as fenced data.

    `request` holds the messages the reply answered. System messages are left out: they are the client's, and long.
    """
    spoken = [item for item in request if item.role is not Role.SYSTEM]
    start = _start_of_request(spoken)
    blocks = [
        ("history", _tail("\n".join(_line(item) for item in spoken[:start]), HISTORY_CHARS)),
        ("request", _middle("\n".join(_line(item) for item in spoken[start:]), PART_CHARS)),
        ("reply", _middle(_line(reply), PART_CHARS)),
        ("next", _middle("\n".join(_line(item) for item in next_state), PART_CHARS)),
    ]
    body = "\n".join(f"<<<{name}\n{_fenced(text)}\n{name}>>>" for name, text in blocks if text)
    return (message(Role.SYSTEM, _instruction(asked)), message(Role.USER, body))


def _instruction(asked: Question) -> str:
    return files("openclaw_rl.judge").joinpath("prompts", f"{asked.value}.txt").read_text("utf-8").strip()


def _start_of_request(spoken: Sequence[Message]) -> int:
    """The request proper: everything after the last assistant message."""
    for index in range(len(spoken) - 1, -1, -1):
        if spoken[index].role is Role.ASSISTANT:
            return index + 1
    return 0


def _line(item: Message) -> str:
    calls = "".join(f"\n[calls {call.name} {call.arguments}]" for call in item.tool_calls)
    return f"{item.role.value}: {item.text}{calls}"


def _fenced(text: str) -> str:
    """The text without anything that looks like one of our own marks."""
    return text.replace("<<<", "< < <").replace(">>>", "> > >")


def _tail(text: str, limit: int) -> str:
    return text if len(text) <= limit else "[...] " + text[len(text) - limit :]


def _middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [...] {text[-half:]}"
