"""A wish that changes, and a user whose feedback is random: sessions until the new wish holds; accuracy lost.

Each seed is two fresh servers on the bundled model with the default settings.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from benchmarks.common import conditions, end_servers_on_term, finish, is_quick, progress
from openclaw_rl.core.message import Json
from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.learning import Event, RunSettings
from openclaw_rl.evals.records import Measurement, SessionRecord
from openclaw_rl.evals.server import serving
from openclaw_rl.evals.steadiness import changed_wish, contrary

FULL = RunSettings(sessions=20, problems=100, stop_after=2)
T = TypeVar("T")


def tell(event: Event) -> None:
    """What happens, in a line."""
    if isinstance(event, SessionRecord):
        marks = "".join("+" if turn.check.is_met else "-" for turn in event.turns)
        progress(f"session {event.number} {event.turns[0].reply.version} {marks}")
    elif isinstance(event, Measurement):
        progress(f"{event.label}: wish {event.wish}, right {event.right}")


async def served(talk: Callable[[Client], Awaitable[T]]) -> T:
    """What comes of talking to a server of one's own."""
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-steady-") as home:
        async with serving(Path(home), model="bundled") as server:
            name = await served_model(server.base_url, server.key)
            async with Client(server.base_url, server.key, name) as client:
                return await talk(client)


async def main() -> None:
    """Runs it."""
    seeds = [0] if is_quick() else [0, 1, 2, 3, 4]
    changes: list[Json] = []
    random: list[Json] = []
    drops, firsts, seconds = [], [], []
    for seed in seeds:
        changed = await served(lambda client, seed=seed: changed_wish(client, seed, FULL, tell))  # type: ignore[misc]
        lost = await served(lambda client, seed=seed: contrary(client, seed, FULL, tell))  # type: ignore[misc]
        changes.append(changed.as_json())
        random.append(lost.as_json())
        firsts.append(changed.first.converged_at or FULL.sessions)
        seconds.append(changed.second.converged_at or FULL.sessions)
        drops.append(100 * (lost.before.right.value - lost.after.right.value))
        progress(f"seed {seed}: {changes[-1]} {random[-1]}")
    finish(
        {
            "changed_wish": changes,
            "random_user": random,
            "sessions_first_median": statistics.median(firsts),
            "sessions_second_median": statistics.median(seconds),
            "random_user_accuracy_drop_points": round(statistics.mean(drops), 2),
            "conditions": conditions("bundled", threads=1, seeds=seeds, repeats=1),
        }
    )


if __name__ == "__main__":
    end_servers_on_term()
    asyncio.run(main())
