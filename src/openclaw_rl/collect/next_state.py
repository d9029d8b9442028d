"""What followed a turn, and who said it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openclaw_rl.core.message import Message, Role
from openclaw_rl.core.next_state import NextState, NextStateSource

ENVIRONMENT = "x-environment"  # its name; set by what runs a task rather than a conversation


def next_state_of(turn: str, heard: Sequence[Message], headers: Mapping[str, str]) -> NextState | None:
    """What followed a reply; None where nobody but the client spoke."""
    messages = tuple(item for item in heard if item.role in (Role.USER, Role.TOOL))
    return NextState(turn, messages, source_of(messages, headers)) if messages else None


def source_of(messages: Sequence[Message], headers: Mapping[str, str]) -> NextStateSource:
    """Who spoke next. Where a tool's words stand beside the user's they count as a tool's, which may teach less."""
    if headers.get(ENVIRONMENT, "").strip():
        return NextStateSource.ENVIRONMENT
    if any(item.role is Role.TOOL for item in messages):
        return NextStateSource.TOOL
    return NextStateSource.USER
