"""From settings to a core that is known to compute what the model computes."""

from __future__ import annotations

import logging
import time

import torch

from openclaw_rl.engines.local.adapters import AdapterPass, Adapters
from openclaw_rl.engines.local.attention import Piece, plan
from openclaw_rl.engines.local.blocks import Block
from openclaw_rl.engines.local.cache import Cache
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.memory import cache_tokens
from openclaw_rl.engines.local.model import OTHER_ENGINE, Served, load_model
from openclaw_rl.engines.local.settings import EngineInfo, LocalEngineSettings
from openclaw_rl.errors import ModelError

log = logging.getLogger(__name__)
SLACK = {torch.float32: 1e-3, torch.bfloat16: 0.12, torch.float16: 0.03}  # of the logits' own spread


def open_core(settings: LocalEngineSettings) -> Core:
    """Loads the model, checks it, and makes the engine. Raises ModelError or ConfigError."""
    torch.set_num_threads(settings.threads)
    now = AdapterPass()
    wrong: ModelError | None = None
    cache: Cache | None = None
    for served in load_model(settings, now):
        cache = cache or _cache(settings, served)
        try:
            seconds = _check(served, cache, settings.model)
        except (ModelError, RuntimeError) as error:
            # RuntimeError: shapes that do not fit are another way of being another architecture
            log.info("not served so: form=%s why=%s", type(served.logits).__name__, error)
            wrong = error if isinstance(error, ModelError) else ModelError(str(error), fix=OTHER_ENGINE)
            continue
        log.info(
            "loaded model=%s form=%s parameters=%d dtype=%s device=%s linears=%s",
            settings.model,
            type(served.logits).__name__,
            served.parameters,
            served.dtype,
            served.device,
            served.linears.kernels(),
        )
        linears = served.linears
        adapters = Adapters(linears.parts, linears.shapes, settings.max_versions, served.dtype, served.device, now)
        core = Core(served, cache, adapters, settings)
        core.pace.saw(seconds, [(0, served.probe.shape[1])], 0)
        return core
    raise wrong or ModelError(f"{settings.model} has no form that can be served", fix=OTHER_ENGINE)


def _cache(settings: LocalEngineSettings, served: Served) -> Cache:
    token_bytes = sum(layer.numbers for layer in served.layers.values()) * served.dtype.itemsize
    tokens = cache_tokens(settings, token_bytes=token_bytes, context=served.context_length, device=served.device)
    return Cache(served.layers, tokens, dtype=served.dtype, device=served.device)


def info_of(core: Core) -> EngineInfo:
    """What is being served."""
    served = core.served
    return EngineInfo(
        name=served.name,
        architecture=served.architecture,
        parameters=served.parameters,
        vocab_size=served.vocab_size,
        context_length=core.context,
        eos_ids=served.eos_ids,
        dtype=str(served.dtype).removeprefix("torch."),
        device=str(served.device),
        cache_tokens=core.room.blocks.total,
        linear_kernels=(type(served.logits).__name__.lower(), *served.linears.kernels()),
    )


@torch.inference_mode()
def _check(served: Served, cache: Cache, name: str) -> float:
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
            [] if is_row else [Piece(block, start, stop)],
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
            fix=OTHER_ENGINE,
        )
    begin = time.perf_counter()
    now = plan(cache, [], [Piece(block, 0, size)], served.dtype)
    served.logits(
        ids, torch.arange(size, device=served.device), torch.zeros(1, dtype=torch.long, device=served.device), now
    )
    return time.perf_counter() - begin
