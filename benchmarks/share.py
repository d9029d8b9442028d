"""What a training step on the same cores costs those who are being answered: gaps between tokens, and tokens a second.

Streams run against a real server process. Beside it the real trainer process stands idle (A) or steps without a pause
(B), in turn: A B A B. Gaps are those a client sees between two events of one stream. The last line is one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import aiohttp

from openclaw_rl.config import read_config
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.version import BASE
from openclaw_rl.evals.demo import recipe
from openclaw_rl.evals.report import conditions
from openclaw_rl.evals.server import Server, serving
from openclaw_rl.models import model_folder
from openclaw_rl.render.template import ChatTemplate, read_template
from openclaw_rl.tiny import world
from openclaw_rl.trainers.process import TrainerProcess

MODEL = "bundled"
STREAMS = 4
BATCH = 16  # samples in a step
QUICK = bool(os.environ.get("QUICK"))
PHASE_S, ROUNDS = (6.0, 1) if QUICK else (25.0, 4)  # a round is A and B
NAMES = ("idle", "training")


@dataclass
class Phase:
    """What was seen while the trainer was idle, or while it stepped."""

    gaps_ms: list[float] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    rates: list[float] = field(default_factory=list)  # tokens a second, one a round
    steps: int = 0


async def stream(client: aiohttp.ClientSession, server: Server, phase: Phase, rng: Random, until: float) -> None:
    """One answer after the other until the time is up, each read event by event."""
    while time.monotonic() < until:
        words = world.request(world.problem(rng), rng)
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": words}],
            "temperature": 0.7,
            "seed": rng.randrange(1 << 30),
            "max_tokens": 200,
            "stream": True,
        }
        headers = {"X-Turn-Type": "side", "X-Session-Id": f"share-{rng.randrange(1 << 60)}"}
        last: float | None = None
        async with client.post(f"{server.base_url}/chat/completions", json=body, headers=headers) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                if not line.startswith(b"data:") or b"[DONE]" in line:
                    continue
                now = time.perf_counter()
                if last is not None:
                    phase.gaps_ms.append(1000 * (now - last))
                last = now
                phase.tokens += 1
                if time.monotonic() >= until:
                    break


def samples(template: ChatTemplate, count: int) -> list[Sample]:
    """Turns as the loop makes them: an AI-looking solution, corrected, with a hint."""
    made, rng = [], Random(0)
    for number in range(count):
        task = world.problem(rng)
        asked = world.request(task, rng)
        prompt = template.text([message(Role.USER, asked)], generation_prompt=True)
        hinted = template.text(
            [message(Role.USER, f"{asked}\n\n[user's hint] Write it in plain sentences.")], generation_prompt=True
        )
        response = tuple(template.encode(world.solution(task, world.Style.AI, rng)))
        made.append(
            Sample(
                turn=str(number),
                session=str(number),
                user="bench",
                prompt=tuple(template.encode(prompt)),
                response=response,
                logp=(-0.5,) * len(response),
                mask=(True,) * len(response),
                version=BASE,
                score=-1.0,
                hints=(HintPrompt("Write it in plain sentences.", tuple(template.encode(hinted))),),
            )
        )
    return made


@contextlib.asynccontextmanager
async def stepping(trainer: TrainerProcess, batch: list[Sample], phase: Phase) -> AsyncIterator[None]:
    """Steps without a pause while the context lasts; the last one is waited for."""
    is_over = asyncio.Event()

    async def steps() -> None:
        while not is_over.is_set():
            report = await trainer.step(batch, resume=None)
            if not report.took_step:
                raise RuntimeError(f"the trainer took no step: {report.why}")
            phase.steps += 1

    async with asyncio.TaskGroup() as group:
        group.create_task(steps())
        try:
            yield
        finally:
            is_over.set()


async def measure(server: Server, phase: Phase, seed: int) -> None:
    """All streams for one phase."""
    until, started, before = time.monotonic() + PHASE_S, time.monotonic(), phase.tokens
    headers = {"Authorization": f"Bearer {server.key}"}
    async with aiohttp.ClientSession(headers=headers) as client, asyncio.TaskGroup() as group:
        for number in range(STREAMS):
            group.create_task(stream(client, server, phase, Random(f"{seed} {number}"), until))
    seconds = time.monotonic() - started
    phase.seconds += seconds
    phase.rates.append((phase.tokens - before) / seconds)


async def run() -> dict[str, Phase]:
    """A B A B, the same prompts in A and in B."""
    folder = model_folder(MODEL)
    batch = samples(read_template(folder), BATCH)
    phases = {name: Phase() for name in NAMES}
    settings = replace(read_config(recipe(), environment={}).trainer)
    trainer = await TrainerProcess.start(folder, settings)
    try:
        await trainer.step(batch, resume=None)  # the first one warms up
        with tempfile.TemporaryDirectory(prefix="openclaw-rl-share-") as home:
            async with serving(Path(home), model=MODEL, config=recipe(), options=("--no-learn",)) as server:
                await measure(server, Phase(), seed=99)
                for number in range(ROUNDS):
                    await measure(server, phases["idle"], number)
                    async with stepping(trainer, batch, phases["training"]):
                        await measure(server, phases["training"], number)
                    rates = ", ".join(f"{name} {phases[name].rates[-1]:.0f}" for name in NAMES)
                    print(f"round {number + 1} of {ROUNDS}: tokens a second: {rates}", file=sys.stderr, flush=True)
    finally:
        await trainer.aclose()
    return phases


def quantile(values: list[float], share: float) -> float:
    """The value that so large a share of the values does not exceed."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


def main() -> None:
    """Measures and prints."""
    phases = asyncio.run(run())
    ratios = [training / idle for idle, training in zip(phases["idle"].rates, phases["training"].rates, strict=True)]
    steps = phases["training"].steps
    figures = {
        "gap_p50_ms": {name: quantile(phase.gaps_ms, 0.5) for name, phase in phases.items()},
        "gap_p99_ms": {name: quantile(phase.gaps_ms, 0.99) for name, phase in phases.items()},
        "gap_max_ms": {name: quantile(phase.gaps_ms, 1.0) for name, phase in phases.items()},
        "tokens_per_s": {name: round(statistics.median(phase.rates), 1) for name, phase in phases.items()},
        "tokens_per_s_ratio": round(statistics.median(ratios), 4),
        "steps": steps,
        "seconds_per_step": round(phases["training"].seconds / steps, 3) if steps else None,
        "streams": STREAMS,
        "samples_per_step": BATCH,
        "conditions": conditions(model=MODEL, seeds=list(range(ROUNDS)), repeats=ROUNDS),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
