"""What a training step on the same cores costs those who are being answered: gaps between tokens, and tokens a second.

Streams run against a real server process. Beside it the real trainer process stands idle (A) or steps without a pause
(B), in turn: A B A B. Gaps are those a client sees between two events of one stream. The last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp

from benchmarks.common import conditions, finish, is_quick, progress, quantile
from openclaw_rl.config import read_config
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.version import BASE
from openclaw_rl.evals.server import Server, serving
from openclaw_rl.home.models import model_folder
from openclaw_rl.render.template import ChatTemplate, read_template
from openclaw_rl.tiny import world
from openclaw_rl.trainers.process import TrainerProcess

STREAMS = 4
BATCH = 16  # samples in a step
PHASE_S, ROUNDS = 25.0, 4  # a round is A and B
QUICK_S, QUICK_ROUNDS = 6.0, 1
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
            "model": "default",
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


async def measure(server: Server, phase: Phase, seed: int, *, seconds: float) -> None:
    """All streams for one phase."""
    until, started, before = time.monotonic() + seconds, time.monotonic(), phase.tokens
    headers = {"Authorization": f"Bearer {server.key}"}
    async with aiohttp.ClientSession(headers=headers) as client, asyncio.TaskGroup() as group:
        for number in range(STREAMS):
            group.create_task(stream(client, server, phase, Random(f"{seed} {number}"), until))
    took = time.monotonic() - started
    phase.seconds += took
    phase.rates.append((phase.tokens - before) / took)


async def run(model: str, *, rounds: int, seconds: float) -> dict[str, Phase]:
    """A B A B, the same prompts in A and in B."""
    folder = model_folder(model)
    batch = samples(read_template(folder), BATCH)
    phases = {name: Phase() for name in NAMES}
    trainer = await TrainerProcess.start(folder, read_config(None, environment={}).trainer)
    try:
        await trainer.step(batch, resume=None)  # the first one warms up
        with tempfile.TemporaryDirectory(prefix="openclaw-rl-share-") as home:
            async with serving(Path(home), model=model, options=("--no-learn",)) as server:
                await measure(server, Phase(), 99, seconds=min(5.0, seconds))
                for number in range(rounds):
                    await measure(server, phases["idle"], number, seconds=seconds)
                    async with stepping(trainer, batch, phases["training"]):
                        await measure(server, phases["training"], number, seconds=seconds)
                    rates = ", ".join(f"{name} {phases[name].rates[-1]:.0f}" for name in NAMES)
                    progress(f"round {number + 1} of {rounds}: tokens a second: {rates}")
    finally:
        await trainer.aclose()
    return phases


def main() -> None:
    """Measures and prints."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="bundled")
    options.add_argument("--rounds", type=int, default=QUICK_ROUNDS if is_quick() else ROUNDS)
    options.add_argument("--seconds", type=float, default=QUICK_S if is_quick() else PHASE_S, help="of a phase")
    given = options.parse_args()
    phases = asyncio.run(run(given.model, rounds=given.rounds, seconds=given.seconds))
    ratios = [training / idle for idle, training in zip(phases["idle"].rates, phases["training"].rates, strict=True)]
    gaps = {name: phase.gaps_ms for name, phase in phases.items()}
    steps = phases["training"].steps
    finish(
        {
            "gap_p50_ms": {name: round(quantile(values, 0.5), 3) for name, values in gaps.items()},
            "gap_p99_ms": {name: round(quantile(values, 0.99), 3) for name, values in gaps.items()},
            "gap_max_ms": {name: round(max(values), 3) for name, values in gaps.items()},
            "tokens_per_s": {name: round(statistics.median(phase.rates), 1) for name, phase in phases.items()},
            "tokens_per_s_ratio": round(statistics.median(ratios), 4),
            "steps": steps,
            "seconds_per_step": round(phases["training"].seconds / steps, 3) if steps else None,
            "streams": STREAMS,
            "samples_per_step": BATCH,
            "conditions": conditions(given.model, threads=1, seeds=list(range(given.rounds)), repeats=given.rounds),
        }
    )


if __name__ == "__main__":
    main()
