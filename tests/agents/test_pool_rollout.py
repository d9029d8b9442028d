"""Attempts whose environments are in a pool, a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_doubles import KEY, Numbers, call, policy_server
from pool_servers import KEY as POOL_KEY
from pool_servers import Server

from openclaw_rl.agents.attempts import AttemptJob, Attempts
from openclaw_rl.agents.endpoint import PolicyEndpoint
from openclaw_rl.agents.entries import TaskEntry, pool_envs
from openclaw_rl.agents.rollout import RolloutBudget
from openclaw_rl.core.episode import FailureClass
from openclaw_rl.envs.pool.client import PoolClient
from openclaw_rl.envs.pool.env import PoolEnv
from openclaw_rl.errors import ConfigError


async def test_an_attempt_in_a_pool_is_graded_and_one_without_its_pool_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCLAW_RL_POOL_KEY", POOL_KEY)
    pool = Server(tmp_path / "pool")
    pool.start()
    source = Numbers({"t0": 1}, "counts")
    entry = TaskEntry("t0", source.tasks["t0"], source)
    async with (
        policy_server(tmp_path / "home", lambda text, sampling: call("act", note="one")) as server,
        PolicyEndpoint(server.url, KEY) as endpoint,
        pool_envs("count", [pool.url], run="test") as opened,
        PoolClient([pool.url], key=POOL_KEY, run="test", patience_s=0.5) as hasty,  # `pool_envs` waits for longer
    ):

        async def opened_in_haste(entry: TaskEntry) -> PoolEnv:
            return PoolEnv(hasty, "count", source=entry.source.name)

        for group, opener in (("g", opened), ("i", opened_in_haste)):
            attempts = Attempts(endpoint, opener, "count", budget=RolloutBudget(turns=2), retries=0)
            (result,) = await attempts.run(AttemptJob(entry, group, 1, 0))
            assert result.is_graded and result.counts.turns == 2 and result.counts.unread == 0, result.why
        assert pool.stop() == 0
        (lost,) = await attempts.run(AttemptJob(entry, "h", 1, 0))
    assert lost.failure is FailureClass.INFRASTRUCTURE and lost.outcome is None


async def test_a_pool_without_its_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENCLAW_RL_POOL_KEY", raising=False)
    with pytest.raises(ConfigError, match="the key of the pool is not set"):
        async with pool_envs("count", ["http://127.0.0.1:9"], run="test"):
            pass
