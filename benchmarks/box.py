"""Boxes: attempts to get out of them, and what making, using, forking and resetting them costs (`make bench-box`)."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from benchmarks.box_escapes import COMMANDS, CONTROLS, Ground, attempt, ground
from benchmarks.box_means import MEANS
from benchmarks.common import Figures, conditions, finish, is_quick, progress
from openclaw_rl.envs.box.probe import BoxKind, open_boxes, probe
from openclaw_rl.envs.box.sandbox import Boxes, BoxLimits, BoxSpec, Sandbox
from openclaw_rl.errors import BoxError

SPEC = BoxSpec(limits=BoxLimits(memory_mb=128, processes=40, disk_mb=32, kept_bytes=10_000, read_bytes=20_000_000))
REPEATS = 5 if is_quick() else 20
ALIVE = 16 if is_quick() else 128
KINDS = (BoxKind.OVERLAY, BoxKind.COPY)


async def escapes(kind: BoxKind, at: Ground) -> dict[str, str]:
    """What got out of boxes of this kind, and how."""
    boxes = await open_boxes(kind)
    out: dict[str, str] = {}
    try:
        for name, command in COMMANDS.items():
            box = await boxes.create(SPEC)
            out[name] = await attempt(box, command, at)
            await box.aclose()
        for name, means in MEANS.items():
            out[name] = await means(boxes, SPEC, at)
    finally:
        await boxes.aclose()
    for name, how in out.items():
        if how:
            progress(f"{kind}: {name}: {how}")
    return out


async def controls(at: Ground) -> list[str]:
    """Which of the harmless attempts get out of a box without walls."""
    async with aclosing(await open_boxes(BoxKind.PLAIN)) as boxes:
        box = await boxes.create(SPEC)
        return [name for name in CONTROLS if await attempt(box, COMMANDS[name], at)]


async def costs(boxes: Boxes) -> Figures:
    """The median milliseconds of each thing one does with a box."""
    made: list[Sandbox] = []
    box = await boxes.create(BoxSpec())
    await box.exec("mkdir d; for n in $(seq 500); do echo $n > d/$n; done", timeout_s=60.0)
    shell = await box.open_shell()

    async def create() -> None:
        made.append(await boxes.create(BoxSpec()))

    async def fork() -> None:
        made.append(await box.fork())

    async def close() -> None:
        await made.pop().aclose()

    figures: Figures = {
        "create": await median_ms(create),
        "close": await median_ms(close),
        "exec": await median_ms(lambda: box.exec("true", timeout_s=60.0)),
        "shell_echo": await median_ms(lambda: shell.run("echo", timeout_s=60.0)),
        "read": await median_ms(lambda: box.read("d/1")),
        "fork_of_500_files": await median_ms(fork),
        "reset": await median_ms(made[0].reset),
    }
    for other in made:
        await other.aclose()
    await box.aclose()
    return figures


async def median_ms(act: Callable[[], Awaitable[object]]) -> float:
    """The median of the repeats."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        await act()
        times.append(time.perf_counter() - began)
    return round(statistics.median(times) * 1000, 2)


async def plain_ms() -> float:
    """A subprocess without anything around it."""

    async def run() -> None:
        process = await asyncio.create_subprocess_exec("/bin/bash", "-c", "true")
        await process.wait()

    return await median_ms(run)


async def many(boxes: Boxes) -> Figures:
    """Boxes alive at the same time, each with a shell that answers."""
    began = time.monotonic()
    made = [await boxes.create(BoxSpec()) for _ in range(ALIVE)]
    created_s = time.monotonic() - began
    shells = [await box.open_shell() for box in made]
    began = time.monotonic()
    answers = await asyncio.gather(*(shell.run(f"echo {n}", timeout_s=120.0) for n, shell in enumerate(shells)))
    asked_s = time.monotonic() - began
    alive = sum(answer.output.text == f"{n}\n" for n, answer in enumerate(answers))
    for box in made:
        await box.aclose()
    return {
        "made": ALIVE,
        "alive": alive,
        "made_a_second": round(ALIVE / created_s, 1),
        "commands_a_second": round(ALIVE / asked_s, 1),
    }


async def measure() -> Figures:
    """All figures."""
    got_out: Figures = {}
    tried = 0
    with ground() as at:
        for kind in KINDS:
            try:
                results = await escapes(kind, at)
            except BoxError as problem:
                got_out[kind] = problem.problem
                continue
            tried += len(results)
            got_out[kind] = {"tried": len(results), "escaped": sorted(name for name, how in results.items() if how)}
        got_out["plain_control"] = {"tried": len(CONTROLS), "escaped": len(await controls(at))}
    figures: Figures = {"attempts": tried, "escapes": got_out}
    before = await plain_ms()
    for kind in (*KINDS, BoxKind.PLAIN):
        async with aclosing(await open_boxes(kind)) as boxes:
            figures[f"ms_{kind}"] = await costs(boxes)
            if kind is BoxKind.OVERLAY:
                figures["alive"] = await many(boxes)
    figures["ms_plain_subprocess"] = [before, await plain_ms()]
    figures["docker"] = "no engine answers" if not await _has_docker() else "present"
    figures["probe"] = (await probe()).text
    return figures


async def _has_docker() -> bool:
    try:
        await (await open_boxes(BoxKind.DOCKER)).aclose()
    except BoxError:
        return False
    return True


def main() -> None:
    """Prints the figures."""
    figures = asyncio.run(measure())
    told = {
        **figures,
        "root": os.geteuid() == 0,
        "conditions": conditions("none", threads=1, seeds=[], repeats=REPEATS),
    }
    finish(told)


if __name__ == "__main__":
    main()
