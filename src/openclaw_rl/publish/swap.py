"""Which version is being served, in memory and in the store, and how another takes its place, or an earlier one."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import ConfigError
from openclaw_rl.publish.versions import verified
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionRow, VersionStatus

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Served:
    """The versions being served. `current` never waits: it is what serving asks for each request.

    A request ends on the version it began with. Versions that left are unloaded, the newest `keep_loaded` excepted; the
    engine frees them when their last row ends.
    """

    store: Store
    engine: Engine
    keep_loaded: int = 2
    _current: dict[str, PolicyVersion] = field(default_factory=dict)
    _loaded: list[PolicyVersion] = field(default_factory=list)  # the one used last stands last
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def current(self, scope: str = SHARED) -> PolicyVersion:
        """The version that answers a request of this scope; the shared one where the scope has none of its own."""
        own = self._current.get(scope)
        if own is not None and (scope == SHARED or not own.is_base):
            return own
        return self._current.get(SHARED, PolicyVersion(SHARED, 0))

    @property
    def loaded(self) -> tuple[PolicyVersion, ...]:
        """The versions that the engine holds beside the base model."""
        return tuple(self._loaded)

    async def load(self, row: VersionRow) -> None:
        """Makes a version ready to be asked for. Raises AdapterError, and then nothing has changed."""
        async with self._lock:
            adapter = row.adapter()
            if adapter is None or row.version in self._loaded:
                return
            await asyncio.to_thread(verified, adapter)
            await self.engine.load(adapter)
            self._loaded.append(row.version)

    async def swap(self, version: PolicyVersion, *, why: str) -> None:
        """From the next request on this loaded version is served; the store knows first."""
        async with self._lock:
            if not version.is_base and version not in self._loaded:
                raise ValueError(f"version {version} is not loaded")
            before = self.current(version.scope)
            await self.store.set_current(version, why=why)
            self._current[version.scope] = version
            if version in self._loaded:
                self._loaded.remove(version)
                self._loaded.append(version)
            log.info("serving version=%s before=%s why=%s", version, before, why)
            await self._unload_old(version.scope)

    async def resume(self, version: PolicyVersion) -> None:
        """Serves a version that the store says is current already."""
        async with self._lock:
            self._current[version.scope] = version

    async def forget(self, version: PolicyVersion) -> None:
        """Unloads a version that did not pass."""
        async with self._lock:
            if version in self._loaded and version not in self._current.values():
                self._loaded.remove(version)
                await self.engine.unload(version)

    async def _unload_old(self, scope: str) -> None:
        own = [version for version in self._loaded if version.scope == scope]
        for version in own[: -self.keep_loaded]:
            self._loaded.remove(version)
            await self.engine.unload(version)


async def rollback(store: Store, version: PolicyVersion, *, served: Served) -> None:
    """From now on this version is served, and training goes on from there.

    Raises ConfigError for a version that does not exist or was refused, AdapterError where its folder is damaged; then
    nothing has changed.
    """
    if not version.is_base:
        rows = await store.versions()
        row = next((item for item in rows if item.version == version), None)
        if row is None:
            known = ", ".join(str(item.version) for item in rows) or "none"
            raise ConfigError(f"there is no version {version}", fix=f"name one of these: {known}")
        if row.status is not VersionStatus.LIVE:
            raise ConfigError(
                f"version {version} is {row.status}: {row.why or 'it has not passed the gate yet'}",
                fix="roll back to a version that has been live",
            )
        await served.load(row)
    await served.swap(version, why="rolled back by hand")
