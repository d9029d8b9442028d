"""One attempt at a task: turns over real HTTP, budgets, replies nobody can read, and whose fault a failure is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from agent_doubles import KEY, CounterEnv, Policy, SickEnv, a_task, call, policy_server
from serve_doubles import Serving

from openclaw_rl.agents.endpoint import PolicyEndpoint
from openclaw_rl.agents.rollout import Rollout, RolloutBudget, RolloutResult, RolloutSampling
from openclaw_rl.core.episode import EpisodeState, FailureClass
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.envs.task import Env, Failure, Score
from openclaw_rl.errors import BoxError, EngineError, RequestError, TaskError
from openclaw_rl.store.tables.episodes import EpisodeRow


def adds_one(text: str, _sampling: Sampling) -> str:
    """Adds 1 three times, then submits."""
    return call("submit") if "now 3" in text else call("add", n=1)


async def attempt(
    server: Serving, env: Env, *, name: str = "a", budget: RolloutBudget | None = None, patience_s: float = 5.0
) -> RolloutResult:
    async with PolicyEndpoint(server.url, KEY, "tiny", patience_s=patience_s) as endpoint:
        rollout = Rollout(endpoint, env, a_task(), name, seed=7, group="g", group_size=2, environment="counter")
        rollout.budget = budget or RolloutBudget(turns=6)
        return await rollout.run()


async def kept(server: Serving, name: str = "alice:a") -> EpisodeRow:
    row = await server.parts.store.episodes.get(name)
    assert row is not None
    return row


async def test_an_episode_is_attempted_in_several_turns_and_graded(tmp_path: Path) -> None:
    env = CounterEnv()
    async with policy_server(tmp_path, adds_one) as server:
        result = await attempt(server, env)
        row = await kept(server)
        turns = [await server.parts.store.turn(step.turn) for step in row.steps]
    assert (result.outcome, result.is_success, result.failure, result.why) == (1.0, True, FailureClass.NONE, "it is 3")
    assert (result.counts.turns, result.counts.unread, env.seeds) == (4, 0, [7])
    episode = row.episode
    assert (episode.state, episode.outcome, episode.group, episode.group_size) == (EpisodeState.ENDED, 1.0, "g", 2)
    assert (episode.task, episode.seed, episode.environment) == ("three", 7, "counter")
    assert [(step.step.index, step.score) for step in row.steps] == [(0, 1.0), (1, 1.0), (2, 1.0), (3, None)]
    for earlier, later in pairwise(turns):  # each prompt continues the one before, id by id
        assert earlier is not None and later is not None
        so_far = earlier.prompt.tokens + earlier.completion.tokens
        assert later.prompt.tokens[: len(so_far)] == so_far


async def test_what_cannot_be_read_is_answered_in_words_and_counted(tmp_path: Path) -> None:
    replies = iter(["I would add one.", call("jump"), call("add"), call("add", n=3) + call("submit"), "nothing more"])
    heard: list[str] = []

    def policy(text: str, _sampling: Sampling) -> str:
        heard.append(text)
        return next(replies)

    async with policy_server(tmp_path, policy) as server:
        result = await attempt(server, CounterEnv(), budget=RolloutBudget(unread=4))
    assert (result.outcome, result.counts.turns, result.counts.unread) == (1.0, 4, 3)
    assert "has no tool call, so nothing was done. Call one of: add, submit." in heard[1]
    assert "no tool named 'jump'" in heard[2] and "add lacks n" in heard[3]


@pytest.mark.parametrize(
    ("policy", "budget", "expected"),
    [
        (lambda text, sampling: call("add", n=1), RolloutBudget(turns=2), ("out of turns (2)", 2, 0)),
        (
            lambda text, sampling: call("add", n=9),
            RolloutBudget(tokens=60, reply_tokens=60),
            ("out of tokens (60)", 2, 1),
        ),
        (lambda text, sampling: "hm", RolloutBudget(unread=2), ("2 replies in a row had no readable call", 2, 0)),
        (
            lambda text, sampling: "word " * 90 + "...",
            RolloutBudget(unread=1, reply_tokens=16),
            ("1 replies in a", 1, 1),
        ),
    ],
)
async def test_what_is_out_of_budget_is_judged_as_it_stands(
    tmp_path: Path, policy: Policy, budget: RolloutBudget, expected: tuple[str, int, int]
) -> None:
    why, turns, cut = expected
    async with policy_server(tmp_path, policy) as server:
        result = await attempt(server, CounterEnv(), budget=budget)
        row = await kept(server)
    assert (result.outcome, result.failure, result.counts.turns) == (0.0, FailureClass.AGENT, turns)
    assert why in result.why and row.episode.failure is FailureClass.AGENT and row.episode.reward == 0.0
    assert result.counts.cut == cut


async def test_out_of_turns_with_the_task_solved_is_a_success(tmp_path: Path) -> None:
    async with policy_server(tmp_path, lambda text, sampling: call("add", n=1)) as server:
        result = await attempt(server, CounterEnv(), budget=RolloutBudget(turns=3))
    assert (result.outcome, result.is_success, result.failure) == (1.0, True, FailureClass.NONE)


async def test_where_an_attempt_needs_an_end_one_that_ran_out_of_turns_has_failed(tmp_path: Path) -> None:
    class NeverJudged(CounterEnv):
        async def evaluate(self) -> Score:
            raise AssertionError("what has failed already is not judged")

    needs_end = RolloutBudget(turns=3, needs_end=True)
    async with policy_server(tmp_path, adds_one) as server:
        solved = await attempt(server, NeverJudged(), budget=needs_end)
        row = await kept(server)
        ended = await attempt(server, CounterEnv(), name="b", budget=replace(needs_end, turns=4))
    assert (solved.outcome, solved.is_success, solved.failure, solved.has_ended) == (
        0.0,
        False,
        FailureClass.AGENT,
        False,
    )
    assert (row.episode.reward, row.episode.failure) == (0.0, FailureClass.AGENT) and "out of turns" in row.episode.why
    assert (ended.outcome, ended.is_success, ended.has_ended) == (1.0, True, True)


@pytest.mark.parametrize(
    ("env", "failure", "said"),
    [
        (CounterEnv({"step": BoxError("the box is gone")}), FailureClass.INFRASTRUCTURE, "the box is gone"),
        (CounterEnv({"evaluate": TaskError("its grader is broken")}), FailureClass.ENVIRONMENT, "grader is broken"),
        (CounterEnv({"evaluate": OSError(28, "No space left")}), FailureClass.INFRASTRUCTURE, "No space left"),
        (CounterEnv({"step": TimeoutError("the pool is away")}), FailureClass.INFRASTRUCTURE, "the pool is away"),
        (CounterEnv({"step": KeyError("n")}), FailureClass.ENVIRONMENT, "KeyError"),
        (SickEnv(Failure.INFRASTRUCTURE), FailureClass.INFRASTRUCTURE, "the box is gone"),
    ],
    ids=["box", "grader", "disk", "pool", "bug", "reported"],
)
async def test_a_fault_of_others_never_reaches_a_reward(
    tmp_path: Path, env: Env, failure: FailureClass, said: str
) -> None:
    async with policy_server(tmp_path, adds_one) as server:
        result = await attempt(server, env)
        row = await kept(server)
    assert (result.outcome, result.is_graded, result.failure) == (None, False, failure)
    assert said in result.why and row.episode.reward is None and row.episode.failure is failure


async def test_an_environment_that_does_not_start_is_a_lost_episode_without_steps(tmp_path: Path) -> None:
    async with policy_server(tmp_path, adds_one) as server:
        result = await attempt(server, CounterEnv({"reset": BoxError("no room for a box")}))
        row = await kept(server)
    assert result.failure is row.episode.failure is FailureClass.INFRASTRUCTURE
    assert result.counts.turns == 0 and not row.steps and not row.episode.closes_group


async def test_a_cancelled_rollout_ends_its_episode_as_lost(tmp_path: Path) -> None:
    hangs = asyncio.Event()

    class Hanging(CounterEnv):
        async def step(self, actions: object) -> object:  # type: ignore[override]
            hangs.set()
            return await asyncio.Event().wait()

    async with policy_server(tmp_path, adds_one) as server:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(attempt(server, Hanging()))
            await hangs.wait()
            running.cancel()
        row = await kept(server)
    assert running.cancelled() and row.episode.failure is FailureClass.INFRASTRUCTURE
    assert row.episode.why == "the rollout was cancelled"


async def test_a_refused_request_ends_the_episode_and_is_raised(tmp_path: Path) -> None:
    async with policy_server(tmp_path, adds_one) as server:
        async with PolicyEndpoint(server.url, KEY) as endpoint:
            rollout = Rollout(endpoint, CounterEnv(), a_task(), "a", sampling=RolloutSampling(temperature=-1.0))
            with pytest.raises(RequestError, match="temperature"):
                await rollout.run()
        row = await kept(server)
    assert row.episode.failure is FailureClass.INFRASTRUCTURE


async def test_a_server_that_is_gone_is_waited_for_and_then_named() -> None:
    async with PolicyEndpoint("http://127.0.0.1:9", KEY, patience_s=0.2) as endpoint:
        with pytest.raises(EngineError, match=r"127\.0\.0\.1:9 does not answer"):
            await Rollout(endpoint, CounterEnv(), a_task(), "a").run()
    assert endpoint.waited_s > 0.1
