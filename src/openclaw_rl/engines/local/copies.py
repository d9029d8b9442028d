"""Versions of which every weight was trained: full copies of the model besides the base, up to a limit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from openclaw_rl.core.adapter import Adapter, digest_of_folder
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.local.adapters import AdapterPass
from openclaw_rl.engines.local.cache import UNIT, Cache
from openclaw_rl.engines.local.model import ServedModel, check_form, load_model
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.errors import AdapterError, EngineError, ModelError


@dataclass(slots=True)
class _Copy:
    served: ServedModel
    digest: str
    users: int = 0
    is_leaving: bool = False


@dataclass(slots=True)
class FullCopies:
    """The copies that are live, by version; `most` of them at once."""

    most: int
    _held: dict[PolicyVersion, _Copy] = field(default_factory=dict)

    def versions(self) -> list[PolicyVersion]:
        """The versions that can be requested."""
        return [version for version, held in self._held.items() if not held.is_leaving]

    def holds(self, version: PolicyVersion) -> bool:
        """Whether the version can be requested."""
        return version in self._held and not self._held[version].is_leaving

    def model_of(self, version: PolicyVersion) -> ServedModel | None:
        """The model of this version; None for the base and for adapters."""
        held = self._held.get(version)
        return None if held is None else held.served

    def check_room(self, version: PolicyVersion, *, coming: int = 0) -> None:
        """Raises EngineError if one more copy exceeds the limit; `coming` are being read already."""
        if version not in self._held and len(self._held) + coming >= self.most:
            raise EngineError(
                f"{self.most} whole copies of the model are loaded, which is all that engine.max_full_versions allows",
                fix="unload one, or raise engine.max_full_versions if memory allows another copy",
            )

    def install(self, served: ServedModel, version: PolicyVersion, digest: str) -> None:
        """Makes a copy live. If it raises AdapterError or EngineError, nothing has changed."""
        held = self._held.get(version)
        if held is not None and held.digest != digest:
            raise AdapterError(
                f"version {version} is being served with other weights", fix="give changed weights a new version number"
            )
        if held is not None:
            held.is_leaving = False
            return
        self.check_room(version)
        self._held[version] = _Copy(served, digest)

    def use(self, version: PolicyVersion) -> None:
        """One more request runs on the version, if it is a copy."""
        if version in self._held:
            self._held[version].users += 1

    def leave(self, version: PolicyVersion) -> PolicyVersion | None:
        """One request fewer; returns the version if that unloaded it."""
        if version not in self._held:
            return None
        self._held[version].users -= 1
        return self._forget_unused(version)

    def unload(self, version: PolicyVersion) -> PolicyVersion | None:
        """No new requests on the version; returns it if nothing ran on it, so that it is unloaded already."""
        if version not in self._held:
            return None
        self._held[version].is_leaving = True
        return self._forget_unused(version)

    def _forget_unused(self, version: PolicyVersion) -> PolicyVersion | None:
        held = self._held[version]
        if not held.is_leaving or held.users:
            return None
        del self._held[version]
        return version


def read_copy(adapter: Adapter, settings: EngineSettings, base: ServedModel) -> ServedModel:
    """The model in a version's folder, in a form that computes the same as the model itself. Raises AdapterError.

    Runs in a thread, concurrently with the steps.
    """
    wrong = "it has no form that can be served"
    try:
        if digest_of_folder(adapter.folder) != adapter.digest:
            raise _bad(adapter, "its files are not those that were written")
        for served in load_model(replace(settings, model=str(adapter.folder)), AdapterPass()):
            if _kind(served) != _kind(base):
                raise _bad(adapter, "it is another model than is being served")
            if not bool(served.reference.isfinite().all()):
                raise _bad(adapter, "it computes numbers that are not finite")
            try:
                check_form(served, _scratch(served), str(adapter.folder))
            except (ModelError, RuntimeError) as error:
                wrong = str(error)
                continue
            return served
    except (ModelError, OSError, ValueError) as error:
        raise _bad(adapter, str(error)) from error
    raise _bad(adapter, wrong)


def _kind(served: ServedModel) -> tuple[object, ...]:
    return served.architecture, served.parameters, served.vocab_size, served.layers, served.dtype, served.device


def _scratch(served: ServedModel) -> Cache:
    size = -(-served.probe.shape[1] // UNIT) * UNIT
    return Cache(served.layers, max(size, 512), dtype=served.dtype, device=served.device)


def _bad(adapter: Adapter, problem: str) -> AdapterError:
    return AdapterError(
        f"version {adapter.version} in {adapter.folder}: {problem}",
        fix="roll back to an earlier version, or restore the folder from a backup",
    )
