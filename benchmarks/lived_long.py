"""What years of corrections cost a server with nothing to do: a store of many turns, a version for two trained ones.

python -m benchmarks.lived_long
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

import aiohttp

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.kill_restart import cpu_s, lived_in
from openclaw_rl.evals.server import serving

TURNS, OF_STEP = 40_000, 2  # 10,000 turns trained, so 5,000 versions
REST_S = 30.0
LOOKS = 7
PAGES = {"status_s": "status", "versions_s": "versions", "learned_s": "versions?learned=true"}


def main() -> None:
    """Prints the figures."""
    turns, rest_s = (2_000, 5.0) if is_quick() else (TURNS, REST_S)
    with tempfile.TemporaryDirectory() as place:
        progress(f"filling a store with {turns} turns")
        asyncio.run(lived_in(Path(place), turns, of_step=OF_STEP))
        figures = asyncio.run(measured(Path(place), rest_s))
    figures |= {"turns": turns, "versions": turns // 4 // OF_STEP}
    figures["conditions"] = conditions("bundled model", threads=1, seeds=[0], repeats=LOOKS)
    finish(figures)


async def measured(home: Path, rest_s: float) -> Figures:
    """Share of a core that the idle server computes, and seconds until its pages are there (medians)."""
    async with serving(home, model="bundled", environment={"OMP_NUM_THREADS": "1"}) as server:
        headers = {"Authorization": f"Bearer {server.key}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            figures: Figures = {}
            for name, page in PAGES.items():
                times = [await _seconds(http, f"{server.base_url}/rl/{page}") for _ in range(LOOKS)]
                figures[name] = round(median(times), 3)
            progress(f"{figures}; now {rest_s:g} s of rest")
            before = cpu_s(server.pid)
            await asyncio.sleep(rest_s)
            figures["idle_core_share"] = round((cpu_s(server.pid) - before) / rest_s, 4)
    return figures


async def _seconds(http: aiohttp.ClientSession, url: str) -> float:
    begin = time.perf_counter()
    async with http.get(url) as answer:
        answer.raise_for_status()
        await answer.read()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
