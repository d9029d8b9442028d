"""What an engine sampled, token by token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from openclaw_rl.core.version import PolicyVersion


class Finish(StrEnum):
    """Why an answer ended."""

    STOP = "stop"  # the model ended it, or a stop text occurred
    LENGTH = "length"
    CANCELLED = "cancelled"  # the client disconnected


class SpanKind(StrEnum):
    """The part of an answer that a run of tokens belongs to."""

    REASONING = "reasoning"
    TEXT = "text"
    TOOL_CALL = "tool_call"
    MARK = "mark"  # the format's own tokens: think and call marks, end of turn


@dataclass(frozen=True, slots=True)
class Span:
    """The tokens `start` up to `stop` of an answer are of this kind."""

    kind: SpanKind
    start: int
    stop: int


class SampledToken(NamedTuple):
    """One sampled token. A tuple: one is made for each token, and a frozen dataclass takes three times as long.

    `logp_sampled` is that of the distribution it was drawn from (temperature and cuts applied), `logp` that of the
    model at temperature 1; both nats. `top` are the likeliest (id, logp) at temperature 1 if they were asked for.
    `finish` is set only on the last token; `cached`, on the first, counts the prompt's ids whose keys and values were
    reused. If a grammar constrained the answer, `logp_masked` is the model's at temperature 1 among the tokens the
    grammar allowed, and `is_forced` says that it allowed only this one.
    """

    token: int
    logp_sampled: float
    logp: float
    version: PolicyVersion
    top: tuple[tuple[int, float], ...] = ()
    finish: Finish | None = None
    cached: int = 0
    logp_masked: float | None = None
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """What the engine sampled: ids, never encoded again from text, and the version that sampled them.

    `logp_sampled` and `logp` are nats, one per token, as in SampledToken. A request ends on the version it began
    with, so there is one version. `logp_masked` and `forced` are empty if no grammar constrained the answer.
    """

    tokens: tuple[int, ...]
    logp_sampled: tuple[float, ...]
    logp: tuple[float, ...]
    version: PolicyVersion
    finish: Finish
    spans: tuple[Span, ...] = ()
    logp_masked: tuple[float, ...] = ()
    forced: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.logp) == len(self.logp_sampled):
            raise ValueError(
                f"{len(self.tokens)} tokens but {len(self.logp)} and {len(self.logp_sampled)} log-probabilities"
            )
        if len(self.logp_masked) != len(self.forced) or len(self.forced) not in (0, len(self.tokens)):
            raise ValueError(f"a grammar's marks on {len(self.forced)} of {len(self.tokens)} tokens")
        if any(not math.isfinite(value) or value > 1e-6 for value in self.logp):
            raise ValueError("a log-probability is not finite or above 0")


def completion_of(sampled: Sequence[SampledToken], version: PolicyVersion, finish: Finish) -> Completion:
    """The tokens of one answer as a completion. Raises ValueError if a token names another version."""
    strangers = {str(item.version) for item in sampled if item.version != version}
    if strangers:
        raise ValueError(f"an answer of {version} holds tokens of {', '.join(sorted(strangers))}")
    masked = [item.logp_masked for item in sampled if item.logp_masked is not None]
    return Completion(
        tokens=tuple(item.token for item in sampled),
        logp_sampled=tuple(item.logp_sampled for item in sampled),
        logp=tuple(item.logp for item in sampled),
        version=version,
        finish=finish,
        logp_masked=tuple(masked),
        forced=tuple(item.is_forced for item in sampled) if masked else (),
    )


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probabilities an engine computed for given ids, nats at temperature 1.

    `logp[i]` belongs to token `start + i` of the prompt that was scored; `top[i]` contains the top-k (id, logp) there.
    """

    start: int
    logp: tuple[float, ...]
    top: tuple[tuple[tuple[int, float], ...], ...] = ()
