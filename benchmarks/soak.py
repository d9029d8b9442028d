"""Order under load: 50,000 turns of 5,000 conversations over real HTTP, and what memory, handles and latency do.

The server is the product in a process of its own with every stage (`benchmarks.soak_server`); engine, judge and
trainer are scripted. Among the ordinary clients are slow ones, ones that leave in the middle, connections whose request
never ends, bodies of a megabyte and of 100 MB, and histories of 10,000 messages. Its caches are bounded so low that
they are full after some thousand turns: from then on memory has no reason to grow. At the end the server is told to
stop, and every answer that came whole is looked for in the store. The curve goes to build/soak.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import os
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import Figures, conditions, finish, is_quick, progress, quantile
from benchmarks.soak_clients import HALF_OPEN, Book, Clients

OUT = Path("build/soak")
WORKERS = 24
LOOK_S = 1.0
SETTLE_S = 30.0  # until learning has caught up, before memory is looked at for the last time


@dataclass(frozen=True, slots=True)
class Looked:
    """The server at one moment."""

    at_s: float
    turns: int
    rss_bytes: int
    handles: int
    judge_waiting: int


@dataclass(slots=True)
class Watch:
    """Looks at the server until cancelled."""

    pid: int
    clients: Clients
    seen: list[Looked] = field(default_factory=list)

    async def run(self) -> None:
        """A look a second; every tenth is told."""
        while True:
            await self.look()
            last = self.seen[-1]
            if len(self.seen) % 10 == 0:
                progress(
                    f"{last.turns} turns, {last.rss_bytes / 1e6:.0f} MB, {last.handles} handles, "
                    f"{last.judge_waiting} wait for the judge, refused {self.clients.book.refused}"
                )
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """One line of the curve."""
        rss, handles = _rss_bytes(self.pid), len(os.listdir(f"/proc/{self.pid}/fd"))
        text = await self.clients.sent("GET", "/metrics")
        waiting = next((line for line in text.splitlines() if line.startswith(b"openclaw_rl_judge_waiting ")), b"x 0")
        self.seen.append(
            Looked(time.perf_counter(), len(self.clients.book.answered), rss, handles, int(float(waiting.split()[1])))
        )


def main() -> None:
    """Prints the figures."""
    finish(asyncio.run(_measured()))


async def _measured() -> Figures:
    turns, sessions = (2_000, 200) if is_quick() else (50_000, 5_000)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        async with _server(home) as (child, port):
            clients = Clients(port, turns // sessions, sessions, open_at_once=min(500, sessions // 4))
            watch = Watch(child.pid, clients)
            await watch.look()
            begin = time.perf_counter()
            await _loaded(clients, watch)
            seconds = time.perf_counter() - begin
            progress(f"{len(clients.book.answered)} turns in {seconds:.0f} s; {clients.book.odd}")
            await _settled(watch)
            told = (await clients.sent("GET", "/v1/rl/status")).partition(b"\r\n\r\n")[2]
            problems = json.loads(told)["problems"]
            child.send_signal(signal.SIGTERM)
            code = await child.wait()
        stored, ledger = _stored(home)
    figures = _figures(clients.book, watch, seconds, code=code, stored=stored, ledger=ledger)
    return figures | {"broken_stages": {stage: why for stage, why in problems.items() if "broke" in why}}


async def _loaded(clients: Clients, watch: Watch) -> None:
    """All ordinary turns, and beside them everything that goes wrong."""
    async with asyncio.TaskGroup() as behind:
        held = [behind.create_task(clients.half_open()) for _ in range(HALF_OPEN)]
        held += [behind.create_task(watch.run()), behind.create_task(_wrong(clients, every=20 if is_quick() else 100))]
        async with asyncio.TaskGroup() as workers:
            for _ in range(WORKERS):
                workers.create_task(clients.talk())
        for task in held:
            task.cancel()


async def _wrong(clients: Clients, *, every: int) -> None:
    """Odd clients, the first kind once in so many turns; until cancelled."""
    step = 0
    async with asyncio.TaskGroup() as group:
        while True:
            await asyncio.sleep(0.02)
            if len(clients.book.answered) < step * every:
                continue
            step += 1
            group.create_task(clients.cancelled())
            if step % 10 == 0:
                group.create_task(clients.slow())
            if step % 25 == 0:
                group.create_task(clients.huge())
                group.create_task(clients.big(f"big{step}", chars=1_000_000))
            if step % 50 == 0:
                group.create_task(clients.long(f"long{step}", messages=10_000))


async def _settled(watch: Watch) -> None:
    until = time.monotonic() + SETTLE_S
    await asyncio.sleep(3)
    await watch.look()
    while watch.seen[-1].judge_waiting and time.monotonic() < until:
        await asyncio.sleep(LOOK_S)
        await watch.look()


@contextlib.asynccontextmanager
async def _server(home: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.soak_server", str(home), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        yield child, int(await child.stdout.readline())
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


def _stored(home: Path) -> tuple[set[str], dict[str, int]]:
    """Every turn in the store, and how many stand where."""
    with contextlib.closing(sqlite3.connect(home / "store.db")) as sql:
        names = {str(row[0]) for row in sql.execute("SELECT id FROM turns")}
        states = "SELECT coalesce(state || coalesce('.' || reason, ''), 'side'), count(*) FROM turns GROUP BY 1"
        ledger = {str(state): int(count) for state, count in sql.execute(states)}
        ledger["versions"] = int(sql.execute("SELECT count(*) FROM versions").fetchone()[0])
    return names, ledger


def _figures(
    book: Book, watch: Watch, seconds: float, *, code: int, stored: set[str], ledger: dict[str, int]
) -> Figures:
    times = [each for _, each in sorted(book.answered)]
    # the first twentieth fills the pool of open conversations, the last one empties it
    tenth, twentieth = len(times) // 10, len(times) // 20
    seen = watch.seen
    full = next(item for item in seen if item.turns >= len(times) // 5)
    _write_curve(seen)
    return {
        "turns": len(times),
        "sessions": book.sessions,
        "rss_bytes": {
            "start": seen[0].rss_bytes,
            "after_a_fifth": full.rss_bytes,
            "peak": max(item.rss_bytes for item in seen),
            "end": seen[-1].rss_bytes,
        },
        "handles": {
            "start": seen[0].handles,
            "peak": max(item.handles for item in seen),
            "end": seen[-1].handles,
        },
        "p99_ms": {
            "start": round(1e3 * quantile(times[twentieth : twentieth + tenth], 0.99), 1),
            "end": round(1e3 * quantile(times[-twentieth - tenth : -twentieth], 0.99), 1),
        },
        "p50_ms": {
            "start": round(1e3 * quantile(times[twentieth : twentieth + tenth], 0.5), 1),
            "end": round(1e3 * quantile(times[-twentieth - tenth : -twentieth], 0.5), 1),
        },
        "refused": book.refused,
        "lost_turns": len(book.turns - stored),
        "exit_code": code,
        "odd_clients": book.odd,
        "ledger": ledger,
        "most_judge_waiting": max(item.judge_waiting for item in seen),
        "seconds": round(seconds, 1),
        "turns_per_s": round(len(times) / seconds, 1),
        "curve": str(OUT / "curve.csv"),
        "conditions": conditions("bundled tokenizer and template, scripted engine", threads=1, seeds=[7], repeats=1),
    }


def _write_curve(seen: list[Looked]) -> None:
    """The curve as a table, and as a picture where matplotlib is there."""
    OUT.mkdir(parents=True, exist_ok=True)
    with (OUT / "curve.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["seconds", "turns", "rss_bytes", "handles", "judge_waiting"])
        for item in seen:
            table.writerow(
                [round(item.at_s - seen[0].at_s, 1), item.turns, item.rss_bytes, item.handles, item.judge_waiting]
            )
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        return
    figure, (memory, handles) = plt.subplots(2, 1, sharex=True, figsize=(8, 6))
    memory.plot([item.turns for item in seen], [item.rss_bytes / 1e6 for item in seen])
    memory.set_ylabel("memory, MB")
    memory.set_ylim(bottom=0)
    handles.plot([item.turns for item in seen], [item.handles for item in seen])
    handles.set_ylabel("handles")
    handles.set_xlabel("turns")
    handles.set_ylim(bottom=0)
    figure.savefig(OUT / "curve.png", dpi=120)


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    main()
