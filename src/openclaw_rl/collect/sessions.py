"""The session that a request names, and the step and the episode, in headers or in the body.

A session's name begins with that of the API key, so that no client can write into a session of another key.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from openclaw_rl.collect.clients.by_rules import RuleClient
from openclaw_rl.collect.clients.rules import ClientRules
from openclaw_rl.core.episode import Episode, EpisodeStep
from openclaw_rl.core.hashing import hashed
from openclaw_rl.core.message import Json, Message
from openclaw_rl.core.turn import Arrival, Turn
from openclaw_rl.errors import RequestError
from openclaw_rl.store.db import Store

LONGEST_NAME = 120
HEADERS = ("x-session-id", "x-session-affinity", "session_id")
FACTS = ("session_id", "prompt_cache_key")  # `user` is a person, who may have many conversations
YES = frozenset({"1", "true", "yes", "on"})
WRITTEN = {"x-session-id": "X-Session-Id"}
HEADER = "x-episode-"
TEXTS = ("id", "task", "group", "environment", "observation")
NUMBERS = ("step", "group_size", "seed")
MOST_CHARS = 200
MOST_NUMBER = 2**53


@dataclass(frozen=True, slots=True)
class NamedSession:
    """A session, and how it was found."""

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
    """A readable name, safe for logs; different names stay different."""
    name = given.strip()
    if len(name) <= LONGEST_NAME and name.isprintable():
        return name
    digest = hashed((name,), size=8)
    readable = "".join(letter if letter.isprintable() else "?" for letter in name[: LONGEST_NAME // 2])
    return f"{readable}~{digest}"


def named(arrival: Arrival) -> NamedSession | None:
    """The first session that headers or body name."""
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
    """The agent that the header names."""
    return tidy(arrival.headers.get("x-agent-id", "")) or "default"


def says_done(arrival: Arrival) -> bool:
    """Whether the client calls this the session's last turn."""
    held = arrival.facts.get("session_done")
    return arrival.headers.get("x-session-done", "").strip().lower() in YES or _word(held).lower() in YES


def claimed(arrival: Arrival, reply: Turn | None, shown: Arrival, telling: ClientRules) -> NamedSession | None:
    """The session that headers or body name, its episode's, that of the `reply` it names, or the client's own name.

    `shown` is the part of the request that the client's rules (`telling`) read.
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


@dataclass(frozen=True, slots=True)
class StepClaim:
    """What a request says about its step. `index` is None if the server counts."""

    id: str
    index: int | None = None
    task: str = ""
    group: str | None = None
    group_size: int | None = None
    seed: int | None = None
    environment: str = ""
    observation: str = "text"

    def episode(self, name: str, *, user: str, at_s: float) -> Episode:
        """The episode of this full name, as it begins."""
        return Episode(
            id=name,
            user=user,
            task=self.task,
            begun_s=at_s,
            group=self.group,
            group_size=self.group_size,
            seed=self.seed,
            environment=self.environment,
        )


@dataclass(frozen=True, slots=True)
class ClaimedStep:
    """The step of a request, and the messages `shown` in it, which follow the turn of the step before (`after`)."""

    step: EpisodeStep
    shown: Sequence[Message]
    after: str | None

    async def note(self, store: Store) -> None:
        """Stores the shown messages as the next state of the step before."""
        await store.episodes.observe(self.step.episode, self.step.index, self.shown, after=self.after)


def names_episode(arrival: Arrival) -> bool:
    """Whether the request says that it is a step of an episode."""
    return bool(_field(arrival, "id"))


def step_claim(arrival: Arrival) -> StepClaim | None:
    """What the request says about its step, each field from its header or else the body; None without an episode.

    Raises RequestError for a field of a wrong type or size.
    """
    if not names_episode(arrival):
        return None
    texts = {name: _text(arrival, name) for name in TEXTS}
    numbers = {name: _number(arrival, name) for name in NUMBERS}
    if numbers["group_size"] == 0:
        raise _wrong("group_size", 0, "send how many episodes the group has, or leave it out")
    return StepClaim(
        id=texts["id"],
        index=numbers["step"],
        task=texts["task"],
        group=texts["group"] or None,
        group_size=numbers["group_size"],
        seed=numbers["seed"],
        environment=texts["environment"],
        observation=texts["observation"] or "text",
    )


def full_name(key_name: str, given: str) -> str:
    """The episode that a client of this key calls `given`, which may be the full name already.

    It begins with the key's name, as that of a session does.
    """
    return given if given.startswith(f"{space_of(key_name)}:") else session_name(key_name, given)


def episode_session(arrival: Arrival) -> NamedSession | None:
    """The session of the episode's name, for a request that names an episode and no session."""
    given = _text(arrival, "id")
    return NamedSession(full_name(arrival.key_name, given), "session from its episode") if given else None


async def step_of(
    store: Store, arrival: Arrival, shown: Sequence[Message], parent: Turn | None, *, user: str, prefix: str
) -> ClaimedStep | None:
    """The step of a request, None if it belongs to no episode. Nothing of its content is recorded yet.

    If the episode does not exist and the request names its task, it is begun here. Raises RequestError: 404 if it names
    no task, 409 if the episode has ended or is another user's.
    """
    claim = step_claim(arrival)
    if claim is None:
        return None
    name = full_name(arrival.key_name, claim.id)
    row = await store.episodes.get(name)
    if row is None and not claim.task:
        raise RequestError(
            f"there is no episode {name}",
            fix="begin it with POST /v1/rl/episodes, or send its task along (X-Episode-Task)",
            status=404,
            param="episode.id",
        )
    if row is None or claim.task:
        row = await store.episodes.begin(claim.episode(name, user=user, at_s=arrival.at_s))
    if not row.episode.is_open:
        raise RequestError(f"episode {name} has ended", fix="begin another", status=409, param="episode.id")
    if row.episode.user != user:
        raise RequestError(
            f"episode {name} belongs to user {row.episode.user}, and this request to {user}",
            fix="send the X-User-Id that the episode was begun with",
            status=409,
            param="X-User-Id",
        )
    index = claim.index if claim.index is not None else await store.episodes.next_index(name, prefix)
    goes_on = parent is not None and parent.step is not None and parent.step.episode == name
    after = parent.id if goes_on and parent is not None else None
    return ClaimedStep(EpisodeStep(name, index, claim.observation), shown, after)


def _field(arrival: Arrival, name: str) -> Json:
    """What the header says, else the body; None if neither does."""
    said = arrival.headers.get(HEADER + name.replace("_", "-"), "").strip()
    if said:
        return said
    held = arrival.facts.get("episode")
    if held is not None and not isinstance(held, dict):
        raise RequestError("episode is not an object", fix='send {"id": ..., "step": ...}', param="episode")
    return None if held is None else held.get(name)


def _text(arrival: Arrival, name: str) -> str:
    value = _field(arrival, name)
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise _wrong(name, value, "send a text")
    text = "" if value is None else str(value).strip()
    if len(text) > MOST_CHARS or not text.isprintable():
        raise _wrong(name, f"{text[:20]}...", f"send at most {MOST_CHARS} printable characters")
    return text


def _number(arrival: Arrival, name: str) -> int | None:
    value = _field(arrival, name)
    if isinstance(value, str) and value.isdecimal() and len(value) < 17:
        value = int(value)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_NUMBER:
        raise _wrong(name, value, "send a whole number from 0 on")
    return value


def _wrong(name: str, value: Json, fix: str) -> RequestError:
    return RequestError(f"episode.{name} is {value!r:.60}", fix=fix, param=f"episode.{name}")
