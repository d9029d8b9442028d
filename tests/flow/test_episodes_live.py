"""Episodes as a harness runs them: over HTTP, with the real engine and trainer, killed between outcome and samples."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest
from flow_parts import Judging, Served, headers, scripted_model, start
from forked_trainer import SETTING
from test_loop import ledger, until

from openclaw_rl.core.message import Json
from openclaw_rl.core.sample import Sample
from openclaw_rl.store.db import Store
from openclaw_rl.trainers.lessons import rl_advantages

TASK = "Mia has 3 pens and gets 4 more. How many pens does she have?"
CONFIG = """
[train]
batch_size = 8
min_batch = 1
max_wait_s = 0.1
[trainer]
rank = 4
LAUNCHER
lr = 1e-3
updates = 4
nice = 0
[episodes]
group_wait_s = 300
[judge]
votes = 1
url = "{url}"
model = "rule"
""".replace("LAUNCHER", SETTING)
pytestmark = pytest.mark.usefixtures("forked_trainers")


class Harness:
    """What runs episodes against a server, as any client would."""

    def __init__(self, server: Served) -> None:
        self.url = server.url

    async def post(self, path: str, body: dict[str, Json], **more: str) -> dict[str, Json]:
        async with (
            aiohttp.ClientSession(headers=headers() | more) as session,
            session.post(self.url + path, json=body) as response,
        ):
            found: dict[str, Json] = await response.json()
            assert response.status == 200, found
            return found

    async def episode(self, name: str, *, group: str = "g", size: int = 4, steps: int = 2) -> None:
        """An open episode with its steps taken; what it was shown stands among its messages."""
        begun: dict[str, Json] = {"id": name, "task": "pens", "group": group, "group_size": size, "environment": "toy"}
        await self.post("/v1/rl/episodes", begun)
        messages: list[Json] = [{"role": "user", "content": TASK}]
        for step in range(steps):
            body: dict[str, Json] = {"model": "default", "messages": messages, "max_tokens": 200, "temperature": 0.7}
            more = {"X-Episode-Id": name, "X-Episode-Step": str(step), "X-Episode-Observation": "terminal"}
            answer = await self.post("/v1/chat/completions", body, **more)
            choices = answer["choices"]
            assert isinstance(choices, list) and isinstance(choices[0], dict)
            shown: Json = {"role": "user", "content": f"exit status 0 after step {step}; now {step} pens and 2 nuts?"}
            messages = [*messages, choices[0]["message"], shown]

    async def end(self, name: str, outcome: float | None, failure: str = "none") -> None:
        body: dict[str, Json] = {"outcome": outcome, "failure": failure, "why": "the grader says so"}
        await self.post(f"/v1/rl/episodes/{name}/end", body)


async def samples_of(home: Path, names: Sequence[str]) -> dict[tuple[str, int], Sample]:
    """The samples of these episodes' steps, by episode and index."""
    store = await Store.open(home)
    found: dict[tuple[str, int], Sample] = {}
    for name in names:
        row = await store.episodes.get(f"owner:{name}")
        for step in row.steps if row is not None else ():
            for sample in await store.effects.samples([step.turn]):
                found[name, step.step.index] = sample
    await store.aclose()
    return found


def consumed(versions: dict[str, Json]) -> list[str]:
    """The turns that versions were trained on, in order, with repetition."""
    rows = versions["versions"]
    assert isinstance(rows, list)
    return [str(turn) for row in rows if isinstance(row, dict) for turn in row["turns"]]  # type: ignore[union-attr]


def settled(status: dict[str, Json]) -> int:
    held = status["episodes"]
    assert isinstance(held, dict) and isinstance(held["counts"], dict)
    return int(str(held["counts"]["settled"]))


async def test_a_group_of_episodes_is_learned_from_by_its_outcomes(
    tmp_path: Path, judging: Judging, running: list[Served]
) -> None:
    running.append(server := start(tmp_path / "home", config=CONFIG.format(url=judging.url)))
    harness, names = Harness(server), ["a", "b", "c", "d"]
    for name in names:
        await harness.episode(name)
    await harness.post("/v1/rl/episodes/b/steps", {"step": 0, "score": 0.5})
    for name, outcome in zip(names, (1.0, 0.0, 0.0, 1.0), strict=True):
        before = await server.get("/v1/rl/status")
        assert settled(before) == 0  # the group is not complete
        await harness.end(name, outcome)
    versions = await until(lambda: server.get("/v1/rl/versions"), lambda seen: bool(consumed(seen)))
    shown = await server.get("/v1/rl/episodes/a")
    assert server.end(signal.SIGINT) == 0
    asked = [sys.executable, "-m", "openclaw_rl", "inspect", "--home", str(server.home), "--episode", "a"]
    done = await asyncio.to_thread(subprocess.run, asked, capture_output=True, text=True, check=True, timeout=120)
    told = str(done.stdout)

    assert judging.asked == 0  # what the environment showed is nobody's opinion
    samples = await samples_of(server.home, names)
    assert len(samples) >= 4 and {name for name, _ in samples} == {*names}
    assert set(consumed(versions)) <= {sample.turn for sample in samples.values()}
    for index in {index for _, index in samples}:
        at_index = {name: sample for (name, place), sample in samples.items() if place == index}
        plain = dict(zip(at_index, rl_advantages([*at_index.values()], 0.0), strict=True))
        if len(at_index) == 4:  # outcomes 1, 0, 0, 1: mean 1/2, standard deviation 1/2
            assert plain == pytest.approx({"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0}, abs=1e-9)
    first = {name: sample for (name, place), sample in samples.items() if place == 0}
    with_steps = dict(zip(first, rl_advantages([*first.values()], 1.0), strict=True))
    assert with_steps["b"] is not None and -1.0 < with_steps["b"] < 0.0  # its step was half right
    turns = shown["turns"]
    assert isinstance(turns, list) and isinstance(turns[0], dict)
    assert "exit status 0 after step 0" in str(turns[0]["shown"]) and turns[0]["observation"] == "terminal"
    assert "outcome 1" in told and "step 1 (terminal)" in told and "exit status 0 after step 0" in told


async def test_a_kill_between_outcome_and_samples_loses_nothing_and_trains_nothing_twice(
    tmp_path: Path, judging: Judging, running: list[Served]
) -> None:
    config = CONFIG.format(url=judging.url)
    running.append(server := start(tmp_path / "home", config=config))
    harness, names = Harness(server), ["a", "b", "c", "d"]
    for name in names:
        await harness.episode(name, steps=1)
    for name, outcome in zip(names[:3], (1.0, 0.0, 0.0), strict=True):
        await harness.end(name, outcome)
    server.end(signal.SIGKILL)  # three outcomes are kept, no sample is made
    running.append(again := start(tmp_path / "home", config=config))
    assert ledger(await again.get("/v1/rl/status"))["judged"] == 3
    await Harness(again).end("d", 1.0)
    again.end(signal.SIGKILL)  # the last outcome is on the disk; samples may be or not
    running.append(third := start(tmp_path / "home", config=config))
    await until(lambda: third.get("/v1/rl/status"), lambda seen: settled(seen) == 4)
    versions = await until(lambda: third.get("/v1/rl/versions"), lambda seen: bool(consumed(seen)))
    assert third.end(signal.SIGINT) == 0
    samples = await samples_of(third.home, names)
    assert rl_advantages([sample for _, sample in sorted(samples.items())], 1.0) == pytest.approx([1, -1, -1, 1])
    assert len(consumed(versions)) == len(set(consumed(versions)))


async def test_an_infrastructure_failure_is_masked_and_a_forgotten_episode_leaves_nothing(
    tmp_path: Path, judging: Judging, running: list[Served]
) -> None:
    async with scripted_model() as (_, engine):
        config = CONFIG.format(url=judging.url) + engine
        running.append(server := await asyncio.to_thread(start, tmp_path / "home", "--no-learn", config=config))
        await _forgotten(server)
        assert await asyncio.to_thread(server.end, signal.SIGINT) == 0
    assert not [path for path in server.home.glob("store.db*") if b"quokka" in path.read_bytes()]


async def _forgotten(server: Served) -> None:
    """Three episodes, of which one is lost and one is forgotten."""
    harness = Harness(server)
    for name in ("kept", "quokka"):
        await harness.episode(name, size=3, steps=1)
    await harness.end("quokka", 1.0)
    await harness.episode("lost", size=3, steps=1)
    await harness.end("lost", 0.0, failure="infrastructure")  # whatever outcome is reported beside it
    counts = (await server.get("/v1/rl/status"))["episodes"]
    assert isinstance(counts, dict) and isinstance(counts["counts"], dict)
    assert (counts["counts"]["open"], counts["counts"]["ended"]) == (1, 2)
    assert counts["counts"]["failure.infrastructure"] == 1
    await harness.post("/v1/rl/forget", {"episode": "quokka"})
    listed = (await server.get("/v1/rl/episodes"))["episodes"]
    assert isinstance(listed, list)
    assert [row["id"] for row in listed if isinstance(row, dict)] == ["owner:lost", "owner:kept"]
    await until(lambda: server.get("/v1/rl/forget"), lambda seen: '"phase": "erasing"' not in json.dumps(seen))
