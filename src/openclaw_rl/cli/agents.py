"""`openclaw-rl rollout` and `train-agent`: attempts at tasks against a running server, and training on them."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openclaw_rl.cli.common import Home, print_evaluation, run_in_order, say, settings_of
from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.probe import BoxKind
from openclaw_rl.errors import ConfigError

if TYPE_CHECKING:
    from openclaw_rl.agents.attempts import Attempts
    from openclaw_rl.agents.entries import TaskEntry
    from openclaw_rl.agents.rollout import RolloutBudget, RolloutResult, RolloutSampling
    from openclaw_rl.agents.training import Training, TrainingPlan

app = typer.Typer()

Tasks = Annotated[
    list[Path], typer.Option("--tasks", help="A folder with tasks of any known format; may be given again.")
]
Kind = Annotated[str, typer.Option("--env", help="What the agent acts in: terminal, software, tools or screen.")]
SplitName = Annotated[str, typer.Option("--split", help="train, test, or all.")]
Box = Annotated[BoxKind, typer.Option("--box", help="How boxes are made. `plain` does not isolate anything.")]
Pools = Annotated[
    list[str] | None,
    typer.Option("--pool", help="URL of a pool that has the environments; may be given again. [default: this machine]"),
]
Url = Annotated[
    str, typer.Option("--url", help="The server's base URL, with --api-key. [default: the one that runs on --home]")
]
Key = Annotated[str, typer.Option("--api-key", envvar="SGLANG_API_KEY", help="A key with the scope `admin`.")]
AtOnce = Annotated[int, typer.Option("--at-once", help="Attempts under way at the same time.", min=1)]
Turns = Annotated[int, typer.Option("--turns", help="Most turns of one attempt.", min=1)]
Tokens = Annotated[int, typer.Option("--tokens-each", help="Most tokens sampled in one attempt.", min=1)]
ReplyTokens = Annotated[int, typer.Option("--reply-tokens", help="Most tokens of one reply.", min=1)]
Seconds = Annotated[float, typer.Option("--seconds", help="Most seconds of the environment's time in one attempt.")]
Temperature = Annotated[float, typer.Option("--temperature", help="Temperature of sampling.", min=0.0)]
Retries = Annotated[
    int, typer.Option("--retries", help="How often an attempt is repeated after a fault of the infrastructure.", min=0)
]
StepScores = Annotated[
    bool,
    typer.Option("--step-scores", help="In a shell: run the tests after each step, for its score. Not with --pool."),
]
NeedsEnd = Annotated[
    bool, typer.Option("--needs-end", help="An attempt that runs out of turns, tokens or time fails, whatever it did.")
]
Draw = Annotated[int | None, typer.Option("--seed", help="Sample with seeds that follow from this one.")]
Pictures = Annotated[
    int,
    typer.Option("--pictures-every", help="On screens: keep screenshots of one attempt in N; 0 keeps none.", min=0),
]


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The server's address and key; `folder` is the installation's if it is on this machine."""

    url: str
    key: str
    folder: Path | None


@dataclass(frozen=True, slots=True)
class AttemptOptions:
    """The options that the commands share."""

    tasks: list[Path]
    kind: str
    split: str
    box: BoxKind
    budget: RolloutBudget
    sampling: RolloutSampling
    retries: int
    draw: int | None
    at_once: int
    pools: list[str]
    pictures_every: int = 0
    score_steps: bool = False

    def __post_init__(self) -> None:
        if self.score_steps and self.pools:
            raise ConfigError("a pool does not score steps", fix="leave out --step-scores or --pool")


def server_address(home: Path | None, url: str, key: str) -> ServerAddress:
    """The named server, or the one that runs on the installation. Raises ConfigError if there is none."""
    from openclaw_rl.home.folder import address_of, check_key

    if url:
        return ServerAddress(url, key, None)
    folder = settings_of(home).home
    address = address_of(folder)
    if address is None:
        raise ConfigError(
            f"no server runs on {folder}", fix="start it with `openclaw-rl serve`, or give --url and --api-key"
        )
    return ServerAddress(address.url, key or check_key(folder) or "", folder)


def entries_of(options: AttemptOptions) -> list[TaskEntry]:
    """The requested tasks. Raises TaskError if there are none."""
    from openclaw_rl.agents.entries import task_entries
    from openclaw_rl.envs.task import Split

    if options.split not in ("all", *Split):
        raise ConfigError(f"the split is {options.split!r}", fix="use train, test or all")
    return task_entries(options.tasks, None if options.split == "all" else Split(options.split))


@asynccontextmanager
async def attempts_at(
    server: ServerAddress, options: AttemptOptions, *, is_side: bool = False
) -> AsyncIterator[Attempts]:
    """Makes attempts against the server, with environments on this machine."""
    from openclaw_rl.agents.attempts import Attempts
    from openclaw_rl.agents.endpoint import PolicyEndpoint
    from openclaw_rl.agents.entries import local_envs, pool_envs
    from openclaw_rl.envs.open import EnvOptions

    pools = options.pools
    envs = (
        pool_envs(options.kind, pools, run=f"agents-{secrets.token_hex(3)}", pictures_every=options.pictures_every)
        if pools
        else local_envs(
            options.kind,
            options.box,
            EnvOptions(score_steps=options.score_steps),
            pictures_every=options.pictures_every,
        )
    )
    async with (
        envs as open_env,
        PolicyEndpoint(server.url, server.key) as endpoint,
    ):
        yield Attempts(
            endpoint,
            open_env,
            options.kind,
            budget=options.budget,
            sampling=options.sampling,
            retries=options.retries,
            draw=options.draw,
            is_side=is_side,
        )


@app.command()
def rollout(
    *,
    tasks: Tasks,
    env: Kind,
    times: Annotated[int, typer.Option("-n", "--times", help="Attempts at each task; they make one group.", min=1)] = 1,
    most: Annotated[int | None, typer.Option("--most", help="Only this many of the tasks.", min=1)] = None,
    split: SplitName = "train",
    box: Box = BoxKind.AUTO,
    pool: Pools = None,
    home: Home = None,
    url: Url = "",
    key: Key = "",
    at_once: AtOnce = 4,
    turns: Turns = 20,
    tokens: Tokens = 8192,
    reply_tokens: ReplyTokens = 1024,
    seconds: Seconds = 600.0,
    temperature: Temperature = 1.0,
    retries: Retries = 2,
    step_scores: StepScores = False,
    seed: Draw = None,
    pictures: Pictures = 1,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write each attempt as a line of JSON to this file.")
    ] = None,
) -> None:
    """Attempt tasks with the model that the server serves, and let it learn from the outcomes.

    Each attempt is an episode of the server: `openclaw-rl inspect --episodes` lists them. Ends with one line of JSON.
    """
    from openclaw_rl.agents.rollout import RolloutBudget, RolloutSampling

    budget = RolloutBudget(turns=turns, tokens=tokens, reply_tokens=reply_tokens, env_s=seconds)
    sampling = RolloutSampling(temperature)
    options = AttemptOptions(
        tasks, env, split, box, budget, sampling, retries, seed, at_once, pool or [], pictures, step_scores
    )
    entries = entries_of(options)[:most]
    run = _attempt_all(server_address(home, url, key), options, entries, times, out)
    print(json.dumps(run_in_order(run)))


async def _attempt_all(
    server: ServerAddress, options: AttemptOptions, entries: list[TaskEntry], times: int, out: Path | None
) -> dict[str, Json]:
    from openclaw_rl.agents.figures import figures_json, result_json
    from openclaw_rl.agents.measuring import attempt_all
    from openclaw_rl.agents.view import RunView

    over: list[RolloutResult] = []
    began_s, total, at_once = time.monotonic(), times * len(entries), options.at_once
    with RunView(say, "episodes", total) as view:

        def tell(result: RolloutResult) -> None:
            over.append(result)
            solved = sum(one.is_success for one in over)
            view.show(
                sum(one.is_graded for one in over), f"{solved} solved, {sum(o.counts.tokens for o in over)} tokens"
            )

        async with attempts_at(server, options) as attempts:
            run = f"rollout-{secrets.token_hex(4)}"
            found = await attempt_all(attempts, entries, run=run, times=times, at_once=at_once, tell=tell)
    if out is not None:
        lines = [json.dumps(result_json(result)) + "\n" for result in over]
        await asyncio.to_thread(out.write_text, "".join(lines), "utf-8")
    families = {entry.name: entry.family for entry in entries}
    return figures_json(found, families, seconds=time.monotonic() - began_s) | {"run": run}


@app.command("train-agent")
def train_agent(
    *,
    tasks: Tasks,
    env: Kind,
    until_success: Annotated[
        float | None,
        typer.Option("--until-success", help="Stop when the tasks tried have this mean success.", min=0, max=1),
    ] = None,
    episodes: Annotated[int | None, typer.Option("--episodes", help="Stop after this many episodes.", min=1)] = None,
    most_tokens: Annotated[int | None, typer.Option("--tokens", help="Stop after this many tokens.", min=1)] = None,
    minutes: Annotated[float | None, typer.Option("--minutes", help="Stop after this many minutes.", min=0)] = None,
    group: Annotated[int, typer.Option("--group", help="Attempts that are compared with each other.", min=2)] = 8,
    synchronous: Annotated[
        bool, typer.Option("--synchronous", help="After each round, wait until the server has learned from it.")
    ] = False,
    a_round: Annotated[int, typer.Option("--groups-a-round", help="With --synchronous: its groups.", min=1)] = 4,
    name: Annotated[str, typer.Option("--name", help="The run's name; a run of that name continues.")] = "train",
    split: SplitName = "train",
    box: Box = BoxKind.AUTO,
    pool: Pools = None,
    home: Home = None,
    url: Url = "",
    key: Key = "",
    at_once: AtOnce = 8,
    turns: Turns = 20,
    tokens: Tokens = 8192,
    reply_tokens: ReplyTokens = 1024,
    seconds: Seconds = 600.0,
    temperature: Temperature = 1.0,
    retries: Retries = 2,
    step_scores: StepScores = False,
    needs_end: NeedsEnd = False,
    seed: Draw = None,
    pictures: Pictures = 8,
) -> None:
    """Train the served model on tasks: groups of attempts, compared by their outcomes, until a bound is reached.

    If it is stopped, it continues when started again with the same --name. Ends with one line of JSON.
    """
    from openclaw_rl.agents.rollout import RolloutBudget, RolloutSampling
    from openclaw_rl.agents.training import TrainingPlan

    budget = RolloutBudget(turns, tokens, reply_tokens, env_s=seconds, needs_end=needs_end)
    asked = (budget, RolloutSampling(temperature), retries, seed, at_once, pool or [], pictures, step_scores)
    options = AttemptOptions(tasks, env, split, box, *asked)
    plan = TrainingPlan(
        group_size=group,
        at_once=at_once,
        until_success=until_success,
        episodes=episodes,
        tokens=most_tokens,
        minutes=minutes,
        is_synchronous=synchronous,
        groups_a_round=a_round,
    )
    if not name.isidentifier() and not name.replace("-", "_").isidentifier():
        raise ConfigError(f"the run's name is {name!r}", fix="use letters, digits, _ and -")
    found = run_in_order(_train(server_address(home, url, key), options, plan, name))
    print_evaluation("train-agent", found, home)


async def _train(server: ServerAddress, options: AttemptOptions, plan: TrainingPlan, name: str) -> dict[str, Json]:
    from openclaw_rl.agents.curriculum import Curriculum, CurriculumSettings
    from openclaw_rl.agents.state import RunState, read_state, write_state
    from openclaw_rl.agents.training import Training, check_names, figures_of
    from openclaw_rl.agents.view import RunView

    entries = {entry.name: entry for entry in entries_of(options)}
    check_names(entries)
    path = (server.folder or Path()) / "agents" / f"{name}.json"
    state = read_state(path) or RunState(f"{name}-{secrets.token_hex(3)}", options.kind)
    if state.environment != options.kind:
        raise ConfigError(
            f"the run {name} is one in the environment {state.environment}", fix="give another --name, or remove it"
        )
    curriculum = Curriculum([*entries], state.tasks, CurriculumSettings(), options.draw or 0)
    began_s = time.monotonic()
    with RunView(say, "episodes", plan.episodes) as view:
        async with attempts_at(server, options) as attempts:

            def show() -> None:
                view.show(training.episodes, _words(training))

            training = Training(
                attempts, entries, plan, state, curriculum, lambda held: write_state(path, held), on_change=show
            )
            try:
                await training.run()
            except asyncio.CancelledError:  # print the results so far; the run can be continued
                print(json.dumps(figures_of(training, seconds=time.monotonic() - began_s)), flush=True)
                raise
    return figures_of(training, seconds=time.monotonic() - began_s)


def _words(training: Training) -> str:
    totals, success = training.state.totals, training.curriculum.success
    minutes = totals.seconds / 60
    pace = f", {totals.episodes / minutes:.0f} episodes a minute" if minutes else ""
    known = "-" if success is None else f"{success:.2f} over {training.curriculum.tried} tasks"
    return f"success {known}, {training.tokens} tokens, {len(training.versions)} versions{pace}"
