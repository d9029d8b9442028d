"""A hint that is kept for a user beyond the turn it came from, and what is done with it meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from openclaw_rl.core.hint import HintSource

FOLLOWED = " follows without it"  # in why a hint was retired: the weights have learned it


class Carry(StrEnum):
    """What a user's accepted hints do while the weights learn."""

    WEIGHTS = "weights"  # nothing is added to any prompt
    MEMORY = "memory"  # they stand in the prompt, and the weights are left alone
    BRIDGE = "bridge"  # they stand in the prompt until the weights follow without them


class HintState(StrEnum):
    """Whether a kept hint may be in a prompt."""

    IN_USE = "in_use"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class KeptHint:
    """A user's hint. `why` says how it came to stand as it does; `times` counts how often it was asked for.

    `turn` is the corrected turn it was taken from, None where it was written by hand.
    """

    id: str
    user: str
    text: str
    source: HintSource
    state: HintState
    why: str
    made_s: float
    changed_s: float
    turn: str | None = None
    times: int = 1

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("a hint says something")

    @property
    def is_in_use(self) -> bool:
        """Whether it may be in a prompt."""
        return self.state is HintState.IN_USE

    @property
    def is_wished(self) -> bool:
        """Whether the user still wishes for it: it is in use, or the weights follow it without being told."""
        return self.is_in_use or FOLLOWED in self.why
