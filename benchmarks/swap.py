"""`make bench-swap`: 16 streams without pause through 20 version changes, and every output computed again apart.

python -m benchmarks.swap
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.common import VOCAB, Figures, conditions, finish, is_quick, make_model, progress, quantile
from benchmarks.recompute import is_right, make_adapter
from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.completion import Finish, SampledToken
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines import EngineSettings, LocalEngine
from openclaw_rl.errors import EngineError, RequestError

STREAMS = 16
READ, WRITE = 64, 96
BETWEEN_S = 0.5
AROUND_S = 0.1  # after a change, a gap still counts as its own


@dataclass(slots=True)
class Output:
    """One answer, what was asked for, and on which version."""

    prompt: tuple[int, ...]
    sampling: Sampling
    version: PolicyVersion
    items: list[SampledToken] = field(default_factory=list)


@dataclass(slots=True)
class Record:
    """What the streams saw."""

    current: PolicyVersion = BASE
    is_over: bool = False
    refused: int = 0
    cut: int = 0
    outputs: list[Output] = field(default_factory=list)
    gaps: list[tuple[float, float]] = field(default_factory=list)  # when it ended, how long it was
    changes: list[tuple[float, float]] = field(default_factory=list)  # load begun, change done


def main() -> None:
    """Measures, computes again, and prints the figures."""
    swaps = 4 if is_quick() else 20
    with tempfile.TemporaryDirectory() as place:
        model = make_model(Path(place) / "model")
        adapters = [make_adapter(model, Path(place) / f"v{number}", number) for number in range(1, swaps + 1)]
        progress(f"{STREAMS} streams through {swaps} versions")
        record = asyncio.run(through_local(model, adapters))
        progress(f"{len(record.outputs)} answers; each is computed again by transformers and peft alone")
        figures = judged(record, model, {adapter.version: adapter for adapter in adapters})
    figures["conditions"] = conditions(
        "random Qwen3, 4 layers, hidden 256, vocabulary 4096; random adapters of rank 8",
        threads=1,
        seeds=[0],
        repeats=1,
    )
    finish(figures)


async def through_local(
    model: Path, adapters: list[Adapter], *, streams: int = STREAMS, between_s: float = BETWEEN_S
) -> Record:
    """Serves them with the local engine."""
    engine = await LocalEngine.start(EngineSettings(model=str(model), device="cpu", threads=1, max_rows=streams))
    try:
        return await serve(engine, adapters, streams=streams, between_s=between_s)
    finally:
        await engine.aclose()


async def serve(
    engine: Engine, adapters: list[Adapter], *, streams: int = STREAMS, between_s: float = BETWEEN_S
) -> Record:
    """Runs the streams while version after version is loaded, made current, and the one before it let go."""
    record = Record()
    async with asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(_stream(engine, number, record))
        await asyncio.sleep(2 * between_s)
        for adapter in adapters:
            begin, before = time.perf_counter(), record.current
            await _load(engine, adapter)
            record.current = adapter.version
            await engine.unload(before)
            record.changes.append((begin, time.perf_counter()))
            await asyncio.sleep(between_s)
            while not any(output.version == adapter.version for output in record.outputs):  # noqa: ASYNC110
                await asyncio.sleep(between_s / 10)  # on slow cores: each version gives an answer at least
        record.is_over = True
    return record


async def _load(engine: Engine, adapter: Adapter) -> None:
    """Waits where streams still run on as many versions as may be live, as whoever publishes does."""
    while True:
        try:
            return await engine.load(adapter)
        except EngineError as problem:
            progress(f"later: {problem}")
            await asyncio.sleep(BETWEEN_S)


async def _stream(engine: Engine, number: int, record: Record) -> None:
    """Asks again as soon as it is answered; every other request is greedy."""
    source = random.Random(number)
    turn = 0
    while not record.is_over:
        turn += 1
        prompt = tuple(source.randrange(VOCAB) for _ in range(READ))
        heat = 0.0 if turn % 2 else 1.0
        sampling = Sampling(max_tokens=WRITE, temperature=heat, seed=source.getrandbits(32))
        output = Output(prompt, sampling, record.current)
        last = 0.0
        try:
            async for item in engine.generate(Prompt(prompt), sampling, output.version):
                now = time.perf_counter()
                if last:
                    record.gaps.append((now, now - last))
                last = now
                output.items.append(item)
        except (EngineError, RequestError) as error:
            progress(f"refused: {error}")
            record.refused += 1
            continue
        record.cut += len(output.items) != WRITE or output.items[-1].finish is not Finish.LENGTH
        record.outputs.append(output)


def judged(record: Record, model: Path, adapters: dict[PolicyVersion, Adapter]) -> Figures:
    """The figures of a record."""
    near = [gap for at, gap in record.gaps if _is_near(at - gap, at, record)]
    far = [gap for at, gap in record.gaps if not _is_near(at - gap, at, record)]
    step = median(far)
    wrong = 0
    for version in sorted({output.version for output in record.outputs}, key=str):
        asked = [output for output in record.outputs if output.version == version]
        wrong += is_right(
            model,
            adapters.get(version),
            [(output.prompt, output.sampling, output.items) for output in asked],
        ).count(False)
    extra = (quantile(near, 0.99) - quantile(far, 0.99)) / step
    progress(f"gap p99 at a change {quantile(near, 0.99) * 1e3:.1f} ms, else {quantile(far, 0.99) * 1e3:.1f} ms")
    return {
        "streams": STREAMS,
        "swaps": len(record.changes),
        "refused": record.refused,
        "cut": record.cut,
        "wrong_version_tokens": sum(
            item.version != output.version for output in record.outputs for item in output.items
        ),
        "wrong_outputs": wrong,
        "outputs": len(record.outputs),
        "extra_gap_p99_in_decode_steps": round(max(0.0, extra), 3),
        "decode_step_ms": round(step * 1e3, 3),
        "change_ms_p50": round(median(done - begin for begin, done in record.changes) * 1e3, 2),
    }


def _is_near(begin: float, end: float, record: Record) -> bool:
    return any(begin < done + AROUND_S and end > loading for loading, done in record.changes)


if __name__ == "__main__":
    main()
