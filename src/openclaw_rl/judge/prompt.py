"""The messages a judge reads: the conversation as fenced data under one of the instructions in `prompts/`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from importlib.resources import files

from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.judge.quoted import disarmed

HISTORY_CHARS = 1200  # the recent history, oldest left out first
LINE_CHARS = 500  # each message in it
PART_CHARS = 2400  # each of request, reply and next state, cut in the middle


class Question(StrEnum):
    """What a judge is asked; the name of a file in `prompts/`."""

    SCORE = "score"
    HINT = "hint"
    STEP_TERMINAL = "step_terminal"
    STEP_TOOLS = "step_tools"
    STEP_SOFTWARE = "step_software"
    STEP_SCREEN = "step_screen"

    @classmethod
    def of_step(cls, environment: str) -> Question:
        """The question about a step in an environment of this name; that for tools if it has none."""
        return next((one for one in cls if one.value == f"step_{environment}"), cls.STEP_TOOLS)


def question(
    asked: Question, request: Sequence[Message], reply: Message, next_state: Sequence[Message]
) -> tuple[Message, ...]:
    """The prompt: instruction as system text, then history, request, reply and next state as fenced data.

    `request` are the messages that the reply answered. System messages are left out: they are the client's, and long.
    """
    spoken = [item for item in request if item.role is not Role.SYSTEM]
    start = _start_of_request(spoken)
    blocks = [
        ("history", _recent(spoken[:start], is_all=any(item.role is Role.USER for item in spoken[start:]))),
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
    text = disarmed(item.text) if item.role is Role.TOOL else item.text
    return f"{item.role.value}{' (reports an error)' if item.is_error else ''}: {text}{calls}"


def _fenced(text: str) -> str:
    """The text without anything that looks like one of our own marks."""
    return text.replace("<<<", "< < <").replace(">>>", "> > >")


def _recent(spoken: Sequence[Message], *, is_all: bool) -> str:
    """The latest messages, as many as fit, each cut in the middle if it is long.

    If the request has a user's words, these are all there is to it (`is_all`). Otherwise the latest user message is
    always shown: in the middle of a run it is the task that is being done.
    """
    lines = [_middle(_line(item), LINE_CHARS) for item in spoken]
    asked = next((at for at in range(len(spoken) - 1, -1, -1) if spoken[at].role is Role.USER), len(spoken))
    first, room = len(lines), HISTORY_CHARS
    while first > 0 and len(lines[first - 1]) < room:
        first -= 1
        room -= len(lines[first]) + 1
    kept = lines[first:]
    if first > 0:
        kept.insert(0, "[...]")
    if not is_all and asked < first:
        kept.insert(0, lines[asked])
    return "\n".join(kept)


def _middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [...] {text[-half:]}"
