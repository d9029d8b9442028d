"""The interface of tools that return values, and the result of a call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.task import Action


class CallStatus(StrEnum):
    """How a call ended."""

    OK = "ok"
    RAISED = "raised"  # the tool reports an error of its own; for Python, the output ends with the traceback
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"  # it printed too much
    ENDED = "ended"  # it ended its own process, or was killed from inside the box
    LOST = "lost"  # the tool's process is gone; the next call starts it again
    REFUSED = "refused"  # the call is not valid


@dataclass(frozen=True, slots=True)
class CallResult:
    """What the agent sees of one call."""

    text: str
    status: CallStatus = CallStatus.OK
    duration_s: float = 0.0


class ToolProvider(Protocol):
    """Some of the tools of one episode. A failure of the machine raises BoxError; a tool's failure is in its result."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What it offers."""

    async def call(self, action: Action, *, timeout_s: float) -> CallResult:
        """Does one call of one of its tools."""

    async def aclose(self) -> None:
        """Ends its processes. May be called twice."""


def refused(why: str) -> CallResult:
    """A call that was not done."""
    return CallResult(f"[not done: {why}]", CallStatus.REFUSED)


def tool_of(name: str, description: str, argument: str, about: str) -> Tool:
    """A tool with one argument, a text."""
    properties: dict[str, Json] = {argument: {"type": "string", "description": about}}
    return Tool(name, description, {"type": "object", "properties": properties, "required": [argument]})
