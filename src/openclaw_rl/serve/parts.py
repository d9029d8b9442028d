"""The parts that the runtime passes to the server, and which version answers a request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from openclaw_rl.core.feed import TrainingFeed
from openclaw_rl.core.hint import PlacedHint
from openclaw_rl.core.message import Json, Message
from openclaw_rl.core.next_state import Feedback
from openclaw_rl.core.protocols import Collector, Engine
from openclaw_rl.core.rights import Right
from openclaw_rl.core.sampling import Grammar
from openclaw_rl.core.turn import Placement, TurnKind
from openclaw_rl.core.version import BASE, PolicyVersion, parse_version
from openclaw_rl.errors import AdapterError, RequestError
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.serve.apis.chat.wire import ToolCache
from openclaw_rl.serve.door.auth import Keys, SignIns
from openclaw_rl.serve.door.limits import Meter
from openclaw_rl.serve.metrics import Metrics
from openclaw_rl.serve.request.params import SamplingDefaults
from openclaw_rl.serve.settings import ServeSettings
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.selection import ForgetTarget

ALIAS = "default"  # a model name that always works
VERSION_HEADER = "X-Policy-Version"


@dataclass(frozen=True, slots=True)
class Control:
    """What a client may request of the stages.

    `session_done(session, why)` ends a session; `status()` is the whole of `/v1/rl/status`; `rollback(version)` serves
    an earlier version again and raises OpenClawRLError if it cannot. `session_name(key_name, given)` is the full name
    of the session that the owner of a key calls `given`; a full name of theirs stays as it is.
    """

    feedback: Callable[[Feedback], Awaitable[None]]
    session_done: Callable[[str, str], Awaitable[None]]
    status: Callable[[], Awaitable[Mapping[str, Json]]]
    rollback: Callable[[PolicyVersion], Awaitable[None]]
    session_name: Callable[[str, str], str] = lambda key_name, given: given


class ComparedAnswers(Protocol):
    """What was asked, and each version's answer to it."""

    @property
    def asked(self) -> tuple[Message, ...]:
        """The prompt."""

    @property
    def answers(self) -> tuple[str, ...]:
        """In the order of the versions."""

    @property
    def is_same(self) -> bool:
        """Whether all answers are the same."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The owner's orders about versions, besides `Control.rollback`; one that cannot be met raises OpenClawRLError.

    `pin(version)` serves it whatever is trained; `unpin(scope)` serves the newest again and returns it;
    `compare(versions, prompts, max_tokens)` returns each version's answer to each prompt.
    """

    pin: Callable[[PolicyVersion], Awaitable[None]]
    unpin: Callable[[str], Awaitable[PolicyVersion]]
    compare: Callable[[Sequence[PolicyVersion], Sequence[Sequence[Message]], int], Awaitable[Sequence[ComparedAnswers]]]


@dataclass(frozen=True, slots=True)
class ForgettingControl:
    """The owner's orders to forget. They raise OpenClawRLError.

    `preview(what)` counts what would be erased; `begin(what, has_records)` erases its rows and returns the forgetting's
    id while the rest is done; `standing()` reports the progress of each, oldest first. With `has_records`, files of
    records that were written outside the home folder are cleaned too.
    """

    preview: Callable[[ForgetTarget], Awaitable[Mapping[str, int]]]
    begin: Callable[[ForgetTarget, bool], Awaitable[str]]
    standing: Callable[[], Awaitable[Sequence[Mapping[str, Json]]]]


@dataclass(frozen=True, slots=True)
class OwnerControl:
    """What an owner reads and changes on the page besides what was learned.

    `settings()` lists every setting with its value and where that comes from; `keys()` lists the keys;
    `add_key(name, rights)` makes one and returns it, once; `revoke_key(name)` revokes one. They raise OpenClawRLError.
    `carry` is how hints are used.
    """

    settings: Callable[[], Awaitable[Sequence[Mapping[str, Json]]]]
    keys: Callable[[], Awaitable[Sequence[Mapping[str, Json]]]]
    add_key: Callable[[str, frozenset[Right]], Awaitable[str]]
    revoke_key: Callable[[str], Awaitable[None]]
    carry: str = ""


async def nothing_carried(placement: Placement, messages: Sequence[Message]) -> tuple[PlacedHint, ...]:
    """No hint is in any prompt."""
    return ()


async def nobodys_own(placement: Placement) -> PolicyVersion | None:
    """No user has a version."""
    return None


async def as_named(version: PolicyVersion) -> PolicyVersion:
    """All versions are in memory."""
    return version


@dataclass(frozen=True, slots=True)
class ServeParts:
    """One server.

    `models` are the names clients may request, the first one reported; `current(user)` is the version being served to
    a user right now, unless `own(placement)` returns one that is theirs alone; `named(version)` loads the one that a
    request names (AdapterError, EngineError); `carried(placement, messages)` are the user's hints for a request's
    prompt; `clock` returns seconds since the epoch. `check_grammar` returns once the engine can constrain answers to a
    grammar, and raises RequestError if it cannot; it is None if the engine supports no grammars. Once the server
    `is_stopping`, long operations are broken off.
    """

    engine: Engine
    renderer: ChatRenderer
    collector: Collector
    store: Store
    control: Control
    current: Callable[[str], PolicyVersion]
    models: tuple[str, ...]
    context_length: int
    eos_ids: tuple[int, ...]
    keys: Keys
    settings: ServeSettings = field(default_factory=ServeSettings)
    defaults: SamplingDefaults = field(default_factory=SamplingDefaults)
    carried: Callable[[Placement, Sequence[Message]], Awaitable[tuple[PlacedHint, ...]]] = nothing_carried
    own: Callable[[Placement], Awaitable[PolicyVersion | None]] = nobodys_own
    named: Callable[[PolicyVersion], Awaitable[PolicyVersion]] = as_named
    orders: Orders | None = None
    forgetting: ForgettingControl | None = None
    owner: OwnerControl | None = None
    training: TrainingFeed | None = None
    check_grammar: Callable[[Grammar], Awaitable[None]] | None = None
    is_stopping: Callable[[], bool] = lambda: False
    metrics: Metrics = field(default_factory=Metrics)
    meter: Meter = field(default_factory=Meter)
    offered: ToolCache = field(default_factory=ToolCache)
    clock: Callable[[], float] = time.time
    signed_in: SignIns = field(init=False)
    memory: dict[str, Remembered] = field(default_factory=dict)  # answers that many watchers request, by name

    def __post_init__(self) -> None:
        object.__setattr__(self, "signed_in", SignIns(self.keys))

    def model_named(self, name: str | None) -> str:
        """The model name to answer with. Raises RequestError (404) for one that is not served."""
        if name is None or name == ALIAS:
            return self.models[0]
        if name in self.models or self.settings.any_model_name:
            return name
        raise RequestError(
            f"the model {name!r} is not served here",
            fix=f"ask for {', '.join(self.models)} or {ALIAS}",
            status=404,
            code="model_not_found",
            param="model",
        )


@dataclass(slots=True)
class Remembered:
    """An answer that many watchers request at once, made once for all of them and no more often than is useful.

    It is made again if its `key` has changed, but not within `rest_s`.

    `rest_s` is at least ten times what making it took, so that watchers never take more than a tenth of the server.
    """

    rest_s: float
    clock: Callable[[], float] = time.monotonic
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _body: bytes = b""
    _key: Hashable = None
    _made_s: float = float("-inf")
    _took_s: float = 0.0

    async def of(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """What `make` returns, or returned recently."""
        async with self._lock:
            rest_s = max(self.rest_s, 10 * self._took_s)
            begin = self.clock()
            is_old = begin - self._made_s > 30 * rest_s  # facts outside the store change too
            if not self._body or is_old or (key != self._key and begin - self._made_s >= rest_s):
                self._body = await make()
                self._key, self._made_s = key, self.clock()
                self._took_s = self._made_s - begin
            return self._body


async def answering(
    parts: ServeParts, headers: Mapping[str, str], placement: Placement, key_name: str
) -> PolicyVersion:
    """The version for a request. `X-Policy-Version` names another than the served one, for side requests only.

    Main turns are learned from, so the served version samples them: for main requests the header is refused (400). It
    is refused for keys without the scope `admin` (403), since it loads any version. 404 for an unknown version.
    """
    given = headers.get(VERSION_HEADER, "").strip()
    if not given:
        return await parts.own(placement) or parts.current(placement.user)
    if placement.kind is not TurnKind.SIDE:
        raise _refused("a main request is answered by the served version", "send X-Turn-Type: side with it")
    if not parts.keys.may_name(key_name):
        raise _refused(f"the API key {key_name!r} may not choose a version", "use a key with the scope admin", 403)
    try:
        version = BASE if given == "base" else parse_version(given)
    except ValueError:
        raise _refused(
            f"{VERSION_HEADER} is {given[:40]!r}", "send base, a number, or a name such as shared.3"
        ) from None
    try:
        return await parts.named(version)
    except AdapterError as problem:
        raise _refused(str(problem), "`openclaw-rl versions` lists those that can be served", 404) from problem


def _refused(problem: str, fix: str, status: int = 400) -> RequestError:
    return RequestError(problem, fix=fix, status=status, param=VERSION_HEADER)
