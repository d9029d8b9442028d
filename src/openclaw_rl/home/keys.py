"""The keys of an installation besides its first: named, with rights and limits, stored as hashes in its home folder.

They are in a separate file, not in the store, so that they can be added and revoked while a server uses the store:
it reads the file again when it has changed. When each was last used is in a second file, which the server writes.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from openclaw_rl.core.disk import unwritable
from openclaw_rl.core.rights import NO_LIMITS, KnownKey, Limits, Right
from openclaw_rl.errors import ConfigError, DiskError, StoreError
from openclaw_rl.home.folder import write_own
from openclaw_rl.serve.door.auth import OPEN, OWNER, key_digest

log = logging.getLogger(__name__)
FILE = "keys.json"
USED = "keys_used.json"
NOTED_EVERY_S = 60.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_TAKEN = frozenset({OWNER, OPEN})


def kept_keys(home: Path) -> tuple[KnownKey, ...]:
    """The keys in the folder, oldest first. Raises StoreError for a file that cannot be read."""
    path = home / FILE
    try:
        return tuple(msgspec.json.decode(path.read_bytes(), type=list[KnownKey]))
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise StoreError(
            f"{path} cannot be read: {problem}",
            fix="restore it from a backup; or remove it, and create the keys again with `openclaw-rl keys add`",
        ) from problem


def last_used(home: Path) -> Mapping[str, float]:
    """When each key was last used, as far as a server has recorded it."""
    try:
        return msgspec.json.decode((home / USED).read_bytes(), type=dict[str, float])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def add_key(home: Path, name: str, rights: frozenset[Right], limits: Limits = NO_LIMITS) -> str:
    """A new key, shown once: only its hash is kept. Raises ConfigError for a name that is taken or not valid."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a valid key name", fix="use up to 64 letters, digits and . _ @ -")
    if not rights:
        raise ConfigError(f"the key {name} would have no rights", fix=f"give at least one scope: {', '.join(Right)}")
    key = f"sk-openclaw-{secrets.token_urlsafe(24)}"
    with _changing(home) as kept:
        if name in _TAKEN or any(item.name == name for item in kept):
            raise ConfigError(
                f"there is a key named {name}", fix="choose another name; the turns of a revoked key keep its name"
            )
        kept.append(KnownKey(name, key_digest(key), rights, limits, made_s=time.time()))
    return key


def revoke_key(home: Path, name: str) -> None:
    """Revokes the key. Raises ConfigError if there is none of this name."""
    with _changing(home) as kept:
        at = next((at for at, item in enumerate(kept) if item.name == name), None)
        if at is None:
            known = ", ".join(item.name for item in kept) or "none yet"
            raise ConfigError(f"there is no key named {name}", fix=f"known here: {known}")
        if kept[at].is_valid:
            kept[at] = replace(kept[at], revoked_s=time.time())


@dataclass(slots=True)
class KeyBook:
    """The server's view of the keys: read again when the file has changed."""

    home: Path
    _seen: tuple[int, int] | None = None
    _keys: Sequence[KnownKey] = ()
    _used: dict[str, float] = field(default_factory=dict)
    _noted_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._used.update(last_used(self.home))
        self.keys()

    def keys(self) -> Sequence[KnownKey]:
        """All keys, including revoked ones. While the file cannot be read, none is accepted."""
        try:
            facts = (self.home / FILE).stat()
        except FileNotFoundError:
            self._seen, self._keys = None, ()
            return self._keys
        stamp = (facts.st_mtime_ns, facts.st_ino)
        if stamp != self._seen:
            try:
                self._keys = kept_keys(self.home)
            except StoreError as problem:
                log.error("no key of it is accepted: %s", problem)
                self._keys = ()
            self._seen = stamp
        return self._keys

    def used(self, name: str) -> None:
        """Records that the key was accepted now; written at most once a minute, and by `note`."""
        self._used[name] = time.time()
        if time.monotonic() - self._noted_s > NOTED_EVERY_S:
            self.note()

    def note(self) -> None:
        """Writes when each was last used."""
        self._noted_s = time.monotonic()
        if not self._used:
            return
        try:
            write_own(self.home / USED, msgspec.json.encode(self._used).decode())
        except DiskError as problem:
            log.warning("when keys were last used could not be noted: %s", problem)


@contextmanager
def _changing(home: Path) -> Iterator[list[KnownKey]]:
    """The keys, written back at the end, under a lock."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(home / "keys.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as problem:
        raise unwritable(home / FILE, problem) from problem
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        kept = list(kept_keys(home))
        yield kept
        write_own(home / FILE, msgspec.json.format(msgspec.json.encode(kept), indent=1).decode() + "\n")
    finally:
        os.close(handle)
