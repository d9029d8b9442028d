"""Whose adapter a version is: everybody's, or one user's or agent's own on top of it.

A scope's name tells its owner and is fit for a folder, a header and a version: `user-ann`, `agent-night=20shift`.
"""

from __future__ import annotations

import re
from enum import StrEnum

from openclaw_rl.core.version import SHARED

LONGEST = 150  # letters of a scope's name: folders are named after it
_PLAIN = re.compile(r"[a-z0-9_@-]")
_CODED = re.compile(r"=([0-9A-F]{2})")


class Owner(StrEnum):
    """Who may have an adapter of their own."""

    USER = "user"
    AGENT = "agent"


class Scopes(StrEnum):
    """Which adapters there are."""

    SHARED = "shared"  # one, that learns from everybody
    USER = "user"  # one for each user, on top of a shared one that stays as it is
    AGENT = "agent"
    SHARED_USER = "shared+user"  # the shared one learns from everybody, each user's from that user
    SHARED_AGENT = "shared+agent"

    @property
    def owner(self) -> Owner | None:
        """Who has an adapter of their own; None where nobody has."""
        last = self.value.rpartition("+")[2]
        return None if last == SHARED else Owner(last)

    @property
    def has_shared(self) -> bool:
        """Whether the shared adapter learns from those who have their own."""
        return self.value.startswith(SHARED)


def scope_of(owner: Owner, name: str) -> str | None:
    """The scope of a user or an agent; None for a name too long to call anything by.

    Letters that a folder or a header may not hold, or that differ in case alone, are written as the hexadecimal of
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
    """Who a scope belongs to; None for the shared one, and for names that `scope_of` does not give."""
    kind, dash, coded = scope.partition("-")
    if not dash or kind not in set(Owner):
        return None
    raw = _CODED.sub(lambda found: chr(int(found[1], 16)), coded).encode("latin-1", "replace")
    return Owner(kind), raw.decode("utf-8", "surrogatepass")


def own_scope(scopes: Scopes, *, user: str, agent: str) -> str | None:
    """The scope that belongs to whoever asks, and to nobody else; None where they have none."""
    owner = scopes.owner
    if owner is None or (owner is Owner.AGENT and agent in ("", "default")):
        return None  # an agent that gives no name cannot be told from others
    return scope_of(owner, user if owner is Owner.USER else agent)


def trained_scopes(scopes: Scopes, *, user: str, agent: str) -> tuple[str, ...]:
    """The scopes that a turn of theirs trains. Who has no scope of their own teaches the shared one."""
    own = own_scope(scopes, user=user, agent=agent)
    if own is None:
        return (SHARED,)
    return (SHARED, own) if scopes.has_shared else (own,)
