"""The session that a request names, and the names of sessions.

A session's name begins with that of the API key, so that no client can write into a session of another key.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from openclaw_rl.core.message import Json
from openclaw_rl.core.turn import Arrival

LONGEST_NAME = 120
HEADERS = ("x-session-id", "x-session-affinity", "session_id")
FACTS = ("session_id", "prompt_cache_key")  # `user` is a person, who may have many conversations
YES = frozenset({"1", "true", "yes", "on"})
WRITTEN = {"x-session-id": "X-Session-Id"}


@dataclass(frozen=True, slots=True)
class NamedSession:
    """A session, and how we know."""

    session: str
    how: str


@lru_cache(maxsize=1024)
def space_of(key_name: str) -> str:
    """The part of a session's name that represents the API key; it contains no colon."""
    return quote(key_name, safe="", errors="surrogatepass")


def space_in(session: str) -> str:
    """The part of this session's name that represents the API key."""
    return session.partition(":")[0]


def session_name(key_name: str, given: str) -> str:
    """The session that a client of this key calls `given`."""
    return f"{space_of(key_name)}:{tidy(given)}"


def fresh_session(key_name: str) -> str:
    """A session with a new name."""
    return f"{space_of(key_name)}:auto-{secrets.token_hex(8)}"


def tidy(given: str) -> str:
    """A name a person can read and a log can hold; different names stay different."""
    name = given.strip()
    if len(name) <= LONGEST_NAME and name.isprintable():
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    readable = "".join(letter if letter.isprintable() else "?" for letter in name[: LONGEST_NAME // 2])
    return f"{readable}~{digest}"


def named(arrival: Arrival) -> NamedSession | None:
    """The session that headers or body name, the first that is there."""
    for given, how in _claims(arrival):
        if given:
            return NamedSession(session_name(arrival.key_name, given), f"session from {how}")
    return None


def in_thread(found: NamedSession, thread: str) -> NamedSession:
    """A conversation besides the owner's own within a session."""
    return NamedSession(f"{found.session}/{tidy(thread)}", f"{found.how}, and its thread")


def previous_response(arrival: Arrival) -> str | None:
    """The response that this request says it continues."""
    return _word(arrival.facts.get("previous_response_id")) or None


def user_of(arrival: Arrival, *, may_name: bool = True) -> str:
    """The user: as the header says, else the owner of the key.

    A key that may not name users can only name its own: no words can be attributed to another key's user.
    """
    claimed, own = tidy(arrival.headers.get("x-user-id", "")), tidy(arrival.key_name)
    if claimed and claimed != own and not may_name:
        return tidy(f"{own}/{claimed}")
    return claimed or own


def agent_of(arrival: Arrival) -> str:
    """Which agent asks, as the header says."""
    return tidy(arrival.headers.get("x-agent-id", "")) or "default"


def says_done(arrival: Arrival) -> bool:
    """Whether the client calls this the session's last turn."""
    held = arrival.facts.get("session_done")
    return arrival.headers.get("x-session-done", "").strip().lower() in YES or _word(held).lower() in YES


def _claims(arrival: Arrival) -> Iterator[tuple[str, str]]:
    for header in HEADERS:
        yield arrival.headers.get(header, "").strip(), WRITTEN.get(header, f"the {header} header")
    for fact in FACTS:
        yield _word(arrival.facts.get(fact)), f"the body's {fact}"
    metadata = arrival.facts.get("metadata")
    if isinstance(metadata, dict):
        yield _word(metadata.get("session_id")), "the body's metadata.session_id"


def _word(value: Json) -> str:
    """A name or flag as text; anything else is not a name."""
    if isinstance(value, bool):
        return "true" if value else ""
    return str(value).strip() if isinstance(value, str | int) else ""
