"""What a screen looked like at each step of an attempt, kept for whoever looks at it later."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from agent_doubles import KEY, CounterEnv, Numbers, PicturedEnv, a_task, call, entries, policy_server
from pool_servers import KEY as POOL_KEY
from pool_servers import Server
from serve_doubles import Serving

from openclaw_rl.agents.attempts import AttemptJob, Attempts
from openclaw_rl.agents.endpoint import PolicyEndpoint
from openclaw_rl.agents.entries import TaskEntry, local_envs, pool_envs
from openclaw_rl.agents.rollout import Rollout, RolloutBudget, RolloutResult
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.envs.box.probe import BoxKind
from openclaw_rl.envs.open import MODULES, EnvKind, EnvOptions
from openclaw_rl.store.pictures import PictureName
from openclaw_rl.testing.png import a_png

HEARD: list[str] = []


def adds_one(text: str, _sampling: Sampling) -> str:
    HEARD.append(text)
    return call("submit") if "now 2" in text else call("add", n=1)


async def attempt(server: Serving, env: CounterEnv, *, turns: int = 6, is_side: bool = False) -> RolloutResult:
    async with PolicyEndpoint(server.url, KEY, "tiny", patience_s=5.0) as endpoint:
        budget = RolloutBudget(turns=turns)
        return await Rollout(endpoint, env, a_task(target=2), "a", budget=budget, is_side=is_side).run()


async def pictures(server: Serving) -> dict[tuple[int, bool], bytes | None]:
    book = server.parts.store.pictures
    return {(name.step, name.is_after): await book.read(name) for name in await book.of("alice:a")}


async def test_each_step_has_the_screen_before_it_and_the_last_one_that_after_it(tmp_path: Path) -> None:
    HEARD.clear()
    async with policy_server(tmp_path, adds_one) as server:
        result = await attempt(server, PicturedEnv())
        found = await pictures(server)
    assert result.is_success and result.counts.turns == 3
    assert found == {(0, False): a_png(0), (1, False): a_png(1), (2, False): a_png(2), (2, True): a_png(2)}
    assert not any("image" in text.lower() or "png" in text.lower() for text in HEARD)  # the model is not shown them


async def test_where_the_budget_ends_an_attempt_its_last_screen_is_kept_too(tmp_path: Path) -> None:
    async with policy_server(tmp_path, adds_one) as server:
        await attempt(server, PicturedEnv(), turns=1)
        assert await pictures(server) == {(0, False): a_png(0), (0, True): a_png(1)}


async def test_without_pictures_and_in_measuring_none_are_sent(tmp_path: Path) -> None:
    async with policy_server(tmp_path, adds_one) as server:
        await attempt(server, CounterEnv())
        await attempt(server, PicturedEnv(), is_side=True)
        assert await pictures(server) == {}


async def test_a_refused_picture_costs_the_attempt_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with policy_server(tmp_path, adds_one) as server:
        result = await attempt(server, PicturedEnv(size=5 << 20))
        assert await pictures(server) == {}
    assert result.is_success and result.counts.turns == 3
    assert [one.getMessage().split(": ")[0] for one in caplog.records] == ["no pictures from step 0 of alice:a on"]


async def test_one_attempt_in_so_many_takes_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setitem(MODULES, EnvKind.TOOLS, __name__)  # a kind of environment of this file's own
    (entry,) = entries(three=3).values()
    for every, expected in ((1, [True] * 4), (3, [True, False, False, True]), (0, [False] * 4)):
        seen.clear()
        async with local_envs("tools", BoxKind.PLAIN, pictures_every=every) as opened:
            for _ in range(4):
                env = await opened(entry)
                assert isinstance(env, CounterEnv)
                seen.append(isinstance(env, PicturedEnv))
        assert seen == expected


def open_kind(source: object, boxes: object, options: EnvOptions) -> CounterEnv:
    """What `open_env` finds in this file."""
    return PicturedEnv() if options.records else CounterEnv()


async def test_pictures_come_out_of_a_pool_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCLAW_RL_POOL_KEY", POOL_KEY)
    pool = Server(tmp_path / "pool")
    pool.start()
    source = Numbers({"t0": 1}, "counts")
    job = AttemptJob(TaskEntry("t0", source.tasks["t0"], source), "a", 1, 0)
    async with (
        policy_server(tmp_path / "home", lambda text, sampling: call("act", note="one")) as server,
        PolicyEndpoint(server.url, KEY) as endpoint,
        pool_envs("count", [pool.url], run="test", pictures_every=1) as opened,
    ):
        attempts = Attempts(endpoint, opened, "count", budget=RolloutBudget(turns=1), retries=0)
        (result,) = await attempts.run(job)
        assert result.is_graded, result.why
        assert await server.parts.store.pictures.read(PictureName("alice:a.0", 0)) == a_png(7)
    assert pool.stop() == 0
