"""`openclaw-rl serve --cluster` and `openclaw-rl pool serve --cluster`, as programs, on a real Ray cluster."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import aiohttp
import pytest

import openclaw_rl
from openclaw_rl.envs.pool.client import PoolClient
from openclaw_rl.errors import EngineError
from openclaw_rl.evals.server import serving
from openclaw_rl.testing.ray_nodes import RayNodes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
START_S = 300.0
SERVER = """#!/bin/sh
export PYTHONPATH={source}
shift 2
exec {python} -m openclaw_rl.testing.counting_vllm "$@"
"""
CONFIG = """
[engine]
kind = "vllm"
[engine.remote]
python = "{python}"
replicas = 2
check_s = 0.2
[cluster]
place_s = 200.0
"""


def written(folder: Path) -> Path:
    """A configuration whose servers are doubles of vLLM."""
    python, config = folder / "python", folder / "cluster.toml"
    python.write_text(SERVER.format(source=Path(openclaw_rl.__file__).parents[1], python=sys.executable))
    python.chmod(0o755)
    config.write_text(CONFIG.format(python=python))
    return config


async def test_the_program_serves_from_nodes_and_goes_on_without_one(cluster: RayNodes, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    options = ("--cluster", cluster.address, "--no-learn")
    async with (
        serving(home, model="bundled", config=written(tmp_path), options=options, start_s=START_S) as server,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {server.key}"}) as http,
    ):

        async def asked(name: str) -> int:
            body = {"model": "default", "messages": [{"role": "user", "content": name}], "max_tokens": 100}
            async with http.post(f"{server.base_url}/chat/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
                tokens: int = (await answer.json())["usage"]["completion_tokens"]
                return tokens

        assert await asked("first") > 0
        asking = [asyncio.create_task(asked(f"story {number}")) for number in range(6)]
        await asyncio.sleep(0.5)
        cluster.kill(cluster.with_a_place())
        assert min(await asyncio.gather(*asking)) > 0
        assert await asked("second") > 0
        cluster.wait(cluster.add(2))


async def test_fewer_gpus_than_asked_end_the_program_before_anything_starts(cluster: RayNodes, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(EngineError) as found:
        async with serving(
            home,
            model="bundled",
            config=written(tmp_path),
            options=("--cluster", cluster.address),
            environment={"NUM_GPUS": "4", "ROLLOUT_GPUS": "2", "ACTOR_GPUS": "2"},
            start_s=START_S,
        ):
            pass
    said = " ".join(str(found.value).split())
    assert "4 GPUs are asked for (2 for the policy, 2 for the trainer), and the cluster has 0" in said
    assert "starting vllm" not in (home / "server.log").read_text()


async def test_pools_on_nodes_keep_their_address_when_a_node_is_lost(cluster: RayNodes, tmp_path: Path) -> None:
    words = [
        "pool",
        "serve",
        "--cluster",
        cluster.address,
        "--pools",
        "2",
        "--port",
        "0",
        "--home",
        str(tmp_path / "p"),
    ]
    words += ["--box", "plain", "--workers", "1", "--capacity", "2"]
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "openclaw_rl", *words),
        env=os.environ | {"OPENCLAW_RL_POOL_KEY": "of-this-test"},
        stderr=asyncio.subprocess.PIPE,
    )
    assert program.stderr is not None
    try:
        async with asyncio.timeout(START_S):
            while not (line := await program.stderr.readline()).startswith(b"environments at"):  # as the nodes' own say
                assert line, "it ended"
        urls = re.findall(r"http://[\d.:]+", line.decode())
        assert len(urls) == 2
        async with PoolClient(urls, key="of-this-test") as client:
            assert all([await server.status(fresh_s=0.0) for server in client.servers])
            cluster.kill(cluster.with_a_place())
            cluster.wait(cluster.add(2))
            async with asyncio.timeout(START_S):
                while not all([await server.status(fresh_s=0.0) for server in client.servers]):  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
    finally:
        program.terminate()
        await program.wait()
