"""From settings to a core that is known to compute what the model computes."""

from __future__ import annotations

import time

import torch

from openclaw_rl.engines.local.adapters import AdapterPass, Adapters, Shape
from openclaw_rl.engines.local.attention import Piece, plan
from openclaw_rl.engines.local.blocks import Block
from openclaw_rl.engines.local.cache import Cache
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.memory import cache_tokens
from openclaw_rl.engines.local.model import OTHER_ENGINE, Served, load_model
from openclaw_rl.engines.local.settings import EngineInfo, LocalEngineSettings
from openclaw_rl.errors import ModelError

SLACK = {torch.float32: 2e-3, torch.bfloat16: 0.25, torch.float16: 0.05}  # of the logits' own spread


def open_core(settings: LocalEngineSettings) -> Core:
    """Loads the model, checks it, and makes the engine. Raises ModelError or ConfigError."""
    torch.set_num_threads(settings.threads)
    now = AdapterPass()
    served = load_model(settings, now)
    token_bytes = sum(layer.numbers for layer in served.layers.values()) * served.dtype.itemsize
    tokens = cache_tokens(settings, token_bytes=token_bytes, context=served.context_length, device=served.device)
    cache = Cache(served.layers, tokens, dtype=served.dtype, device=served.device)
    shapes = {name: Shape(linear.in_features, linear.out_features) for name, linear in served.linears.items()}
    adapters = Adapters(shapes, settings.max_versions, served.dtype, served.device, now)
    seconds = _check(served, cache, settings.model)
    core = Core(served, cache, adapters, settings)
    core.pace.saw(seconds, [(0, served.probe.shape[1])], 0)
    return core


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
        linear_kernels=served.kernels,
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
    if not worst <= SLACK[served.dtype] * spread + 1e-5:
        raise ModelError(
            f"the engine computes other log-probabilities for {name} than the model itself (off by {worst:.2g})",
            fix=OTHER_ENGINE,
        )
    begin = time.perf_counter()
    now = plan(cache, [], [Piece(block, 0, size)], served.dtype)
    served.logits(ids, torch.arange(size, device=served.device), torch.zeros(1, dtype=torch.long), now)
    return time.perf_counter() - begin
