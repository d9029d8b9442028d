"""Serving and learning on one GPU: the memory of both, the gaps between tokens, and a version that goes live.

What a card of 24 GB would show is seen on a larger one by holding the rest of its memory: both processes then find as
much free as they would there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from benchmarks.common import Figures, progress, quantile
from benchmarks.gpu_decode import READ
from benchmarks.gpu_model import Setup, Watch, ballast, engine_settings, free_unused, gb
from benchmarks.gpu_train import batch, long_sample
from benchmarks.peers import ids
from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.engines import EngineSettings, LocalEngine
from openclaw_rl.errors import EngineError, OpenClawRLError
from openclaw_rl.trainers.process import TrainerProcess
from openclaw_rl.trainers.settings import TrainerSettings

CARD_BYTES = int(23.5 * 2**30)  # what a card sold as 24 GB leaves to programs
STREAMS, WRITE = 4, 512
V1 = PolicyVersion(SHARED, 1)
SettingsT = TypeVar("SettingsT", EngineSettings, TrainerSettings)


@dataclass(frozen=True, slots=True)
class Try:
    """Settings that may fit."""

    name: str
    engine: EngineSettings
    trainer: TrainerSettings


@dataclass(slots=True)
class Seen:
    """What the streams saw."""

    current: PolicyVersion = BASE
    is_over: bool = False
    gaps: list[tuple[float, float]] = field(default_factory=list)  # when it ended, how long it was
    answers: int = 0

    def between(self, begin: float, end: float) -> Figures:
        """The gaps of a stretch of time."""
        found = [1e3 * gap for at, gap in self.gaps if begin <= at <= end]
        if not found:
            raise RuntimeError("no token came")
        return {
            "gap_p50_ms": round(quantile(found, 0.5), 2),
            "gap_p99_ms": round(quantile(found, 0.99), 2),
            "gap_max_ms": round(max(found), 2),
            "tokens_per_s": round(len(found) / (end - begin), 1),
        }


def tries(setup: Setup) -> list[Try]:
    """The settings as they come, and those somebody with 24 GB would set."""
    engine = engine_settings(setup)
    trainer = TrainerSettings(device=setup.device, dtype="bfloat16")
    return [
        Try("defaults", engine, trainer),
        Try(
            "bounded",
            replace(engine, cache_tokens=24_576),
            replace(trainer, rank=16, alpha=32.0, recompute_layers=True, scopes_in_memory=0),
        ),
    ]


def together(setup: Setup) -> Figures:
    """The first settings under which both go on in 24 GB; where none do, the last ones' figures with all memory."""
    figures: Figures = {"card_gb": gb(CARD_BYTES), "streams": STREAMS, "fits_24_gb": None, "did_not_fit": {}}
    failed: dict[str, str] = {}
    for one in tries(setup) if setup.is_gpu else []:
        held = ballast(setup, leaving_bytes=CARD_BYTES)
        try:
            found = asyncio.run(beside(setup, one))
        except* (OpenClawRLError, RuntimeError) as problems:
            failed[one.name] = "; ".join(texts(problems))[:600]
            progress(f"{one.name} did not fit: {failed[one.name]}")
        else:
            return figures | {"did_not_fit": failed, "fits_24_gb": True} | found
        finally:
            del held
            free_unused()
    found = asyncio.run(beside(setup, tries(setup)[-1]))
    return figures | {"did_not_fit": failed, "fits_24_gb": False if setup.is_gpu else None} | found


async def beside(setup: Setup, one: Try) -> Figures:
    """Streams while the trainer rests, steps, and what it made is loaded. Raises where a process dies."""
    folder, seen = setup.home / f"together-{time.monotonic_ns()}", Seen()
    with Watch(setup) as watch:
        engine = await LocalEngine.start(one.engine)
        trainer: TrainerProcess | None = None
        try:
            serving = watch.now_bytes()
            progress(f"{one.name}: the engine takes {gb(serving)} GB, cache of {engine.info.cache_tokens} tokens")
            trainer = await TrainerProcess.start(setup.model, one.trainer)
            progress(f"{one.name}: with the trainer {gb(watch.now_bytes())} GB")
            async with asyncio.TaskGroup() as group:
                for number in range(STREAMS):
                    group.create_task(_stream(engine, number, seen))
                try:
                    found = await _phases(setup, trainer, seen)
                    adapter = await trainer.export(folder, V1)
                    found["load"] = await _load(engine, adapter, seen)
                finally:
                    seen.is_over = True
            await _check_alive(engine)
            peak = watch.most_bytes()
            found["long_step"] = await _long_step(setup, trainer, engine)
        finally:
            if trainer is not None:
                await trainer.aclose()
            await engine.aclose()
    progress(f"{one.name}: {gb(peak)} GB at most, {gb(watch.most_bytes())} GB with the long step")
    return found | {
        "settings": {"name": one.name, "engine": _changed(one.engine), "trainer": _changed(one.trainer)},
        "cache_tokens": engine.info.cache_tokens,
        "engine_gb": gb(serving),
        "peak_gb": gb(peak),
        "peak_with_long_step_gb": gb(watch.most_bytes()),
        "answers": seen.answers,
    }


async def _phases(setup: Setup, trainer: TrainerProcess, seen: Seen) -> Figures:
    """The gaps while the trainer rests and while it steps, one step at least."""
    samples = batch(setup)
    await asyncio.sleep(2)  # first requests warm up
    begin = time.perf_counter()
    await asyncio.sleep(setup.sized(8, 2))
    idle = seen.between(begin, time.perf_counter())
    progress(f"idle: {idle}")
    seconds: list[float] = []
    begin = time.perf_counter()
    while not seconds or time.perf_counter() - begin < setup.sized(12, 2):
        began = time.perf_counter()
        report = await trainer.step(samples, resume=None)
        if not report.took_step:
            raise RuntimeError(f"no step was taken: {report.why}")
        seconds.append(time.perf_counter() - began)
    training = seen.between(begin, time.perf_counter())
    progress(f"training: {training}, steps of {seconds}")
    return {"idle": idle, "training": training, "step_s": [round(value, 2) for value in seconds]}


async def _load(engine: LocalEngine, adapter: Adapter, seen: Seen) -> Figures:
    """The new version goes live under the streams, and answers."""
    begin = time.perf_counter()
    await engine.load(adapter)
    loaded = time.perf_counter()
    seen.current = adapter.version
    said = [
        item.version
        async for item in engine.generate(Prompt(ids(READ, 3)), Sampling(max_tokens=16, seed=3), adapter.version)
    ]
    if said != [adapter.version] * 16:
        raise RuntimeError(f"asked for {adapter.version}, and {said} spoke")
    await asyncio.sleep(3)
    found = {"load_s": round(loaded - begin, 3), **seen.between(begin, loaded + 0.5)}
    after = seen.between(loaded + 0.5, time.perf_counter())  # raises where streams have stopped
    progress(f"the new version: {found}")
    return found | {"streams_on_both_versions": after, "new_version_answered": True}


async def _long_step(setup: Setup, trainer: TrainerProcess, engine: LocalEngine) -> Figures:
    """A step over one long conversation beside the engine; memory may not suffice, which is a figure too."""
    begin = time.perf_counter()
    try:
        report = await trainer.step(long_sample(setup), resume=None)
        await _check_alive(engine)
    except OpenClawRLError as problem:
        return {"took_step": False, "error": str(problem)}
    return {"took_step": report.took_step, "step_s": round(time.perf_counter() - begin, 2)}


async def _check_alive(engine: LocalEngine) -> None:
    if restarts := (await engine.stats()).restarts:
        raise EngineError(f"the engine's process died and was started again, {restarts} times")


async def _stream(engine: LocalEngine, number: int, seen: Seen) -> None:
    """Asks again as soon as it is answered, on the version that is current."""
    turn = 0
    while not seen.is_over:
        turn += 1
        prompt, sampling = ids(READ, 1000 * number + turn), Sampling(max_tokens=WRITE, seed=turn)
        last = 0.0
        async for _ in engine.generate(Prompt(prompt), sampling, seen.current):
            now = time.perf_counter()
            if last:
                seen.gaps.append((now, now - last))
            last = now
            if seen.is_over:
                return
        seen.answers += 1


def _changed(settings: SettingsT) -> dict[str, object]:
    """What differs from the defaults, but for the model's folder."""
    usual = asdict(type(settings)())
    return {key: value for key, value in asdict(settings).items() if key != "model" and value != usual[key]}


def texts(problems: BaseExceptionGroup[Exception]) -> Sequence[str]:
    """What went wrong, one text for each exception."""
    return [
        text
        for one in problems.exceptions
        for text in (texts(one) if isinstance(one, BaseExceptionGroup) else [f"{type(one).__name__}: {one}"])
    ]
