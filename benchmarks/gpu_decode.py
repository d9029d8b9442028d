"""First tokens and decode steps of the engine on a GPU, by the number of streams, with CUDA graphs and without.

Streams are of three kinds: `alike`, all of one length that is the same in every repeat; `mixed`, no two prompts of one
length, over all repeats; `long`, mixed, after thousands of tokens. A step's time is the mean gap between the tokens of
a stream while all streams decode, the median of the streams.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from statistics import median

from benchmarks.common import Figures, progress
from benchmarks.gpu_model import Setup, engine_settings
from benchmarks.peers import ids, stream
from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.engines import LocalEngine

WIDTHS = (1, 8, 16, 32)
LONG_WIDTHS = (1, 8)
READ = 64
REPEATS, GRAPH_REPEATS = 3, 2


@dataclass(frozen=True, slots=True)
class StreamsRun:
    """One repeat: all streams of a width at once."""

    step_s: float
    first_s: float  # the median stream's first token
    tokens_per_s: float


async def decode(setup: Setup, engine: LocalEngine) -> Figures:
    """Medians of the repeats after one that does not count, by kind of stream and width."""
    found: Figures = {}
    for kind, widths in kinds().items():
        found[kind] = {
            str(width): _figures(
                kind,
                width,
                [await _run(setup, engine, kind, width, repeat) for repeat in range(REPEATS + 1)][1:],
            )
            for width in widths
        }
    return found


def graphs(setup: Setup) -> Figures:
    """The same of two engines, one with CUDA graphs and one without, A B A B."""
    return asyncio.run(_alternated(setup))


async def _alternated(setup: Setup) -> Figures:
    """Both engines are up all the time; the repeats alternate."""
    engines: dict[str, LocalEngine] = {}
    found: Figures = {}
    try:
        for name, is_on in (("graphs", True), ("no_graphs", False)):
            engines[name] = await LocalEngine.start(engine_settings(setup, max_rows=max(WIDTHS), graphs=is_on))
        for kind, widths in kinds().items():
            for width in widths:
                runs: dict[str, list[StreamsRun]] = {name: [] for name in engines}
                for repeat in range(GRAPH_REPEATS + 1):
                    for name, engine in engines.items():
                        runs[name].append(await _run(setup, engine, kind, width, repeat))
                found[f"{kind} {width}"] = {
                    name: _figures(f"{name}, {kind}", width, own[1:]) for name, own in runs.items()
                }
        return found
    finally:
        for engine in engines.values():
            await engine.aclose()


def kinds() -> dict[str, tuple[int, ...]]:
    """The kinds of streams, and the widths at which each is measured."""
    return {"alike": WIDTHS, "mixed": WIDTHS, "long": LONG_WIDTHS}


def _length(setup: Setup, kind: str, row: int, repeat: int) -> int:
    """Tokens of a prompt. Mixed ones: 64 to 467, all different over 32 rows and 4 repeats."""
    mixed = 3 * (row * (REPEATS + 1) + repeat) + row % 3
    if kind == "long":
        return setup.sized(3000, 300) + 2 * mixed
    return READ + mixed if kind == "mixed" else READ


async def _run(setup: Setup, engine: LocalEngine, kind: str, width: int, repeat: int) -> StreamsRun:
    write = setup.sized(96, 12)

    async def one(row: int) -> tuple[list[SampledToken], list[float]]:
        seed = 500_000 + 10_000 * width + 1000 * repeat + row
        prompt = ids(_length(setup, kind, row, repeat), seed)
        return await stream(engine, prompt, Sampling(max_tokens=write, seed=seed))

    begin = time.perf_counter()
    told = await asyncio.gather(*(one(row) for row in range(width)))
    seconds = time.perf_counter() - begin
    times = [each for items, each in told if len(items) == write]  # others met a token that ends an answer
    if not times:
        raise RuntimeError("every stream ended early")
    first, last = max(each[0] for each in times), min(each[-1] for each in times)
    steps = []
    for each in times:
        within = [at for at in each if first <= at <= last] or each
        steps.append((within[-1] - within[0]) / max(1, len(within) - 1))
    tokens = sum(len(items) for items, _ in told)
    return StreamsRun(median(steps), median(each[0] - begin for each in times), tokens / seconds)


def _figures(kind: str, width: int, runs: list[StreamsRun]) -> Figures:
    found: Figures = {
        "step_ms": round(1e3 * median(one.step_s for one in runs), 3),
        "first_token_ms": round(1e3 * median(one.first_s for one in runs), 1),
        "tokens_per_s": round(median(one.tokens_per_s for one in runs), 1),
    }
    progress(f"{kind}, width {width}: {found}")
    return found
