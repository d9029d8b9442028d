"""The small files of a home folder besides the store: the key for clients, and the running server's address."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from pathlib import Path

import msgspec

from openclaw_rl.core.disk import unwritable, write_whole
from openclaw_rl.errors import StoreError
from openclaw_rl.store.lock import holder_of

log = logging.getLogger(__name__)
KEY = "api_key"
KEY_FIX = "restore it from a backup, or remove it: a new key is created at the next start"
ADDRESS = "server.json"


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server of a home folder listens, for commands that talk to it."""

    url: str
    pid: int


def has_key(home: Path) -> bool:
    """Whether the installation already has its own API key."""
    try:
        return bool((home / KEY).read_bytes().strip())
    except FileNotFoundError:
        return False
    except OSError:
        return True


def check_key(home: Path) -> str | None:
    """The installation's own API key; None if there is none yet. Raises StoreError for a file without one."""
    path = home / KEY
    try:
        kept = path.read_text("utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as problem:
        raise StoreError(f"{path} cannot be read: {problem}", fix=KEY_FIX) from problem
    if not kept:
        raise StoreError(f"{path} holds no key", fix=KEY_FIX)
    return kept


def kept_key(home: Path) -> str:
    """The installation's own API key, created when it is first needed. Raises StoreError."""
    path = home / KEY
    if has_key(home) and (kept := check_key(home)):
        return kept
    key = f"sk-openclaw-{secrets.token_urlsafe(24)}"
    write_own(path, key + "\n")
    return key


def note_address(home: Path, address: Address) -> None:
    """Lets other commands find the server. Raises DiskError."""
    write_own(home / ADDRESS, msgspec.json.encode(address).decode() + "\n")


def forget_address(home: Path) -> None:
    """Removes the address of a server that has ended."""
    try:
        (home / ADDRESS).unlink(missing_ok=True)
    except OSError as problem:  # it is ignored anyway, since the folder's lock is free
        log.warning("%s stays: %s", home / ADDRESS, problem.strerror)


def address_of(home: Path) -> Address | None:
    """The address of this folder's server; None if none runs.

    A file that a killed server left does not count, nor one that was copied along with the folder: only the process
    that holds this folder's lock is its server, so that no command on a copy reaches the original.
    """
    try:
        found = msgspec.json.decode((home / ADDRESS).read_bytes(), type=Address)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if holder_of(home) == found.pid else None


def write_own(path: Path, text: str) -> None:
    """Writes atomically, readable only by the owner. Raises DiskError."""
    try:
        write_whole(path, text.encode("utf-8"))
    except OSError as problem:
        raise unwritable(path, problem) from problem
