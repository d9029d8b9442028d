"""The owner's page over a store of 100,000 turns: time to content and bytes in a browser, and what ten watchers cost.

Every view is opened in Chromium again and again, signed in, with nothing cached, until its content is there.
Then streams are served with nobody watching (A) and with ten watchers that ask as the page does (B): A B A B.
python -m benchmarks.page
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from benchmarks.common import Figures, conditions, finish, is_quick, progress, quantile
from benchmarks.kill_restart import cpu_s, lived_in
from benchmarks.share import Phase, stream
from openclaw_rl.evals.server import Server, serving

BUILD = Path(__file__).parent.parent / "build"
TURNS, OF_STEP = 100_000, 50  # 25,000 turns trained, so 500 versions
LOADS = 20
WATCHERS, STREAMS = 10, 4
PHASE_S, ROUNDS = 12.0, 10
REST_S = 3.0  # between two looks of one page, as static/api.js has it
VIEWS = ("learning", "conversations", "versions", "wishes", "tasks", "forget", "keys", "settings")
SEARCHES = {
    "search, found at once": "conversations?q=Question",
    "search for what is not there, through all": "conversations?q=zebra",
}
# The data is shown, and a search has found something or come to its end.
IS_THERE = """!!document.querySelector('main h1') && !document.querySelector('.loading')
    && !document.querySelector('main').innerText.includes('Looking…')"""
THREADS = {"OMP_NUM_THREADS": "1"}


def main() -> None:
    """Prints the figures."""
    turns, loads, seconds, rounds = (4_000, 5, 5.0, 1) if is_quick() else (TURNS, LOADS, PHASE_S, ROUNDS)
    home = filled(turns)
    figures: Figures = asyncio.run(measured(home, loads, seconds, rounds))
    figures["store_mb"] = round((home / "store.db").stat().st_size / 1e6)
    figures |= {"turns": turns, "loads": loads}
    figures["conditions"] = conditions("bundled model", threads=1, seeds=[0], repeats=rounds)
    finish(figures)


def filled(turns: int) -> Path:
    """A home folder with so many turns, in build/; it is kept for the next run."""
    home = BUILD / f"page-store-{turns}"
    if not (home / "filled").is_file():
        progress(f"filling a store with {turns} turns")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        asyncio.run(lived_in(home, turns, of_step=OF_STEP))
        (home / "filled").touch()
    return home


async def measured(home: Path, loads: int, seconds: float, rounds: int) -> Figures:
    """Both parts, on one server."""
    async with serving(home, model="bundled", options=("--no-learn",), environment=THREADS) as server:
        figures: Figures = {"views": await asyncio.to_thread(opened, server, loads)}
        figures["watched"] = await watched(server, seconds, rounds)
    return figures


def opened(server: Server, loads: int) -> dict[str, Figures]:
    """Milliseconds from the address to the content, kilobytes over the wire, and what a load computes on the server."""
    from playwright.sync_api import sync_playwright

    program = next(path for name in ("chromium", "google-chrome") if (path := shutil.which(name)))
    found: dict[str, Figures] = {}
    with sync_playwright() as made:
        browser = made.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context()
        page = context.new_page()
        base = server.base_url.removesuffix("/v1")
        page.goto(base)
        page.get_by_label("API key").fill(server.key)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_selector("nav a")
        for name, view in {**{view: view for view in VIEWS}, **SEARCHES}.items():
            times, sizes, before = [], [], cpu_s(server.pid)
            for _ in range(loads):
                took_ms, size = _load(context, base, view)
                times.append(took_ms)
                sizes.append(size)
            found[name] = {
                "p50_ms": round(statistics.median(times)),
                "p95_ms": round(quantile(times, 0.95)),
                "worst_ms": round(max(times)),
                "kb": round(statistics.median(sizes) / 1000, 1),
                "server_cpu_ms": round(1000 * (cpu_s(server.pid) - before) / loads),
            }
            progress(f"{name}: {found[name]}")
        browser.close()
    return found


def _load(context: Any, base: str, view: str) -> tuple[float, int]:
    """One view in a new tab without a cache: until its data is shown, and the bytes that came."""
    page = context.new_page()
    wire = context.new_cdp_session(page)
    sizes: list[int] = []
    wire.send("Network.enable")
    wire.send("Network.setCacheDisabled", {"cacheDisabled": True})
    wire.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    begin = time.perf_counter()
    page.goto(f"{base}/#/{view}", wait_until="commit")
    while not page.evaluate(IS_THERE):
        page.wait_for_timeout(2)
    took_ms = 1000 * (time.perf_counter() - begin)
    page.wait_for_timeout(50)
    page.close()
    return took_ms, sum(sizes)


async def watched(server: Server, seconds: float, rounds: int) -> Figures:
    """Tokens a second and the server's processor time with nobody watching and with ten pages, in turn."""
    phases, cpu = (Phase(), Phase()), ([0.0], [0.0])
    await _phase(server, Phase(), 0, seconds / 4, watchers=0)  # warm
    for number in range(rounds):
        for at, watchers in enumerate((0, WATCHERS)):
            before = cpu_s(server.pid)
            await _phase(server, phases[at], number, seconds, watchers=watchers)
            cpu[at].append((cpu_s(server.pid) - before) / seconds)
            progress(f"{watchers} watchers: {phases[at].rates[-1]:.1f} tokens/s, server {cpu[at][-1]:.3f} of a core")
    alone, seen = phases
    ratios = [there / here for here, there in zip(alone.rates, seen.rates, strict=True)]
    return {
        "tokens_a_second_alone": [round(rate, 1) for rate in alone.rates],
        "tokens_a_second_watched": [round(rate, 1) for rate in seen.rates],
        "ratio_median": round(statistics.median(ratios), 3),
        "ratio_worst": round(min(ratios), 3),
        "server_core_share_alone": round(statistics.mean(cpu[0][1:]), 3),
        "server_core_share_watched": round(statistics.mean(cpu[1][1:]), 3),
    }


async def _phase(server: Server, phase: Phase, seed: int, seconds: float, *, watchers: int) -> None:
    until, started, before = time.monotonic() + seconds, time.monotonic(), phase.tokens
    headers = {"Authorization": f"Bearer {server.key}"}
    async with aiohttp.ClientSession(headers=headers) as client, asyncio.TaskGroup() as group:
        for _ in range(watchers):
            group.create_task(_watch(client, server, until))
        for number in range(STREAMS):
            group.create_task(stream(client, server, phase, Random(f"{seed} {number}"), until))
    took = time.monotonic() - started
    phase.seconds += took
    phase.rates.append((phase.tokens - before) / took)


async def _watch(client: aiohttp.ClientSession, server: Server, until: float) -> None:
    """As the page's first view: told of changes, it asks again, at most every few seconds."""
    looked_s = 0.0
    try:
        async with asyncio.timeout(until - time.monotonic()), client.get(f"{server.base_url}/rl/events") as events:
            async for line in events.content:
                if line.startswith(b"data:") and time.monotonic() - looked_s >= REST_S:
                    looked_s = time.monotonic()
                    async with client.get(f"{server.base_url}/rl/learning") as answer:
                        answer.raise_for_status()
                        await answer.read()
    except TimeoutError:
        return


if __name__ == "__main__":
    main()
