"""A policy version: which weights sampled."""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.errors import ConfigError

SHARED = "shared"
_DIGITS = 18  # the store uses 64-bit integers


@dataclass(frozen=True, slots=True, order=True)
class PolicyVersion:
    """A numbered set of weights within a scope; number 0 is the base model without an adapter."""

    scope: str
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError(f"version {self.number}: numbers start at 0, the base model")
        if not self.scope or "/" in self.scope:
            raise ValueError(f"scope {self.scope!r} must be a name without slashes")

    @property
    def is_base(self) -> bool:
        """Whether this is the base model."""
        return self.number == 0

    def lag(self, newest: PolicyVersion) -> int:
        """The number of later versions of the same scope."""
        if newest.scope != self.scope:
            raise ValueError(f"{self} and {newest} are of different scopes")
        return newest.number - self.number

    def __str__(self) -> str:
        """`scope.number`, as in headers, folders and the command line."""
        return f"{self.scope}.{self.number}"


BASE = PolicyVersion(SHARED, 0)


def parse_version(text: str) -> PolicyVersion:
    """The version that `str` wrote; a bare number means the shared scope. Raises ValueError."""
    scope, dot, number = text.rpartition(".")
    if len(number) > _DIGITS:
        raise ValueError(f"a version's number has at most {_DIGITS} digits")
    return PolicyVersion(scope if dot else SHARED, int(number))


def named_version(name: str) -> PolicyVersion:
    """The version that a user names. Raises ConfigError."""
    try:
        return parse_version(name)
    except ValueError:
        raise ConfigError(f"{name!r} is not a version", fix="write a number, or a name such as shared.3") from None
