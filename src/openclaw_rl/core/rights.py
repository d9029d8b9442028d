"""What the owner of an API key may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Right(StrEnum):
    """One right of a key."""

    CHAT = "chat"  # ask for answers, end own sessions
    FEEDBACK = "feedback"  # thumbs and corrections for own answers
    TEACH = "teach"  # own turns become samples
    ADMIN = "admin"  # see everybody's turns and versions, roll back, edit hints


ALL_RIGHTS = frozenset(Right)


@dataclass(frozen=True, slots=True)
class Limits:
    """A key's limits per minute and for the size of a request; 0 for the settings' values."""

    requests_a_minute: int = 0
    tokens_a_minute: int = 0
    max_body_bytes: int = 0

    def __post_init__(self) -> None:
        if min(self.requests_a_minute, self.tokens_a_minute, self.max_body_bytes) < 0:
            raise ValueError("a limit is 0 or more")


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A stored key: only its SHA-256. Keys are made by us from 192 random bits, so a slow hash adds nothing."""

    name: str
    digest: str  # hex
    rights: frozenset[Right]
    limits: Limits = NO_LIMITS
    made_s: float = 0.0
    revoked_s: float | None = None

    @property
    def is_valid(self) -> bool:
        """Whether it is still accepted."""
        return self.revoked_s is None
