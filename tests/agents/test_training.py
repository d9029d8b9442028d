"""A run: groups, bounds, attempts again, and starting again where it was stopped."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from agent_doubles import KEY, CounterEnv, Policy, call, entries, policy_server
from serve_doubles import Serving

from openclaw_rl.agents.attempts import Attempts
from openclaw_rl.agents.curriculum import Curriculum, CurriculumSettings
from openclaw_rl.agents.endpoint import PolicyEndpoint
from openclaw_rl.agents.entries import TaskEntry
from openclaw_rl.agents.rollout import RolloutBudget
from openclaw_rl.agents.state import RunState, read_state, write_state
from openclaw_rl.agents.training import Training, TrainingPlan, figures_of, has_learned
from openclaw_rl.core.episode import EpisodeState
from openclaw_rl.core.message import Json
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.envs.task import Env, Score
from openclaw_rl.errors import BoxError, ConfigError, TaskError
from openclaw_rl.store.tables.episodes import EpisodeRow

GOALS = {"one": 1, "two": 2, "nine": 9}


def chances(seed: int = 0) -> Policy:
    """Adds 1 or 2 at random, once."""
    drawn = random.Random(seed)

    def policy(text: str, _sampling: Sampling) -> str:
        return call("submit") if "now" in text else call("add", n=drawn.choice((1, 2)))

    return policy


async def counter(entry: TaskEntry) -> Env:
    return CounterEnv()


class RunOnDisk:
    """Starts of one run, whose state is in a file."""

    def __init__(self, path: Path, *, goals: dict[str, int] | None = None) -> None:
        self.path = path
        self.goals = GOALS if goals is None else goals
        self.opened: Callable[[TaskEntry], Awaitable[Env]] = counter

    async def start(self, server: Serving, plan: TrainingPlan) -> Training:
        async with PolicyEndpoint(server.url, KEY, patience_s=5.0) as endpoint:
            state = read_state(self.path) or RunState("run", "counter")
            attempts = Attempts(endpoint, self.opened, "counter", budget=RolloutBudget(turns=4), retries=1)
            found = entries(**self.goals)
            curriculum = Curriculum([*found], state.tasks, CurriculumSettings(), 0)
            training = Training(attempts, found, plan, state, curriculum, lambda held: write_state(self.path, held))
            await training.run()
            return training


async def rows(server: Serving) -> list[EpisodeRow]:
    return await server.parts.store.episodes.page(limit=500)


@pytest.mark.parametrize("is_synchronous", [False, True])
async def test_groups_are_attempted_until_a_bound_is_reached(tmp_path: Path, is_synchronous: bool) -> None:
    run = RunOnDisk(tmp_path / "run.json")
    plan = TrainingPlan(group_size=4, at_once=3, episodes=30, is_synchronous=is_synchronous, groups_a_round=2)
    async with policy_server(tmp_path / "home", chances()) as server:
        training = await run.start(server, plan)
        held = await rows(server)
    figures = figures_of(training, seconds=1.0)
    by_group: dict[str | None, list[EpisodeRow]] = {}
    for row in held:
        by_group.setdefault(row.episode.group, []).append(row)
    assert all(len(group) == 4 for group in by_group.values()) and len({row.episode.task for row in held}) == 3
    assert all(len({row.episode.seed for row in group}) == 1 for group in by_group.values())
    assert training.why_ended == "30 episodes" and len(held) == 32  # whole groups, and none begun that is not needed
    assert (figures["episodes"], figures["solved"]) == (len(held), sum(row.episode.outcome == 1.0 for row in held))
    saved = read_state(run.path)
    assert saved is not None and saved.totals.episodes == len(held) and not saved.open_groups
    graded = {name: sum(row.episode.task == name for row in held) for name in GOALS}
    assert {name: memory.graded for name, memory in saved.tasks.items()} == graded and not saved.tasks["nine"].success


async def test_a_synchronous_round_ends_its_episodes_together_and_replaces_groups_without_spread(
    tmp_path: Path,
) -> None:
    run, ends = RunOnDisk(tmp_path / "run.json"), list[tuple[int, int]]()

    class Watching(CounterEnv):
        server: Serving

        async def evaluate(self) -> Score:
            held = await rows(self.server)
            ends.append((sum(row.episode.state is not EpisodeState.OPEN for row in held), len(held)))
            return await super().evaluate()

    async def opened(entry: TaskEntry) -> Env:
        return Watching()

    run.opened = opened
    plan = TrainingPlan(group_size=4, at_once=4, episodes=40, is_synchronous=True, groups_a_round=2)
    async with policy_server(tmp_path / "home", chances()) as server:
        Watching.server = server
        training = await run.start(server, plan)
        held = await rows(server)
    assert all(row.episode.state is EpisodeState.ENDED for row in held)
    in_rounds = sorted({ended for ended, _ in ends})  # how many had ended whenever one was judged
    assert all(ended % 8 == 0 or ended % 4 == 0 for ended in in_rounds) and in_rounds[0] == 0
    assert len(in_rounds) <= 5  # five rounds of two groups at most: within one nothing ends
    assert training.state.totals.groups == 10 and training.state.totals.spread >= 4


async def test_it_stops_once_the_tasks_succeed(tmp_path: Path) -> None:
    async with policy_server(tmp_path / "home", lambda text, sampling: call("add", n=1)) as server:
        run = RunOnDisk(tmp_path / "run.json", goals={"one": 4, "two": 4})
        training = await run.start(server, TrainingPlan(group_size=2, at_once=2, until_success=0.8, episodes=100))
    assert training.why_ended == "success is 1.00" and 4 <= training.episodes <= 8


async def test_a_lost_attempt_is_made_again_and_a_broken_task_is_put_aside(tmp_path: Path) -> None:
    run, faults = RunOnDisk(tmp_path / "run.json"), iter((BoxError("gone"), BoxError("gone"), BoxError("gone")))

    async def opened(entry: TaskEntry) -> Env:
        if entry.name == "nine":
            return CounterEnv({"evaluate": TaskError("its grader is broken")})
        fault = next(faults, None)
        return CounterEnv() if fault is None else CounterEnv({"step": fault})

    run.opened = opened
    async with policy_server(tmp_path / "home", chances()) as server:
        training = await run.start(server, TrainingPlan(group_size=4, at_once=1, episodes=16))
        held = await rows(server)
    totals = training.state.totals
    assert totals.lost == 3 and totals.broken == 1 and "its grader is broken" in training.state.tasks["nine"].broken
    lost = [row.episode for row in held if row.episode.failure == "infrastructure"]
    assert len(lost) == 3
    assert all(episode.outcome is None for episode in lost)
    # the place that was lost twice closed its group, so that nobody waits for it
    assert [episode.closes_group for episode in reversed(lost)] == [False, True, False]


async def test_a_run_that_was_killed_goes_on_and_counts_nothing_twice(tmp_path: Path) -> None:
    run, stops = RunOnDisk(tmp_path / "run.json"), asyncio.Event()
    begun = 0

    class Stopping(CounterEnv):
        async def evaluate(self) -> object:  # type: ignore[override]
            stops.set()
            return await asyncio.Event().wait()

    async def opened(entry: TaskEntry) -> Env:
        nonlocal begun
        begun += 1
        return Stopping() if begun == 7 else CounterEnv()  # type: ignore[return-value]

    run.opened = opened
    plan = TrainingPlan(group_size=4, at_once=1, episodes=16)
    async with policy_server(tmp_path / "home", chances()) as server:
        started = asyncio.ensure_future(run.start(server, plan))
        await stops.wait()
        at_kill = read_state(run.path)
        assert at_kill is not None and [group.number for group in at_kill.open_groups] == [2]
        assert at_kill.totals.episodes == 4
        left_open = [row.episode.id for row in await rows(server) if row.episode.state is EpisodeState.OPEN]
        kept = run.path.read_bytes()
        started.cancel()
        with pytest.raises(asyncio.CancelledError):
            await started
        run.path.write_bytes(kept)  # as a kill leaves it
        run.opened = counter
        training = await run.start(server, plan)
        held = await rows(server)
    assert left_open == ["alice:run.2.2"]
    graded = [row for row in held if row.episode.reward is not None]
    assert training.episodes == training.state.totals.episodes == len(graded) == 16
    second = [row.episode for row in held if row.episode.group == "run.2"]
    assert len(second) == 5 and sum(episode.failure == "infrastructure" for episode in second) == 1
    assert len({row.episode.id for row in held}) == len(held) == 17


async def test_no_group_is_begun_while_more_waits_for_the_trainer_than_it_may(tmp_path: Path) -> None:
    looks: list[int] = []
    waiting = iter((0, 129, 543, 128, 0))

    async def status() -> Mapping[str, Json]:
        looks.append(len(await rows(server)))
        # `ready` is what the trainer saw when it last looked
        return {"train": {"ready": 0, "waiting": next(waiting, 0)}}

    async with policy_server(tmp_path / "home", chances(), status=status) as server:
        await RunOnDisk(tmp_path / "run.json").start(server, TrainingPlan(group_size=2, at_once=1, episodes=6))
    assert looks == [0, 2, 2, 2, 4]  # asked before each group; three times before the second


async def test_a_file_that_is_no_state_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("{", "utf-8")
    with pytest.raises(ConfigError, match="does not hold the state of a training run"):
        read_state(path)


@pytest.mark.parametrize(
    ("ready", "least", "is_resting", "learned"),
    [(0, 1, True, True), (5, 1, True, False), (5, 8, True, True), (0, 1, False, False)],
)
def test_a_round_is_learned_from_once_no_step_would_be_taken_over_what_is_left(
    ready: int, least: int, is_resting: bool, learned: bool
) -> None:
    status: dict[str, Json] = {
        "learns": True,
        "is_settled": is_resting,
        "ledger": {"ready": ready},
        "train": {"ready": ready, "needed": 128, "least": least},
        "publish": {"at_gate": 0},
    }
    assert has_learned(status) is learned
