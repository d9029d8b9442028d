"""One request and its answer, and where it is in a conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from openclaw_rl.core.completion import Completion
from openclaw_rl.core.episode import EpisodeStep
from openclaw_rl.core.hint import PlacedHint, with_hints
from openclaw_rl.core.message import Json, Message, Tool
from openclaw_rl.core.prompt import Prompt

CONNECTING = "x-openclaw-rl-connecting"  # a header: the test turn of `openclaw-rl connect`, which teaches nothing


class TurnKind(StrEnum):
    """Whether a turn may be learned from."""

    MAIN = "main"
    SIDE = "side"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as it came in, before anything was decided about it.

    `headers` have lower-case names; `facts` are the body's own words on sessions (`session_id`, `turn_type`,
    `session_done`, `episode`, `user`, `prompt_cache_key`, `metadata`, `previous_response_id`); `key_name` is the API
    key's name; `max_tokens` is how long an answer may be, where the body says so.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    headers: Mapping[str, str]
    facts: Mapping[str, Json]
    key_name: str
    at_s: float  # seconds since the epoch
    max_tokens: int | None = None


async def nothing_to_note() -> None:
    """Where a request's words count for nothing."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request belongs, and why we think so.

    `parent` is the served turn it continues. `is_done` says that the client called this the session's last turn.
    Placing notes nothing of what the request says: a request may still be refused. Once it is known to be answered
    `admit` is awaited, and only then what it says counts.
    """

    session: str
    user: str
    agent: str
    kind: TurnKind
    why: str
    parent: Turn | None = None
    is_done: bool = False
    step: EpisodeStep | None = None  # where the request is a step of an episode
    admit: Callable[[], Awaitable[None]] = field(default=nothing_to_note, compare=False, repr=False)

    @property
    def is_main(self) -> bool:
        """Whether the turn may become a sample."""
        return self.kind is TurnKind.MAIN


@dataclass(frozen=True, slots=True)
class Turn:
    """What was asked, what the model read, what it sampled, and how that reads as a message.

    `options` are the template's own arguments (`enable_thinking` and the like) the prompt was rendered with.
    `group` is shared by the n answers to one request. `messages` are the client's; `carried` are the user's hints that
    stood among them in the prompt: a turn that has any was sampled by the teacher.
    """

    id: str
    session: str
    user: str
    agent: str
    kind: TurnKind
    why: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    prompt: Prompt
    completion: Completion
    reply: Message
    at_s: float
    parent: str | None = None
    group: str | None = None
    api: str = "chat"
    options: Mapping[str, Json] = field(default_factory=dict)
    shown: Mapping[str, Json] = field(default_factory=dict)  # what its API tells of the request when asked for it again
    carried: tuple[PlacedHint, ...] = ()
    step: EpisodeStep | None = None  # of the episode it belongs to, where it belongs to one

    @property
    def read(self) -> tuple[Message, ...]:
        """The messages as the model read them, hints included."""
        return with_hints(self.messages, self.carried)

    @property
    def is_main(self) -> bool:
        """Whether this turn may become a sample."""
        return self.kind is TurnKind.MAIN


@dataclass(frozen=True, slots=True)
class Session:
    """The turns of one conversation belong to it. `end_why` is None while it goes on."""

    id: str
    user: str
    agent: str
    started_s: float
    seen_s: float
    end_why: str | None = None
