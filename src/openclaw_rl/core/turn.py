"""One request and its answer, and its place in a conversation."""

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
    """A request as received, before any decision about it.

    `headers` have lower-case names; `facts` are the body's fields about sessions (`session_id`, `turn_type`,
    `session_done`, `episode`, `user`, `prompt_cache_key`, `metadata`, `previous_response_id`); `key_name` is the API
    key's name; `max_tokens` is how long an answer may be, if the body says so.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    headers: Mapping[str, str]
    facts: Mapping[str, Json]
    key_name: str
    at_s: float  # seconds since the epoch
    max_tokens: int | None = None


async def nothing_to_note() -> None:
    """Does nothing: for requests whose text does not count."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of a request in a conversation, and the reason for it.

    `parent` is the served turn it continues. `is_done` says that the client called this the session's last turn.
    Placing records nothing of the request's text: a request may still be refused. When it is certain to be answered,
    `admit` is awaited, and only then its text counts.
    """

    session: str
    user: str
    agent: str
    kind: TurnKind
    why: str
    parent: Turn | None = None
    is_done: bool = False
    step: EpisodeStep | None = None  # if the request is a step of an episode
    admit: Callable[[], Awaitable[None]] = field(default=nothing_to_note, compare=False, repr=False)

    @property
    def is_main(self) -> bool:
        """Whether the turn may become a sample."""
        return self.kind is TurnKind.MAIN


@dataclass(frozen=True, slots=True)
class Turn:
    """The request, the prompt, the sampled completion, and the completion as a message.

    `options` are the template's own arguments (`enable_thinking` and the like) the prompt was rendered with.
    `group` is shared by the n answers to one request. `messages` are the client's; `carried` are the user's hints that
    were among them in the prompt: a turn that has any was sampled by the teacher.
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
    shown: Mapping[str, Json] = field(default_factory=dict)  # what its API returns about the request later
    carried: tuple[PlacedHint, ...] = ()
    step: EpisodeStep | None = None  # set if it belongs to an episode

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
    """The turns of one conversation belong to it. `end_why` is None while it continues."""

    id: str
    user: str
    agent: str
    started_s: float
    seen_s: float
    end_why: str | None = None
