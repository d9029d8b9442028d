"""The session that a request names, by whatever it names it."""

from __future__ import annotations

from openclaw_rl.collect.clients.by_rules import RuleClient
from openclaw_rl.collect.clients.rules import ClientRules
from openclaw_rl.collect.episodes import episode_session
from openclaw_rl.collect.sessions import NamedSession, in_thread, named, session_name
from openclaw_rl.core.turn import Arrival, Turn


def claimed(arrival: Arrival, reply: Turn | None, shown: Arrival, telling: ClientRules) -> NamedSession | None:
    """The session that headers or body name, its episode's, that of the `reply` it names, or the client's own name.

    `shown` is what of the request the client's habits (`telling`) are read from.
    """
    told = named(arrival) or episode_session(arrival) or _by_response(reply) or _by_client(shown, telling)
    thread = telling.thread(shown) if told is not None else None
    if told is not None and thread and not told.session.endswith(thread):
        told = in_thread(told, thread)
    return told


def _by_response(reply: Turn | None) -> NamedSession | None:
    return None if reply is None else NamedSession(reply.session, "session from the body's previous_response_id")


def _by_client(arrival: Arrival, rules: ClientRules) -> NamedSession | None:
    told = rules.session(arrival)
    return None if told is None else NamedSession(session_name(arrival.key_name, told[0]), f"session from {told[1]}")


def family(arrival: Arrival, told: NamedSession | None, rules: ClientRules) -> str | None:
    """The client's own name of the session, if the session was named after it."""
    own = None if isinstance(rules, RuleClient) else rules.session(arrival)
    name = None if own is None else session_name(arrival.key_name, own[0])
    if told is None or name is None:
        return None
    return name if told.session == name or told.session.startswith(f"{name}:") else None
