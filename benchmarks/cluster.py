"""`make bench-cluster`: the whole loop on a Ray cluster of several nodes on this machine, while parts of it are killed.

python -m benchmarks.cluster [--only kills,speed] [--kinds server,rank,node,program]

`kills`: clients talk without pause to `openclaw-rl serve --cluster`, with two servers of the model and two trainer
ranks on nodes. In turn a server, a rank, a node with a server and the program itself are killed; after each the run
goes on until a version was made of what was said later. The model's servers are this project's engine on the
bundled model, spoken to as vLLM is (`benchmarks.cluster_server`), so learning is real. `speed`: tokens
a second of two servers against one, in pairs A B, B A.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.cluster_ground import Ground, Program, engine_on, ranks_under, started
from benchmarks.common import Figures, conditions, end_servers_on_term, finish, is_quick, progress
from benchmarks.kill_clients import CLIENTS, Target, Told, lost, talk, trained_twice
from openclaw_rl.core.prompt import Prompt, Segment
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE
from openclaw_rl.engines.remote.client import RemoteEngine
from openclaw_rl.testing.ray_nodes import ray_nodes

KINDS = ("server", "rank", "node", "program")
ROUNDS = 1 if is_quick() else 3
LEARN_S = 900.0  # the longest wait for another version
WIDTH, TOKENS = 16, 64
PAIRS = 2 if is_quick() else 6


def main() -> None:
    """Measures, and prints the figures."""
    end_servers_on_term()
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="kills,speed")
    parser.add_argument("--kinds", default=",".join(KINDS), help="what is killed, in turn")
    given = parser.parse_args()
    parts, kinds = given.only.split(","), given.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"there is no kind {', '.join(sorted(unknown))}")
    if importlib.util.find_spec("ray") is None:
        sys.exit("Ray is not installed: make bench-cluster")
    figures: Figures = {}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-cluster-") as place, ray_nodes(2, 2, 2) as nodes:
        ground = Ground(Path(place), nodes)
        if "speed" in parts:
            figures["two_servers_over_one"] = asyncio.run(speed(ground))
        if "kills" in parts:
            figures["kills"] = asyncio.run(kills(ground, kinds))
    figures["seconds"] = round(time.monotonic() - begin)
    figures["conditions"] = conditions(
        "bundled (2.6 M parameters, float32), on three Ray nodes of one machine", threads=1, seeds=[0], repeats=ROUNDS
    )
    finish(figures)


async def speed(ground: Ground) -> Figures:
    """Tokens a second of one and of two servers, each with one thread, through the engine alone."""
    async with engine_on(ground, 1) as one, engine_on(ground, 2) as two:
        pairs = []
        for number in range(-1, PAIRS):
            order = (one, two) if number % 2 else (two, one)
            found = {id(engine): await _tokens_a_second(engine, number) for engine in order}
            if number >= 0:  # the first pair warms both up
                pairs.append((found[id(one)], found[id(two)]))
    ratios = sorted(second / first for first, second in pairs)
    return {
        "streams": WIDTH,
        "one": round(median(first for first, _ in pairs), 1),
        "two": round(median(second for _, second in pairs), 1),
        "ratio": round(median(ratios), 3),
        "worst": round(ratios[0], 3),
        "best": round(ratios[-1], 3),
    }


async def _tokens_a_second(engine: RemoteEngine, number: int) -> float:
    async def answer(row: int) -> int:
        ids = (5, 9, 12, 30 + row, 41 + number % 7)
        prompt = Prompt(ids, (Segment(0, len(ids), f"{number}.{row}"),))
        return len([token async for token in engine.generate(prompt, Sampling(TOKENS, seed=row), BASE)])

    begin = time.perf_counter()
    counts = await asyncio.gather(*(answer(row) for row in range(WIDTH)))
    return sum(counts) / (time.perf_counter() - begin)


async def kills(ground: Ground, kinds: Sequence[str] = KINDS) -> Figures:
    """What clients were told while things were killed, and what is true of the store afterwards."""
    told, target, program = Told(), Target(), Program(ground)
    back_s: dict[str, list[float]] = {kind: [] for kind in kinds}
    during: dict[str, dict[str, int]] = {kind: {"refused": 0, "broken_off": 0} for kind in kinds}
    await program.prepare()
    try:
        target.url = await program.start()
        async with asyncio.TaskGroup() as group:
            for client in range(CLIENTS):
                group.create_task(talk(client, "cluster", target, told, max_tokens=40, pause_s=0.05))
            await _learned(program, told)
            for number in range(ROUNDS * len(kinds)):
                kind = kinds[number % len(kinds)]
                before = (told.wrong_status, told.broken_off)
                begin = time.monotonic()
                await _kill(kind, program, target)
                await _learned(program, told)
                back_s[kind].append(time.monotonic() - begin)
                during[kind]["refused"] += told.wrong_status - before[0]
                during[kind]["broken_off"] += told.broken_off - before[1]
                progress(f"{kind} killed: learned again after {back_s[kind][-1]:.1f} s, {during[kind]}")
            target.is_over = True
        served_s = program.served_s()
        await program.end()
    finally:
        await program.close()
    twice, consumed, versions = await trained_twice(program.home)
    return {
        "kills": sum(map(len, back_s.values())),
        **{f"{kind}_{name}": count for kind, counts in during.items() for name, count in counts.items()},
        "acknowledged": len(told.acknowledged),
        "lost_turns": await lost(program.home, told),
        "trained_twice": twice,
        "turns_trained": consumed,
        "versions": versions,
        "learned_again_s": {kind: [round(value, 1) for value in found] for kind, found in back_s.items()},
        "step_end_to_all_serving_s": {
            "median": round(median(served_s), 2) if served_s else None,
            "worst": round(max(served_s), 2) if served_s else None,
            "versions": len(served_s),
        },
        "left_behind": len(started(ground, alive=True)),
    }


async def _kill(kind: str, program: Program, target: Target) -> None:
    """Kills one thing, and starts again what nobody else does."""
    nodes = program.ground.nodes
    if kind == "node":
        nodes.kill(nodes.with_a_place())
        nodes.add(2)
    elif kind == "server":
        os.kill(started(program.ground, alive=True)[0], signal.SIGKILL)
    elif kind == "rank":
        async with asyncio.timeout(LEARN_S):
            while not (found := ranks_under(program.pid)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.kill(found[-1], signal.SIGKILL)
    else:
        target.url = None
        await program.kill()
        target.url = await program.start()


async def _learned(program: Program, told: Told) -> None:
    """Returns once a version is served that was made after a turn of now."""
    now = len(told.acknowledged)
    async with asyncio.timeout(LEARN_S):
        while len(told.acknowledged) < now + CLIENTS:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        version = await program.version()
        while await program.version() < version + 2:  # noqa: ASYNC110 - the one under way may be of earlier turns
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    main()
