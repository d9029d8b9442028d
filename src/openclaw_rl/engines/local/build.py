"""From settings to a core that is checked to compute what the model computes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import torch

from openclaw_rl.core.engine import EngineInfo
from openclaw_rl.engines.local.adapters import AdapterPass, Adapters
from openclaw_rl.engines.local.attention import OTHER_MODEL
from openclaw_rl.engines.local.cache import UNIT, Cache, RowsKernel, block_size
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.grammars import Grammars
from openclaw_rl.engines.local.graphs import CudaRecorder, Recorder
from openclaw_rl.engines.local.guide_process import GuideProcess
from openclaw_rl.engines.local.lean import LeanForward
from openclaw_rl.engines.local.masks import GrammarSource, MaskMaker, MaskSource
from openclaw_rl.engines.local.model import ServedModel, check_form, free_bytes, load_model, piece_seconds
from openclaw_rl.engines.local.pace import LEAST, MOST, Counts
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.errors import ConfigError, ModelError
from openclaw_rl.weights.mapped_files import cache_folder

log = logging.getLogger(__name__)
GIB = 1 << 30


def open_core(
    settings: EngineSettings,
    *,
    is_apart: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    rows_kernel: RowsKernel | None = None,
    recorder: Recorder | None = None,
) -> Core:
    """Loads the model, checks it, and makes the engine, timed by the clock.

    With `is_apart`, grammars are followed in another process. The kernel and the recorder of decode steps are those
    that the device has, unless they are given. Raises ModelError or ConfigError.
    """
    torch.set_num_threads(settings.threads)
    now = AdapterPass()
    wrong: ModelError | None = None
    cache: Cache | None = None
    for served in load_model(settings, now, shared=cache_folder()):
        cache = cache or _cache(settings, served, rows_kernel or _rows_kernel(served))
        try:
            check_form(served, cache, settings.model)
        except (ModelError, RuntimeError, AttributeError, TypeError, ValueError) as error:
            # shapes and parts that do not fit also mean another architecture
            log.info("not served so: form=%s why=%s", type(served.logits).__name__, error)
            wrong = error if isinstance(error, ModelError) else ModelError(str(error), fix=OTHER_MODEL)
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
        torch.cuda.empty_cache()  # memory of loading and the check is freed for a trainer on the same device
        linears = served.linears
        adapters = Adapters(linears.parts, linears.shapes, settings.max_versions, served.dtype, served.device, now)
        held = _held(settings, served, is_apart=is_apart)
        recorder = _recorder(settings, served, cache) if recorder is None else recorder
        core = Core(served, cache, adapters, settings, held, counts=Counts(clock=clock), recorder=recorder)
        _time_passes(core, served, cache)
        return core
    raise wrong or ModelError(f"{settings.model} has no form that can be served", fix=OTHER_MODEL)


def _time_passes(core: Core, served: ServedModel, cache: Cache) -> None:
    """So that the first prompts are read at the machine's pace.

    On a GPU a pass has a price however few tokens it reads, and a decode step is replayed without that price.
    """
    if served.device.type != "cuda":
        size = served.probe.shape[1]
        core.pace.saw(piece_seconds(served, cache, size), [(0, size)], 0)
        return
    long = min(MOST, cache.tokens)
    for count in (LEAST, long):
        piece_seconds(served, cache, count)  # the first of a size chooses its kernels
    short_s, long_s = (min(piece_seconds(served, cache, count) for _ in range(3)) for count in (LEAST, long))
    core.pace.timed(LEAST, short_s, long, long_s)


def _held(settings: EngineSettings, served: ServedModel, *, is_apart: bool) -> tuple[GrammarSource, MaskSource]:
    """What compiles grammars, and what makes the masks of a step."""
    end = served.eos_ids[0] if served.eos_ids else 0
    tokenizer = Path(settings.model) / "tokenizer.json"
    if is_apart:
        process = GuideProcess(tokenizer, served.vocab_size, end, served.device)
        return process, process
    return Grammars(tokenizer, served.vocab_size, end), MaskMaker(served.vocab_size, served.device)


def _cache(settings: EngineSettings, served: ServedModel, rows_kernel: RowsKernel | None) -> Cache:
    token_bytes = sum(layer.numbers for layer in served.layers.values()) * served.dtype.itemsize
    tokens = _cache_tokens(settings, token_bytes=token_bytes, context=served.context_length, device=served.device)
    return Cache(served.layers, tokens, dtype=served.dtype, device=served.device, rows_kernel=rows_kernel)


def _rows_kernel(served: ServedModel) -> RowsKernel | None:
    """The kernel of decoding rows on this GPU; None on a CPU, and where it cannot be compiled or computes wrongly."""
    if served.device.type != "cuda" or not served.is_plain:
        return None
    try:
        from openclaw_rl.engines.local import ragged

        for layer in set(served.layers.values()):
            ragged.check(served.device, served.dtype, layer)
    except Exception as error:  # Triton's compiler, and the C compiler that it calls, raise errors of many kinds
        log.warning("decode steps run without a kernel of our own, and slower: %s: %s", type(error).__name__, error)
        return None
    return ragged.attend_rows


def _recorder(settings: EngineSettings, served: ServedModel, cache: Cache) -> Recorder | None:
    """What records decode steps; None where that is switched off or impossible."""
    can = cache.rows_kernel is not None and isinstance(served.logits, LeanForward) and served.device.type == "cuda"
    return CudaRecorder(served.device) if can and settings.cuda_graphs else None


def _cache_tokens(settings: EngineSettings, *, token_bytes: int, context: int, device: torch.device) -> int:
    """How many tokens the cache holds, a whole number of its smallest blocks. Raises ConfigError below one block."""
    if settings.cache_tokens:
        tokens = settings.cache_tokens
    elif settings.cache_bytes:
        tokens = settings.cache_bytes // token_bytes
    else:
        wanted = max(GIB, 2 * block_size(context) * token_bytes)
        tokens = min(wanted, free_bytes(device) // 4) // token_bytes  # a trainer and a judge need their share
    if tokens < UNIT:
        raise ConfigError(
            f"the cache would hold {tokens} tokens of {token_bytes} bytes",
            fix=f"set engine.cache_tokens to at least {UNIT}, better to several contexts",
        )
    return tokens // UNIT * UNIT


def info_of(core: Core) -> EngineInfo:
    """Facts of the served model."""
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
        linear_kernels=("lean" if isinstance(served.logits, LeanForward) else "whole", *served.linears.kernels()),
    )
