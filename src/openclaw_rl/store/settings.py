"""The settings of the store: what is masked before it is kept, and for how long it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Redact(StrEnum):
    """A kind of private text that can be masked."""

    KEYS = "keys"  # API keys, tokens, passwords, private keys
    CARDS = "cards"  # numbers of payment cards
    EMAILS = "emails"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What is kept of conversations, and for how long."""

    redact: tuple[Redact, ...] = (Redact.KEYS, Redact.CARDS)
    """What is masked before a turn is stored, judged or learned from: keys, cards, emails; empty for nothing. Change it
    when other kinds of private text must not be stored."""
    keep_days: float = 0.0
    """Turns of ended sessions are erased after this many days; what was learned stays. 0 keeps them. Change it when
    conversations must not be kept for ever."""
    pictures_mb: int = 512
    """The most megabytes of screenshots of agents' attempts; beyond it the oldest are removed; 0 keeps none. Change it
    when attempts should stay visible for longer, when the disk is small, or when screens show what must not be kept."""

    def __post_init__(self) -> None:
        if self.keep_days < 0:
            raise ValueError(f"keep_days is {self.keep_days}: it is 0 or more")
        if self.pictures_mb < 0:
            raise ValueError(f"pictures_mb is {self.pictures_mb}: it is 0 or more")
