"""What needs no votes: explicit feedback, and tool results that say themselves whether they worked.

Only the status a tool reports is a verdict. What a tool fetched is data: it gives no score and never a hint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from openclaw_rl.core.hint import Hint, HintSource
from openclaw_rl.core.message import Json, Message, Role
from openclaw_rl.core.next_state import Feedback, NextState, NextStateSource
from openclaw_rl.judge.hint import says_something
from openclaw_rl.judge.quoted import LEFT_OUT, LINE_LEFT_OUT, disarmed, has_own_words, own_words

_FAILED_WORDS = frozenset({"error", "failed", "failure", "timeout"})
_WORKED_WORDS = frozenset({"ok", "success", "succeeded", "completed"})
_EXIT_KEYS = ("exit_code", "exitCode", "exit_status", "returncode")
# Frameworks put these before (or, for exit codes, after) what a tool printed; they are not a part of a document.
_ERROR_HEAD = re.compile(r"\A\s*(?:Error|ERROR|ToolError|Exception)\s*:|\A\s*Traceback \(most recent call last\):")
_EXIT = r"(?:exited with (?:code|status)|exit[ _-]?code|exit[ _-]?status|return[ _-]?code)\s*[:=]?\s*(-?[0-9]{1,10})"
_EXIT_TAIL = re.compile(rf"{_EXIT}[.)\]]*\s*\Z", re.IGNORECASE)
# A header: lines of a name and a value each, before the output or a blank line; `Exit code 1` alone is one too.
_HEAD_LINE = r"(?:[A-Z][A-Za-z _-]{0,40}:[^\n]*|Process running[^\n]*|Command (?:failed|finished|completed)[^\n]*)"
_EXIT_HEAD = re.compile(
    rf"\A\s*(?:(?!Output:){_HEAD_LINE}\n){{0,8}}[^\n:]{{0,30}}?{_EXIT}[.)\]]*[ \t]*(?:\n|\Z)", re.IGNORECASE
)
_EXIT_TAGS = "returncode|return_code|return-code|exitcode|exit_code|exit-code|exit_status|exit-status"
_EXIT_TAG = re.compile(rf"<({_EXIT_TAGS})>\s*(-?[0-9]{{1,10}})\s*</\1>", re.IGNORECASE)


def tool_status(next_state: NextState) -> int | None:
    """-1 if a tool reports an error, +1 if all of them report success, None if they do not say.

    Also None for a user's words, which no rule can read.
    """
    if next_state.source is NextStateSource.USER:
        return None
    statuses = [_status(item) for item in next_state.messages if item.role is Role.TOOL]
    if -1 in statuses:
        return -1
    return 1 if statuses and None not in statuses else None


def owner_messages(next_state: NextState) -> tuple[Message, ...]:
    """The part of a next state that teaches: what was said, without what tools fetched and what was only quoted."""
    spoken = (item for item in next_state.messages if item.role is Role.USER and has_own_words(item.text))
    return tuple(item.with_text(own_words(item.text)) for item in spoken)


def foreign_messages(next_state: NextState) -> tuple[Message, ...]:
    """What tools returned, to be voted on if no user spoke: without the lines that address a reader."""
    given = (item.with_text(disarmed(item.text)) for item in next_state.messages if item.role is Role.TOOL)
    return tuple(item for item in given if item.text.replace(LINE_LEFT_OUT, "").strip())


def followup_hint(next_state: NextState) -> Hint | None:
    """The user's own next words as a hint, if they say something. For replies that were found bad."""
    if next_state.source is not NextStateSource.USER:
        return None
    said = "\n".join(item.text for item in owner_messages(next_state))
    return _own_words(said.replace(LEFT_OUT, "").strip())


def feedback_hint(feedback: Feedback) -> Hint | None:
    """What the user wrote with a thumb down, if it says something."""
    return _own_words(own_words(feedback.text or "").replace(LEFT_OUT, "")) if feedback.score < 0 else None


def _own_words(text: str) -> Hint | None:
    return Hint(text.strip(), HintSource.FOLLOWUP) if says_something(text) else None


def _status(item: Message) -> int | None:
    if item.is_error:
        return -1
    body = _object(item.text)
    if body is not None:
        return _status_of_object(body)
    if _ERROR_HEAD.match(item.text):
        return -1
    code = _exit_code(item.text)
    return None if code is None else (1 if code == 0 else -1)


def _exit_code(text: str) -> int | None:
    """The code a framework put before or after what a command printed: in a header, in a tag or in a last line.

    A tag counts only as the first or last thing: within the output it is what the command printed.
    """
    for pattern in (_EXIT_HEAD, _EXIT_TAIL):
        found = pattern.search(text)
        if found is not None:
            return int(found[1])
    bare = text.strip()
    tag = _EXIT_TAG.match(bare)
    if tag is None:
        last = bare.rfind("\n") + 1
        tag = _EXIT_TAG.fullmatch(bare[last:].strip())
    return None if tag is None else int(tag[2])


def _object(text: str) -> Mapping[str, Json] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _status_of_object(body: Mapping[str, Json]) -> int | None:
    if body.get("is_error") is True or body.get("isError") is True or body.get("error"):
        return -1
    for key in _EXIT_KEYS:
        code = body.get(key)
        if isinstance(code, int) and not isinstance(code, bool):
            return 1 if code == 0 else -1
    about = body.get("metadata")
    if isinstance(about, dict) and (inner := _status_of_object(about)) is not None:
        return inner
    for key in ("success", "ok"):
        worked = body.get(key)
        if isinstance(worked, bool):
            return 1 if worked else -1
    word = body.get("status")
    if isinstance(word, str):
        if word.lower() in _FAILED_WORDS:
            return -1
        if word.lower() in _WORKED_WORDS:
            return 1
    return None
