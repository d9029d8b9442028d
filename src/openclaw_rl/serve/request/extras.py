"""Parameters of engines beyond what each API itself names, under vLLM's names. Every body may contain them."""

from __future__ import annotations

import msgspec

from openclaw_rl.core.sampling import LogitAdjustment
from openclaw_rl.errors import RequestError

_EMPTY: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
_MOST_BIASED = 4096
_MOST_ID = 1 << 31


class Extras(msgspec.Struct, kw_only=True):
    """Biases and penalties, and constraints on the answer."""

    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    guided_json: msgspec.Raw = _EMPTY
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None
    structured_outputs: msgspec.Raw = _EMPTY


def leaning_of(body: Extras) -> LogitAdjustment | None:
    """What makes tokens likelier or less likely; None if nothing does. Raises RequestError if out of range."""
    given = body.logit_bias or {}
    if len(given) > _MOST_BIASED:
        raise RequestError(f"logit_bias names {len(given)} ids", fix=f"send at most {_MOST_BIASED}", param="logit_bias")
    try:
        found = LogitAdjustment(
            bias=tuple((_id(name), value) for name, value in given.items()),
            presence=body.presence_penalty or 0.0,
            frequency=body.frequency_penalty or 0.0,
            repetition=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        )
    except ValueError as problem:
        raise RequestError(str(problem), param=str(problem).split(" ", 1)[0]) from problem
    return None if found == LogitAdjustment() else found


def _id(name: str) -> int:
    if not (name.isascii() and name.isdigit() and len(name) < 12 and int(name) < _MOST_ID):
        raise RequestError(
            f"logit_bias contains {name!r}, which is not a token id", fix="send ids of this model", param="logit_bias"
        )
    return int(name)
