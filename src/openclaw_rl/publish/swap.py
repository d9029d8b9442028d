"""Which version is being served, in memory and in the store, and how another, or an earlier one, replaces it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.to_end import to_end
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import AdapterError, ConfigError, EngineError
from openclaw_rl.publish.versions import verified, without_weights
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionRow, VersionStatus

log = logging.getLogger(__name__)
HANDED_S = 5.0  # a version just named to a request is not unloaded before the request has begun on it
LEFT_S = 3600.0  # how long requests may run on a version that is no longer served, and on its files if the engine dies
BY_HAND = "rolled back by hand"
NAMED = 10  # versions named in the error for one that does not exist
Result = TypeVar("Result")


@dataclass(slots=True)
class ServedVersions:
    """The versions being served. `current` never waits: serving calls it for each request.

    A request ends on the version it began with. Versions that are no longer served are unloaded, except the newest
    `keep_loaded`; the engine frees them when their last row ends. Users' and agents' versions are loaded as far as
    there is `room` for them besides the shared ones: `own` loads them on request and unloads the least recently used.
    """

    store: Store
    engine: Engine
    keep_loaded: int = 2
    room: int = 8
    clock: Callable[[], float] = time.monotonic
    damaged: dict[str, AdapterError] = field(default_factory=dict)  # by scope, until publishing has handled it
    _current: dict[str, PolicyVersion] = field(default_factory=dict)
    _loaded: list[PolicyVersion] = field(default_factory=list)  # the one used last comes last
    _awaited: set[PolicyVersion] = field(default_factory=set)  # loaded to be tried or swapped in
    _handed_s: dict[PolicyVersion, float] = field(default_factory=dict)
    _left_s: dict[PolicyVersion, float] = field(default_factory=dict)  # when a version was unloaded
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def current(self, scope: str = SHARED) -> PolicyVersion:
        """The version that answers a request of this scope; the shared one if the scope has no version."""
        own = self._current.get(scope)
        if own is not None and (scope == SHARED or not own.is_base):
            return own
        return self._current.get(SHARED, PolicyVersion(SHARED, 0))

    async def own(self, scope: str) -> PolicyVersion | None:
        """The scope's own version, loaded; None if the shared one answers instead.

        That is if the scope has none, if versions in use take all places, or if its folder is damaged.
        """
        version = self.current(scope)
        if version.scope == SHARED:
            return None
        if version not in self._loaded:
            try:
                await self._bring(version)
            except EngineError as problem:
                log.warning("the shared version answers scope=%s: %s", scope, problem)
                return None
            except AdapterError as problem:
                log.error("the shared version answers scope=%s, its own is damaged: %s", scope, problem)
                self.damaged[scope] = problem
                return None
        self._use(version)
        return version

    async def named(self, version: PolicyVersion) -> PolicyVersion:
        """The version, loaded whether it is served or not; it stays until its place is needed.

        Raises AdapterError if it is not known, damaged or pruned, EngineError if there is no room for it now.
        """
        if version not in self._loaded and not version.is_base:
            if await self.store.version(version) is None:
                raise AdapterError(f"there is no version {version}")
            await self._bring(version)
        if version in self._loaded:
            self._use(version)
            self._handed_s[version] = self.clock()
        return version

    @property
    def loaded(self) -> tuple[PolicyVersion, ...]:
        """The versions that are loaded besides the base model."""
        return tuple(self._loaded)

    @property
    def in_use(self) -> frozenset[PolicyVersion]:
        """The versions that are served or loaded, or that requests may still run on."""
        left = (version for version, left_s in self._left_s.items() if self.clock() - left_s < LEFT_S)
        return frozenset((*self._loaded, *self._awaited, *self._current.values(), *left))

    async def between_loads(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """The result of the work; meanwhile no version is loaded, and none comes into service."""
        async with self._lock:
            return await work()

    @property
    def active(self) -> tuple[str, ...]:
        """The scopes with loaded versions, because these were requested recently."""
        return tuple(version.scope for version in self._loaded if self._is_own(version))

    @property
    def owners(self) -> int:
        """How many scopes have their own version."""
        return sum(1 for version in self._current.values() if version.scope != SHARED and not version.is_base)

    async def load(self, row: VersionRow) -> None:
        """Loads a version to be tried or swapped in. If it raises AdapterError, nothing has changed.

        Raises EngineError if there is no room for it now.
        """
        async with self._lock:
            await self._load(row)
            if row.version in self._loaded:
                self._awaited.add(row.version)

    async def swap(self, version: PolicyVersion, *, why: str) -> None:
        """Serves this loaded version from the next request on; the store is written first."""
        async with self._lock:
            if not version.is_base and version not in self._loaded:
                raise ValueError(f"version {version} is not loaded")
            before = self.current(version.scope)
            await self.store.set_current(version, why=why)
            self._current[version.scope] = version
            self._awaited.discard(version)
            if version in self._loaded:
                self._use(version)
            log.info("serving version=%s before=%s why=%s", version, before, why)
            await self._unload_old(version.scope)

    async def resume(self, version: PolicyVersion) -> None:
        """Serves a version that the store says is current already."""
        async with self._lock:
            self._current[version.scope] = version
            self._awaited.discard(version)

    async def forget(self, version: PolicyVersion) -> None:
        """Unloads a version that did not pass."""
        async with self._lock:
            self._awaited.discard(version)
            if version in self._loaded and version not in self._current.values():
                await self._unload(version)

    async def leave(self, gone: Callable[[PolicyVersion], bool], *, is_unused: bool) -> None:
        """Stops serving versions that are gone, and unloads them if `is_unused`: no request has just been given them.

        `resume` has already set what is served instead, except for scopes that are gone themselves.
        """
        async with self._lock:
            for scope, version in list(self._current.items()):
                if gone(version):
                    del self._current[scope]
            for version in [version for version in self._loaded if is_unused and gone(version)]:
                self._awaited.discard(version)
                await self._unload(version)

    @asynccontextmanager
    async def at_hand(self, row: VersionRow) -> AsyncIterator[None]:
        """Keeps a version loaded for a while, served or not. Raises AdapterError, EngineError as `load` does."""
        was_loaded = row.version in self._loaded
        await self.load(row)
        try:
            yield
        finally:
            if was_loaded:
                self._awaited.discard(row.version)
            else:
                await self.forget(row.version)

    async def _bring(self, version: PolicyVersion) -> None:
        async with self._lock:
            row = await self.store.version(version)
            if row is None:
                raise AdapterError(f"version {version} is being served, but has no row in the store")
            await self._load(row)

    async def _load(self, row: VersionRow) -> None:
        adapter = row.adapter()
        if adapter is None or row.version in self._loaded:
            return
        held = await self.store.version(row.version)  # it may have been pruned since the row was read
        if held is not None and held.pruned_s is not None:
            raise without_weights(row.version)
        await asyncio.to_thread(verified, adapter)
        await self._make_room()

        async def loaded(adapter: Adapter) -> None:
            await self.engine.load(adapter)
            self._loaded.append(row.version)

        await to_end(loaded(adapter))  # the engine loads it anyway, and it must be recorded to be unloaded again

    async def _make_room(self) -> None:
        """Unloads versions no longer served first, then users' and agents' versions, the least recently used first."""
        while len(self._loaded) >= self.room:
            now = self.clock()
            idle = [
                version
                for version in self._loaded
                if version != self._current.get(SHARED)
                and version not in self._awaited
                and now - self._handed_s.get(version, -math.inf) >= HANDED_S
            ]
            if not idle:
                raise EngineError(
                    f"all {self.room} versions that the engine may load are in use", fix="raise engine.max_versions"
                )
            await self._unload(min(idle, key=self._is_own))

    async def _unload_old(self, scope: str) -> None:
        own = [version for version in self._loaded if version.scope == scope]
        for version in own[: -self.keep_loaded]:
            await self._unload(version)

    async def _unload(self, version: PolicyVersion) -> None:
        self._loaded.remove(version)
        self._handed_s.pop(version, None)
        now = self.clock()
        self._left_s = {held: left_s for held, left_s in self._left_s.items() if now - left_s < LEFT_S} | {version: now}
        await self.engine.unload(version)

    def _use(self, version: PolicyVersion) -> None:
        self._loaded.remove(version)
        self._loaded.append(version)
        if version.scope != SHARED:
            self._handed_s[version] = self.clock()

    def _is_own(self, version: PolicyVersion) -> bool:
        return version.scope != SHARED and self._current.get(version.scope) == version


async def rollback(store: Store, version: PolicyVersion, *, served: ServedVersions | None = None) -> None:
    """Serves this version from now on, and training continues from it; without `served`, from the next start on.

    Raises ConfigError for a version that does not exist or was refused, and if another is pinned, AdapterError if its
    folder is damaged; then nothing has changed.
    """
    row = await servable(store, version)
    pinned = await store.orders.pinned(version.scope)
    if pinned is not None:
        raise ConfigError(f"version {pinned} is pinned", fix="run `openclaw-rl unpin` first, or pin another version")
    if served is None:
        await store.set_current(version, why=BY_HAND)
        return
    if row is not None:
        await served.load(row)
    await served.swap(version, why=BY_HAND)


async def pin(store: Store, version: PolicyVersion, *, served: ServedVersions | None = None, at_s: float) -> None:
    """From now on this version is served whatever is trained; `served` and what is raised as for `rollback`."""
    row = await servable(store, version)
    if served is not None and row is not None:
        await served.load(row)
    await store.orders.pin(version, at_s=at_s)
    if served is not None:
        await served.resume(version)
    log.info("pinned version=%s", version)


async def unpin(store: Store, scope: str, *, served: ServedVersions | None = None) -> PolicyVersion:
    """The version that is served from now on. Raises ConfigError if none was pinned, AdapterError as `rollback`."""
    if await store.orders.pinned(scope) is None:
        raise ConfigError(f"no version of {scope} is pinned", fix="`openclaw-rl versions` shows what is")
    row = await store.version(await store.orders.head(scope))
    if served is not None and row is not None:
        await served.load(row)
    version = await store.orders.unpin(scope)
    if version is None:
        raise ConfigError(f"no version of {scope} is pinned any more")
    if served is not None:
        await served.resume(version)
    log.info("unpinned scope=%s serving=%s", scope, version)
    return version


async def servable(store: Store, version: PolicyVersion) -> VersionRow | None:
    """The row of a version that may be served; None for a base model.

    Raises AdapterError if its weights were pruned, ConfigError for any other version.
    """
    if version.is_base:
        return None
    row = await store.version(version)
    if row is None:
        known = ", ".join(str(item.version) for item in await store.keeping.page(limit=NAMED))
        raise ConfigError(f"there is no version {version}", fix=f"name an existing version; the newest are {known}")
    if row.status is not VersionStatus.LIVE:
        raise ConfigError(
            f"version {version} was refused: {row.why}"
            if row.status is VersionStatus.REFUSED
            else f"version {version} has not passed the gate yet",
            fix="name a version that passed the gate: `openclaw-rl versions` shows which did",
        )
    if row.pruned_s is not None:
        raise without_weights(version)
    return row
