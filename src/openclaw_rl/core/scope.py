"""Whose adapter a version is: everybody's, or one user's or agent's on top of it.

A scope's name contains its owner and is valid in a folder, a header and a version: `user-ann`, `agent-night=20shift`.
"""

from __future__ import annotations

import re
from enum import StrEnum

from openclaw_rl.core.version import SHARED

LONGEST = 150  # letters of a scope's name: folders have this name
_PLAIN = re.compile(r"[a-z0-9_@-]")
_CODED = re.compile(r"=([0-9A-F]{2})")


class Owner(StrEnum):
    """Who may have an adapter of their own."""

    USER = "user"
    AGENT = "agent"


class Scopes(StrEnum):
    """The sets of adapters."""

    SHARED = "shared"  # one that learns from everybody
    USER = "user"  # one for each user, on top of a shared one that does not change
    AGENT = "agent"
    SHARED_USER = "shared+user"  # the shared one learns from everybody, each user's from that user
    SHARED_AGENT = "shared+agent"

    @property
    def owner(self) -> Owner | None:
        """Who has an adapter of their own; None if nobody has."""
        last = self.value.rpartition("+")[2]
        return None if last == SHARED else Owner(last)

    @property
    def has_shared(self) -> bool:
        """Whether the shared adapter learns from those who have their own."""
        return self.value.startswith(SHARED)


def scope_of(owner: Owner, name: str) -> str | None:
    """The scope of a user or an agent; None for a name that is too long.

    Letters that are not allowed in a folder or header, or that differ only in case, are written as the hexadecimal of
    their UTF-8 bytes, so that different names have different scopes on any disk.
    """
    coded = "".join(
        letter
        if _PLAIN.fullmatch(letter)
        else "".join(f"={byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))
        for letter in name
    )
    scope = f"{owner.value}-{coded}"
    return scope if name and len(scope) <= LONGEST else None


def owner_of(scope: str) -> tuple[Owner, str] | None:
    """The owner of a scope; None for the shared one, and for names that `scope_of` does not produce."""
    kind, dash, coded = scope.partition("-")
    if not dash or kind not in set(Owner):
        return None
    raw = _CODED.sub(lambda found: chr(int(found[1], 16)), coded).encode("latin-1", "replace")
    return Owner(kind), raw.decode("utf-8", "surrogatepass")


def own_scope(scopes: Scopes, *, user: str, agent: str) -> str | None:
    """The requester's own scope; None if there is none."""
    owner = scopes.owner
    if owner is None or (owner is Owner.AGENT and agent in ("", "default")):
        return None  # an agent without a name cannot be distinguished from others
    return scope_of(owner, user if owner is Owner.USER else agent)


def trained_scopes(scopes: Scopes, *, user: str, agent: str) -> tuple[str, ...]:
    """The scopes that a user's or agent's turn trains. Without a scope of its own it trains the shared one."""
    own = own_scope(scopes, user=user, agent=agent)
    if own is None:
        return (SHARED,)
    return (SHARED, own) if scopes.has_shared else (own,)
