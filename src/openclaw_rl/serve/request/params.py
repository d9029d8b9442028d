"""Which parameters are accepted, which are refused and why, and what sampling a request asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from openclaw_rl.core.message import Json
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import FACTS, ChatBody, CompletionBody, SamplingSpec, value_of
from openclaw_rl.serve.request.extras import Extras, leaning_of
from openclaw_rl.serve.settings import ServeSettings

_ENGINE = "the engine cannot do this"
_OFF: tuple[Json, ...] = (None, False, "", 0, [], {})
Refused = Mapping[str, tuple[tuple[Json, ...], str]]
# Parameters that would change the answer and that we cannot honour: the values that request nothing, and why.
_REFUSED: Refused = {
    "min_tokens": (_OFF, _ENGINE),
    "bad_words": (_OFF, _ENGINE),
    "allowed_token_ids": (_OFF, _ENGINE),
    "logits_processors": (_OFF, _ENGINE),
    "typical_p": ((None, 1), _ENGINE),
    "truncate_prompt_tokens": (_OFF, "a prompt is read whole or not at all"),
    "use_beam_search": (_OFF, _ENGINE),
    "prompt_logprobs": (_OFF, _ENGINE),
    "audio": (_OFF, "the model served here neither hears nor speaks"),
    "modalities": ((None, [], ["text"]), "the model served here writes text only"),
    "moderation": (_OFF, "this server does not moderate"),
    "functions": (_OFF, "functions are sent as `tools` now"),
    "function_call": ((None, "none", "auto"), "functions are sent as `tools` now"),
    "continue_final_message": (_OFF, "an answer begins a message of its own"),
    "echo": (_OFF, "the prompt is not repeated"),
    "suffix": (_OFF, "the model served here writes forward only"),
}
_NOTHING: Refused = {}
_MOST_STOPS = 16
_MOST_STOP_IDS = 1024
MOST_IDS = 1 << 31  # more than any vocabulary has
_MOST_LOGPROBS = 20
_SEED_RANGE = 1 << 63


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """The values used if a request names none: the settings', else the model's own, else these."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


def defaults_of(settings: ServeSettings, generation_config: Mapping[str, Json]) -> SamplingDefaults:
    """The defaults in force; `generation_config` is the model folder's file, {} if there is none."""
    own = SamplingDefaults()

    def first(given: float | None, name: str, last: float) -> float:
        held = generation_config.get(name)
        if given is not None:
            return given
        return float(held) if isinstance(held, int | float) and not isinstance(held, bool) else last

    return SamplingDefaults(
        first(settings.temperature, "temperature", own.temperature),
        first(settings.top_p, "top_p", own.top_p),
        int(first(settings.top_k, "top_k", own.top_k)),
        first(settings.min_p, "min_p", own.min_p),
    )


def check_parameters(
    fields: Mapping[str, msgspec.Raw], taken: frozenset[str], refused: Refused = _NOTHING
) -> list[str]:
    """The names that are ignored because they are unknown. Raises RequestError for those that are not supported.

    `refused` are those of one API only.
    """
    ignored: list[str] = []
    for name, raw in fields.items():
        if name in taken or name in FACTS:
            continue
        found = refused.get(name) or _REFUSED.get(name)
        if found is None:
            if bytes(raw) != b"null":  # null requests nothing
                ignored.append(name)
        elif value_of(raw) not in found[0]:
            raise unsupported(name, found[1])
    return ignored


def unsupported(name: str, why: str, *, fix: str = "leave it out") -> RequestError:
    """The refusal of a parameter that is not supported here."""
    return RequestError(f"{name} is not supported: {why}", fix=fix, code="unsupported_parameter", param=name)


def sampling_of(
    body: SamplingSpec,
    defaults: SamplingDefaults,
    eos_ids: tuple[int, ...],
    *,
    max_tokens: int,
    top_logprobs: int,
    extras: Extras | None = None,
) -> Sampling:
    """How tokens are sampled for this request, whose `extras` may be in another body. Raises RequestError for values
    out of range.
    """
    stops = () if body.ignore_eos else eos_ids
    own_stops = body.stop_token_ids or ()
    if len(own_stops) > _MOST_STOP_IDS or not all(0 <= token < MOST_IDS for token in own_stops):
        raise RequestError(
            f"stop_token_ids holds {len(own_stops)} numbers, or a value that is not a token id",
            fix=f"send at most {_MOST_STOP_IDS} ids of this model",
            param="stop_token_ids",
        )
    try:
        return Sampling(
            max_tokens=max_tokens,
            temperature=_or(body.temperature, defaults.temperature),
            top_p=_or(body.top_p, defaults.top_p),
            top_k=min(MOST_IDS, max(0, int(_or(body.top_k, defaults.top_k)))),  # -1 means off elsewhere
            min_p=_or(body.min_p, defaults.min_p),
            seed=None if body.seed is None else body.seed % _SEED_RANGE,
            top_logprobs=top_logprobs,
            stop_ids=(*stops, *own_stops),
            leaning=leaning_of(body if extras is None else extras),
        )
    except ValueError as problem:
        raise RequestError(str(problem), param=str(problem).split(" ", 1)[0]) from problem


def stops_of(body: SamplingSpec, name: str = "stop") -> tuple[str, ...]:
    """The stop texts. Raises RequestError for empty ones and too many."""
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    if len(stops) > _MOST_STOPS:
        raise RequestError(f"{name} holds {len(stops)} texts", fix=f"send at most {_MOST_STOPS}", param=name)
    if not all(stops):
        raise RequestError(f"{name} holds an empty text", fix="leave it out", param=name)
    return stops


def count_of(body: SamplingSpec, most: int) -> int:
    """How many answers. Raises RequestError if out of range."""
    count = 1 if body.n is None else body.n
    if not 1 <= count <= most:
        raise RequestError(f"n is {count}", fix=f"ask for 1 to {most} answers", param="n")
    return count


def limit_of(body: SamplingSpec, settings: ServeSettings) -> int | None:
    """The most tokens the request allows; None: the context is the limit. Raises RequestError below 1."""
    name, limit = "max_tokens", body.max_tokens
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        name, limit = "max_completion_tokens", body.max_completion_tokens
    if limit is not None and limit < 1:
        raise RequestError(f"{name} is {limit}", fix="an answer has at least one token", param=name)
    return limit or settings.default_max_tokens or None


def top_logprobs_of(body: ChatBody | CompletionBody) -> tuple[bool, int]:
    """Whether log-probabilities are wanted, and with how many alternatives."""
    if isinstance(body, CompletionBody):
        if not 0 <= (body.logprobs or 0) <= _MOST_LOGPROBS:
            raise RequestError(
                f"logprobs is {body.logprobs}", fix=f"ask for at most {_MOST_LOGPROBS} alternatives", param="logprobs"
            )
        return body.logprobs is not None, body.logprobs or 0
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs", fix="set logprobs to true", param="top_logprobs")
    return bool(body.logprobs), body.top_logprobs or 0


def includes_usage(body: SamplingSpec) -> bool:
    """Whether a stream ends with its usage. Raises RequestError if there is no stream."""
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options needs stream", fix="set stream to true", param="stream_options")
    return body.stream_options is not None and bool(body.stream_options.include_usage)


def _or(given: float | None, default: float) -> float:
    return default if given is None else given
