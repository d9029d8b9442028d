"""How soon a correction is in the weights that are served: seconds from the user's words to the new version, in parts.

One server on the bundled model with the demonstration's recipe. In each session a user asks, gets a reply, and asks for
the same in another style; the style changes from session to session, so that there is always something to learn.
Nobody could learn all of it, so the rule by which learning from such a user rests is off (`CHANGES`). The clock starts
when the correction is sent and stops when a version that learned from the corrected turn is the one being served. The
first correction also waits for the trainer's process to start.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from random import Random

import aiohttp
from openai.types.chat import ChatCompletionMessageParam

from benchmarks.common import Figures, conditions, finish, is_quick, progress, quantile
from openclaw_rl.core.message import Json
from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.personalization.methods import config_text
from openclaw_rl.evals.server import Server, serving
from openclaw_rl.tiny import world

CHANGES: dict[str, Json] = {"teach.in_vain_turns": 0}
CORRECTIONS = 24
PATIENCE_S = 120.0
POLL_S = 0.02
STYLES = (world.Style.NATURAL, world.Style.FRIENDLY, world.Style.DETAILED)
PARTS = ("judge", "hint", "wait", "step", "demonstrations_gate_and_swap")


async def measured(server: Server, count: int) -> tuple[list[dict[str, float]], int]:
    """The parts of each correction that was learned from, in seconds, and how many corrections led to no version."""
    name = await served_model(server.base_url, server.key)
    found: list[dict[str, float]] = []
    missed = 0
    headers = {"Authorization": f"Bearer {server.key}"}
    async with Client(server.base_url, server.key, name) as client, aiohttp.ClientSession(headers=headers) as watch:
        for index in range(count):
            parts = await one_correction(client, watch, server.base_url, index)
            if parts is None:
                missed += 1
            else:
                found.append(parts)
            progress(f"correction {index + 1}/{count}: {parts or 'no version came of it'}")
    return found, missed


async def one_correction(
    client: Client,
    watch: aiohttp.ClientSession,
    base_url: str,
    index: int,
    *,
    system: str = "",
    patience_s: float = PATIENCE_S,
) -> dict[str, float] | None:
    """A problem is asked and its reply corrected; the parts of the time until what came of it is served, in seconds.

    `system` stands before all of it. None where no version came of it.
    """
    words = Random(f"feedback {index}")
    style = STYLES[index % len(STYLES)]
    asked = world.request(world.problem(words), words)
    said: list[ChatCompletionMessageParam] = [{"role": "system", "content": system}] if system else []
    said.append({"role": "user", "content": asked})
    first = await client.say(said, session=f"feedback-{index}", temperature=0.7, max_tokens=200, seed=index)
    said += [
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": world.correction(style, words)},
    ]
    began = time.perf_counter()
    answer = asyncio.create_task(
        client.say(said, session=f"feedback-{index}", temperature=0.7, max_tokens=200, seed=index)
    )
    trained = judged = None
    while time.perf_counter() - began < patience_s:
        body = await _json(watch, f"{base_url}/rl/turns/{first.turn}")
        if judged is None and body.get("verdict"):
            judged = time.perf_counter() - began
        trained = body.get("trained_version")
        if trained or body.get("state") == "dropped":
            break
        await asyncio.sleep(POLL_S)
    await answer
    row = None if not trained else await _served(watch, base_url, str(trained), began + patience_s)
    await client.end(f"feedback-{index}")
    if row is None or judged is None:
        return None
    whole = time.perf_counter() - began
    step = row["step"]
    votes = _votes(body)
    judge, hint = (
        max((seconds for name, seconds in votes if name == asked), default=0.0) for asked in ("score", "hint")
    )
    rest = whole - judged - step
    return {
        "whole": whole,
        "judge": judge,
        "hint": hint,
        "wait": max(0.0, judged - judge - hint),
        "step": step,
        "demonstrations_gate_and_swap": rest,
    }


async def _served(watch: aiohttp.ClientSession, base_url: str, version: str, until: float) -> dict[str, float] | None:
    """Once the version is the one being served: how long its step took. None where it is refused or does not come."""
    while time.perf_counter() < until:
        listed = (await _json(watch, f"{base_url}/rl/versions"))["versions"]
        assert isinstance(listed, list)
        for row in listed:
            if isinstance(row, dict) and row["version"] == version:
                if row["is_current"]:
                    metrics = row["metrics"]
                    assert isinstance(metrics, dict)
                    return {"step": float(str(metrics["seconds"]))}
                if row["status"] == "refused":
                    return None
        await asyncio.sleep(POLL_S)
    return None


def _votes(body: dict[str, Json]) -> list[tuple[str, float]]:
    verdict = body.get("verdict")
    votes = verdict.get("votes") if isinstance(verdict, dict) else None
    rows = [vote for vote in votes if isinstance(vote, dict)] if isinstance(votes, list) else []
    return [(str(vote["asked"]), float(str(vote["seconds"]))) for vote in rows]


async def _json(watch: aiohttp.ClientSession, url: str) -> dict[str, Json]:
    async with watch.get(url) as answer:
        answer.raise_for_status()
        body: dict[str, Json] = await answer.json()
        return body


def figures(found: list[dict[str, float]], missed: int) -> Figures:
    """Medians and 90th percentiles over all corrections that were learned from."""
    whole = [parts["whole"] for parts in found]
    return {
        "seconds_to_served": {
            "p50": round(statistics.median(whole), 3) if whole else None,
            "p90": round(quantile(whole, 0.9), 3) if whole else None,
            "parts": {
                name: round(statistics.median(one[name] for one in found), 3) if found else None for name in PARTS
            },
        },
        "corrections": len(found) + missed,
        "without_a_version": missed,
        "conditions": conditions("bundled", threads=1, seeds=[0], repeats=len(found))
        | {"recipe": "defaults", **CHANGES},
    }


async def main() -> None:
    """Runs it."""
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-feedback-") as home:
        config = Path(home) / "settings.toml"
        config.write_text(config_text({}, CHANGES), "utf-8")
        async with serving(Path(home), model="bundled", config=config) as server:
            found, missed = await measured(server, 4 if is_quick() else CORRECTIONS)
    finish(figures(found, missed))


if __name__ == "__main__":
    asyncio.run(main())
