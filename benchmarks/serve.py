"""`make bench-serve`: the local engine against transformers' `generate`, beside a long prompt, and on a second turn.

python -m benchmarks.serve
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from statistics import median

from benchmarks.common import Figures, conditions, finish, is_quick, make_model, progress, quantile
from benchmarks.http import http_tokens_per_s
from benchmarks.peers import Ours, Theirs, ids, second_turn, stream
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE
from openclaw_rl.engines import EngineSettings, LocalEngine

WIDTHS = (1, 8, 16)
READ, WRITE = 64, 128
HISTORY, NEW = 10_000, 64


def main() -> None:
    """Measures, and prints the figures."""
    repeats = 3 if is_quick() else 15
    with tempfile.TemporaryDirectory() as place:
        model = make_model(Path(place) / "model")
        figures: Figures = in_process(model, repeats=repeats)
        figures |= asyncio.run(through_the_child(model, repeats=max(2, repeats // 3)))
    figures["http_tokens_per_s"] = asyncio.run(http_tokens_per_s(WIDTHS))
    figures["conditions"] = conditions(
        "random Qwen3, 4 layers, hidden 256, vocabulary 4096", threads=1, seeds=list(range(repeats)), repeats=repeats
    )
    finish(figures)


def in_process(model: Path, *, repeats: int) -> Figures:
    """Tokens a second of the engine's core and of `generate`, both with log-probabilities, A B A B."""
    ours, theirs = Ours(model), Theirs(model)
    speeds: dict[str, float] = {}
    peers: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for width in WIDTHS:
        pairs = []
        for seed in range(-1, repeats):
            prompts = [ids(READ, 1000 * seed + row) for row in range(width)]
            pair = (width * WRITE / ours.seconds(prompts, WRITE), width * WRITE / theirs.seconds(prompts, WRITE))
            if seed >= 0:  # the first pair warms both up
                pairs.append(pair)
        key = str(width)
        speeds[key] = round(median(pair[0] for pair in pairs), 1)
        peers[key] = round(median(pair[1] for pair in pairs), 1)
        ratios[key] = round(median(pair[0] / pair[1] for pair in pairs), 3)
        progress(f"width {width}: {speeds[key]} tokens/s, generate {peers[key]}, ratio {ratios[key]}")
    return {"tokens_per_s": speeds, "generate_tokens_per_s": peers, "ratio_vs_generate": ratios}


async def through_the_child(model: Path, *, repeats: int) -> Figures:
    """The same through the child process, as the server has it; then long prompts."""
    async with aclosing(await LocalEngine.start(EngineSettings(model=str(model), device="cpu", threads=1))) as engine:
        speeds: dict[str, float] = {}
        for width in WIDTHS:
            runs = [await _stream_speed(engine, width, seed) for seed in range(repeats + 1)]
            speeds[str(width)] = round(median(runs[1:]), 1)
            progress(f"width {width} through the child process: {speeds[str(width)]} tokens/s")
        turns = [await second_turn(engine, seed, history=HISTORY, more=NEW) for seed in range(repeats)]
        cold, warm = median(turn[0] for turn in turns), median(turn[1] for turn in turns)
        progress(f"first token of {HISTORY} tokens cold {cold * 1e3:.0f} ms, second turn {warm * 1e3:.1f} ms")
        gaps = [await _gaps_beside_long_prompt(engine, seed) for seed in range(repeats)]
        worst = [quantile(values, 0.99) * 1e3 for values in gaps]
        progress(f"gap p99 beside a {HISTORY}-token prompt: {', '.join(f'{value:.1f}' for value in worst)} ms")
    return {
        "child_tokens_per_s": speeds,
        "cold_ttft_s": round(cold, 4),
        "second_turn_ttft_s": round(warm, 4),
        "second_turn_ttft_over_cold": round(warm / cold, 5),
        "gap_p99_ms_beside_long_prompt": round(median(worst), 2),
        "gap_max_ms_beside_long_prompt": round(max(max(values) for values in gaps) * 1e3, 2),
    }


async def _stream_speed(engine: LocalEngine, width: int, seed: int) -> float:
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for row in range(width):
            prompt = ids(READ, 500_000 + 1000 * seed + row)
            group.create_task(stream(engine, prompt, Sampling(max_tokens=WRITE, seed=seed)))
    return width * WRITE / (time.perf_counter() - begin)


async def _gaps_beside_long_prompt(engine: LocalEngine, seed: int) -> list[float]:
    """The gaps of 8 streams between a long prompt's arrival and its first token."""
    is_over = asyncio.Event()
    gaps: list[float] = []
    window: list[float] = []

    async def beside(row: int) -> None:
        last = 0.0
        prompt, sampling = Prompt(ids(READ, 970_000 + 100 * seed + row)), Sampling(max_tokens=20_000, seed=row)
        async for _ in engine.generate(prompt, sampling, BASE):
            now = time.perf_counter()
            if last and window and now > window[0]:
                gaps.append(now - last)
            last = now
            if is_over.is_set():
                return

    async with asyncio.TaskGroup() as group:
        for row in range(8):
            group.create_task(beside(row))
        await asyncio.sleep(0.5)
        window.append(time.perf_counter())
        await stream(engine, ids(HISTORY, 980_000 + seed), Sampling(max_tokens=1, seed=seed))
        is_over.set()
    return gaps


if __name__ == "__main__":
    main()
