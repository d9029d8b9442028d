"""A share and its confidence interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

Z_95 = 1.959964


@dataclass(frozen=True, slots=True)
class Share:
    """A count out of a total."""

    count: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.count <= self.of or self.of == 0:
            raise ValueError(f"{self.count} of {self.of} is not a share")

    @property
    def value(self) -> float:
        """The share, between 0 and 1."""
        return self.count / self.of

    def interval(self, z: float = Z_95) -> tuple[float, float]:
        """Wilson's interval for the share, 95 % by default.

        (p + z²/2n ± z·sqrt(p(1 − p)/n + z²/4n²)) / (1 + z²/n)
        """
        share, n = self.value, self.of
        middle = share + z * z / (2 * n)
        spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        whole = 1 + z * z / n
        return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)

    def __str__(self) -> str:
        """As `98 % (196 of 200)`."""
        return f"{100 * self.value:.0f} % ({self.count} of {self.of})"
