"""Log-probabilities of sampled tokens as OpenAI's clients know them: of the model at temperature 1."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.message import Json
from openclaw_rl.render.encoding import TokenBytes

LEAST_LOGP = -9999.0  # JSON has no minus infinity


def token_entries(sampled: Sequence[SampledToken], table: TokenBytes) -> list[Json]:
    """One entry for each token that is not the format's own ending."""
    return [
        {
            **_entry(item.token, item.logp, table),
            "top_logprobs": [_entry(token, logp, table) for token, logp in item.top],
        }
        for item in sampled
        if item.finish is None or item.token not in table.special
    ]


def _entry(token: int, logp: float, table: TokenBytes) -> dict[str, Json]:
    held = table(token)
    return {"token": held.decode("utf-8", "replace"), "logprob": max(logp, LEAST_LOGP), "bytes": list(held)}
