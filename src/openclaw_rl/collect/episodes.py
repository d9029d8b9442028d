"""The step and the episode that a request names, in headers or in the body's `episode`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.collect.sessions import NamedSession, session_name, space_of
from openclaw_rl.core.episode import Episode, EpisodeStep
from openclaw_rl.core.message import Json, Message
from openclaw_rl.core.turn import Arrival, Turn
from openclaw_rl.errors import RequestError
from openclaw_rl.store.db import Store

HEADER = "x-episode-"
TEXTS = ("id", "task", "group", "environment", "observation")
NUMBERS = ("step", "group_size", "seed")
MOST_CHARS = 200
MOST_NUMBER = 2**53


@dataclass(frozen=True, slots=True)
class StepClaim:
    """What a request says about its step. `index` is None if the server is to count."""

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
    """The step that a request is, and what is `shown` in it, which follows the step's turn before (`after`)."""

    step: EpisodeStep
    shown: Sequence[Message]
    after: str | None

    async def note(self, store: Store) -> None:
        """Has what is shown follow the step before."""
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
        raise _wrong("group_size", 0, "send how many episodes the group holds, or leave it out")
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
    """The step that a request is, None if it belongs to no episode. Nothing of its content is recorded yet.

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
            f"episode {name} is one of user {row.episode.user}, and this request is {user}'s",
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
