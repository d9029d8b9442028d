"""Checks of the names and ids in a request: one that is not a text of bounded length is refused with a 400.

They become parts of rows, logs and prompts, so a name of a megabyte must not get that far.
"""

from __future__ import annotations

from collections.abc import Mapping

from openclaw_rl.core.message import Json
from openclaw_rl.errors import RequestError

MOST_CHARS = 512
MOST_EPISODE_CHARS = 200  # of each field of a request or report about its episode
MOST_CALL_ID = 8192  # some gateways write a model's signed thoughts into the ids of its tool calls
MOST_METADATA = 16_384  # characters of JSON; OpenAI's own bound of 16 pairs is below it
HEADERS = (
    *("X-Session-Id", "X-Session-Affinity", "Session_Id", "X-User-Id", "X-Agent-Id"),
    *("X-Turn-Type", "X-Session-Done"),
)
_KINDS = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
_NAMES = ("session_id", "prompt_cache_key", "user", "previous_response_id")


def check_name(name: str | None, where: str, *, most: int = MOST_CHARS) -> None:
    """Raises RequestError for a name that is too long."""
    if name is not None and len(name) > most:
        raise RequestError(
            f"{where} has {len(name):,} characters", fix=f"send at most {most:,}", code="name_too_long", param=where
        )


def flat_name(name: str, namespace: str | None) -> str:
    """The name under which the model knows a tool."""
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"


def check_headers(headers: Mapping[str, str]) -> None:
    """Raises RequestError if a header contains a name that is too long."""
    for name in HEADERS:
        check_name(headers.get(name), name)


def check_facts(facts: Mapping[str, Json]) -> None:
    """Raises RequestError if a session field of the body has a wrong type or is too long."""
    for name in _NAMES:
        _check(facts.get(name), name)
    kind, is_done, metadata = facts.get("turn_type"), facts.get("session_done"), facts.get("metadata")
    if not isinstance(kind, str | None):
        raise _wrong(kind, "turn_type", "send main or side")
    check_name(kind, "turn_type")
    if not isinstance(is_done, bool | str | int | None):
        raise _wrong(is_done, "session_done", "send true or false")
    check_name(is_done if isinstance(is_done, str) else None, "session_done")
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        raise _wrong(metadata, "metadata", "send an object")
    for name in ("session_id", "user_id"):
        _check(metadata.get(name), f"metadata.{name}")


def check_metadata(raw: bytes) -> None:
    """Raises RequestError if the JSON of `metadata` is too long to be kept with an answer."""
    check_name(raw.decode("utf-8", "replace"), "metadata", most=MOST_METADATA)


def _check(name: Json, where: str) -> None:
    if isinstance(name, bool) or not isinstance(name, str | int | None):
        raise _wrong(name, where, "send a text")
    check_name(name if isinstance(name, str) else None, where)
    if isinstance(name, int) and name.bit_length() > 64:
        raise RequestError(f"{where} is a number of {name.bit_length()} bits", fix="send a text", param=where)


def _wrong(value: Json, where: str, fix: str) -> RequestError:
    kinds = {
        bool: "a truth value",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
        str: "a text",
    }
    return RequestError(f"{where} is {kinds[type(value)]}", fix=fix, code="invalid_type", param=where)
