"""The whole loop behind a real OpenClaw: `make test-openclaw` (about 650 MB of downloads, some minutes).

The bundled model is a toy, so the agent it answers for has few tools, no workspace files and no skills in its prompt,
and the problem lies in every file that the toy may name. What is checked is the loop: sessions, kinds, next states,
verdicts, a step and a new version, while the conversation goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import time
from pathlib import Path

import openclaw_gateway as gateways
import pytest
from openclaw_account import Account
from openclaw_install import NODE, OPENCLAW, PLUGIN, Tools, installed, packed, run_plugin_tests
from openclaw_story import FILES, PROBLEM, Story, texts_of

from openclaw_rl.core.message import Json
from openclaw_rl.evals.server import Server, free_port, serving

ROOT = Path(__file__).parents[2]
SCRATCH = ROOT / "build" / "openclaw"
FIGURES = SCRATCH / "figures.json"
SETTINGS = """
[serve]
temperature = 0.1  # the toy keeps to what it was taught

[judge]
hint_when = "corrective"

[train]
batch_size = 1
min_batch = 1
max_lag = 8

[trainer]
rank = 8
alpha = 16.0
lr = 1e-3  # the demonstration's 5e-3 is for short prompts
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def tools() -> Tools:
    """Node and OpenClaw, installed once."""
    return installed(SCRATCH)


def test_the_plugin_s_own_tests_pass_on_the_node_that_openclaw_needs(tools: Tools) -> None:
    run_plugin_tests(str(tools.node))


async def test_the_plugin_s_package_is_taken(tools: Tools, tmp_path: Path) -> None:
    home = tmp_path / "home"
    _configured(home, gateways.base_config(free_port(), tmp_path))
    package = packed(PLUGIN, tmp_path)
    await gateways.run(tools, home, "plugins", "install", str(package), "--force", "--accept-capabilities")
    told = json.loads(await gateways.run(tools, home, "plugins", "inspect", "openclaw-rl", "--runtime", "--json"))
    plugin = told.get("plugin", told)
    assert plugin["status"] == "loaded", told
    assert "openclaw-rl" in json.dumps(plugin.get("providerIds", plugin)), told


async def test_a_conversation_teaches_without_and_with_the_plugin(tools: Tools, tmp_path: Path) -> None:
    started = time.monotonic()
    without = await _phase(tools, tmp_path / "without", has_plugin=False)
    beside = await _phase(tools, tmp_path / "with", has_plugin=True)
    totals = {name: _sum(without, beside, name) for name in ("turns_main", "turns_side", "steps", "versions")}
    conditions: dict[str, Json] = {
        "openclaw": OPENCLAW,
        "node": NODE,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "threads": 1,
        "model": "bundled",
        "temperature": 0.1,
        "seeds": [],
        "repeats": 1,
        "seconds": round(time.monotonic() - started),
    }
    figures = {**totals, "without_extension": without, "with_extension": beside, "conditions": conditions}
    FIGURES.write_text(json.dumps(figures) + "\n", "utf-8")


async def _phase(tools: Tools, folder: Path, *, has_plugin: bool) -> dict[str, Json]:
    server_home, home, workspace = _folders(folder)
    (server_home / "config.toml").write_text(SETTINGS, "utf-8")
    port = free_port()
    path = _configured(home, gateways.base_config(port, workspace))
    async with serving(server_home, model="bundled", environment={"OMP_NUM_THREADS": "1"}) as server:
        await _connect(tools, server, path, *(["--extension"] if has_plugin else []))
        gateways.for_the_student(path)
        async with gateways.running(tools, home, port) as gateway:
            story = Story(gateway, Account(server), "with" if has_plugin else "without")
            return await _tell(story, has_plugin=has_plugin)


def _has_ended(row: dict[str, Json]) -> bool:
    return row["state"] in ("trained", "dropped")


async def _tell(story: Story, *, has_plugin: bool) -> dict[str, Json]:
    await story.news()  # the turn that connect sent
    share = await story.as_shipped()
    assert share > 0.9, f"only {share:.0%} of a prompt were continued"
    caller = await story.homework()
    caller = await story.account.until(str(caller["id"]), lambda row: row["verdict"] is not None, limit_s=60)
    assert PROBLEM in str(texts_of(caller)[0])
    corrected = await story.correction()
    side = await story.errands()
    versions = await story.new_version()
    assert versions[0] == "shared.0" and versions[-1] != versions[0]
    ended = await story.account.until(str(corrected["id"]), _has_ended, limit_s=60)
    # The toy judge also finds fault with replies that are as was asked for; from these nothing is learned.
    assert ended["state"] == "trained" or ended["reason"] == "unheeded", ended["explained"]
    rows = await story.account.of_session(story.session)
    assert versions[-1] in [row["trained_version"] for row in await story.account.turns()]
    if has_plugin:
        assert all("X-Turn-Type says so; session from X-Session-Id" in str(row["why"]) for row in rows)
        assert {row["agent"] for row in rows} == {gateways.STUDENT}
        await _farewell(story, rows[-1])
    else:
        assert all("a user's time stamp; session from the Runtime line" in str(row["why"]) for row in rows)
    return await _figures(story, side=side, share=share, rows=rows)


async def _farewell(story: Story, last: dict[str, Json]) -> None:
    """A reset ends the session at the server too: the last turn will have no next state."""
    key = f"agent:{gateways.STUDENT}:openai-user:{story.said[0]}"
    await story.gateway.run("gateway", "call", "sessions.reset", "--params", json.dumps({"key": key}))
    ended = await story.account.until(str(last["id"]), lambda row: row["state"] == "dropped", limit_s=60)
    assert ended["state"] == "dropped", ended["state"]


async def _figures(story: Story, *, side: int, share: float, rows: list[dict[str, Json]]) -> dict[str, Json]:
    account = story.account
    turns = [row for row in await account.turns() if row["user"] is not None]
    main = [row for row in turns if row["kind"] == "main"]
    ledger = (await account.status())["ledger"]
    assert isinstance(ledger, dict)
    assert len([row for row in turns if row["kind"] == "side"]) >= side
    live = [row for row in await account.versions() if row["status"] == "live" and row["version"] != "shared.0"]
    full = [await account.turn(str(row["id"])) for row in main]
    scores = [row["verdict"]["score"] for row in full if isinstance(row["verdict"], dict)]
    return {
        "turns_main": len(main) - 1,  # one of them is connect's
        "turns_side": len(turns) - len(main),
        "sessions": len({str(row["session"]) for row in main}) - 1,
        "next_states": sum(row["next_state"] is not None for row in full),
        "tool_results": sum(_source(row) == "tool" for row in full),
        "verdicts": {str(score): scores.count(score) for score in (-1, 0, 1, None)},
        "steps": len({row["step"] for row in turns if row["step"] is not None}),
        "versions": len(live),
        "turns_of_the_conversation": len(rows),
        "versions_that_answered_it": len({str(row["version"]) for row in rows}),
        "continued_share_of_a_long_prompt": round(share, 4),
    }


def _source(row: dict[str, Json]) -> Json:
    after = row["next_state"]
    return after["source"] if isinstance(after, dict) else None


def _sum(one: dict[str, Json], other: dict[str, Json], name: str) -> int:
    first, second = one[name], other[name]
    assert isinstance(first, int) and isinstance(second, int)
    return first + second


def _folders(folder: Path) -> tuple[Path, Path, Path]:
    """The server's home, the client's home and the agents' workspace, with the problem in every file a toy may name."""
    server_home, home, workspace = folder / "server", folder / "client", folder / "workspace"
    for each in (server_home, home, workspace):
        each.mkdir(parents=True)
    for name in FILES:
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text(PROBLEM + "\n", "utf-8")
    return server_home, home, workspace


def _configured(home: Path, config: dict[str, Json]) -> Path:
    path = home / ".openclaw" / "openclaw.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(config, indent=2), "utf-8")
    return path


async def _connect(tools: Tools, server: Server, path: Path, *more: str) -> None:
    """`openclaw-rl connect openclaw`, as a user would run it."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "openclaw_rl", "connect", "openclaw", "--home", str(server.home)),
        *("--file", str(path), *more),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **tools.environment(path.parent.parent), "SGLANG_API_KEY": server.key, "COLUMNS": "500"},
    )
    _, err = await child.communicate()
    said = err.decode()
    assert child.returncode == 0, said
    assert "OpenClaw's own check accepts it" in said, said
    assert "test turn over /v1/chat/completions: side" in said and "otherwise main" in said, said
