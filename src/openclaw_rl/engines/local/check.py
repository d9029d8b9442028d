"""Whether the engine computes what a model itself computes: shown on a probe, before anything is served."""

from __future__ import annotations

import logging
import time

import torch

from openclaw_rl.engines.local.attention import OTHER_MODEL, RowPiece, plan
from openclaw_rl.engines.local.cache import Block, Cache
from openclaw_rl.engines.local.model import ServedModel
from openclaw_rl.errors import ModelError

log = logging.getLogger(__name__)
SLACK = {torch.float32: 1e-3, torch.bfloat16: 0.12, torch.float16: 0.03}  # of the logits' own spread


@torch.inference_mode()
def check_form(served: ServedModel, cache: Cache, name: str) -> float:
    """Reads the probe in two pieces and a row, as serving does, and compares; the seconds one piece takes.

    Raises ModelError where the log-probabilities are not the model's own.
    """
    ids = served.probe[0]
    size = len(ids)
    block = Block(0, min(cache.tokens, 1 << (size - 1).bit_length()) if size > 256 else 256)
    worst = 0.0
    for start, stop, is_row in ((0, size // 3, False), (size // 3, size - 1, False), (size - 1, size, True)):
        spots = torch.arange(start, stop, device=served.device)
        now = plan(
            cache,
            [(block, start)] if is_row else [],
            [] if is_row else [RowPiece(block, start, stop)],
            served.dtype,
        )
        kept = torch.arange(stop - start, device=served.device)
        logp = torch.log_softmax(served.logits(ids[start:stop], spots, kept, now).float(), -1)
        worst = max(worst, float((logp - served.reference[start:stop]).abs().mean()))
    spread = float(served.reference.std())
    log.debug("check form=%s off_by=%.3g spread=%.3g", type(served.logits).__name__, worst, spread)
    if not worst <= SLACK[served.dtype] * spread + 1e-5:
        raise ModelError(
            f"the engine computes other log-probabilities for {name} than the model itself (off by {worst:.2g})",
            fix=OTHER_MODEL,
        )
    begin = time.perf_counter()
    now = plan(cache, [], [RowPiece(block, 0, size)], served.dtype)
    served.logits(
        ids, torch.arange(size, device=served.device), torch.zeros(1, dtype=torch.long, device=served.device), now
    )
    return time.perf_counter() - begin
