"""`openclaw-rl eval tasks`: what versions can do in an environment."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openclaw_rl.cli.agents import (
    AtOnce,
    AttemptOptions,
    Box,
    Draw,
    Key,
    Kind,
    Pools,
    ReplyTokens,
    Retries,
    Seconds,
    ServerAddress,
    SplitName,
    Tasks,
    Temperature,
    Tokens,
    Turns,
    Url,
    attempts_at,
    entries_of,
    server_address,
)
from openclaw_rl.cli.common import Home, print_evaluation, run_in_order, say
from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.probe import BoxKind

if TYPE_CHECKING:
    from openclaw_rl.agents.attempts import Attempts
    from openclaw_rl.agents.entries import TaskEntry
    from openclaw_rl.agents.rollout import RolloutResult

app = typer.Typer()
SERVED = "served"


@app.command("tasks")
def eval_tasks(
    *,
    tasks: Tasks,
    env: Kind,
    version: Annotated[
        list[str] | None,
        typer.Option(
            "--version", help="served, base, or a version such as shared.3; may be given again. [default: served]"
        ),
    ] = None,
    times: Annotated[int, typer.Option("-n", "--times", help="Attempts at each task.", min=1)] = 1,
    most: Annotated[int | None, typer.Option("--most", help="Only this many of the tasks.", min=1)] = None,
    split: SplitName = "test",
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
    seed: Draw = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write each attempt as a line of JSON.")] = None,
) -> None:
    """Measure the success of versions on tasks: with its 95 % interval, by family, and pass@k.

    Nothing is learned from these attempts. Versions get the same seeds. Ends with one line of JSON.
    """
    from openclaw_rl.agents.rollout import RolloutBudget, RolloutSampling

    budget = RolloutBudget(turns=turns, tokens=tokens, reply_tokens=reply_tokens, env_s=seconds)
    options = AttemptOptions(
        tasks, env, split, box, budget, RolloutSampling(temperature), retries, seed, at_once, pool or []
    )
    entries = entries_of(options)[:most]
    server = server_address(home, url, key)
    found = run_in_order(_measured(server, options, entries, version or [SERVED], (times, json_file)))
    print_evaluation("tasks", found, home)


async def _measured(
    server: ServerAddress,
    options: AttemptOptions,
    entries: list[TaskEntry],
    versions: list[str],
    wanted: tuple[int, Path | None],
) -> dict[str, Json]:
    times, json_file = wanted
    found: dict[str, Json] = {}
    lines: list[str] = []
    async with attempts_at(server, options, is_side=True) as attempts:
        for version in dict.fromkeys(versions):
            attempts.headers = {} if version == SERVED else {"X-Policy-Version": version}
            found[version] = await _of_version(version, attempts, entries, (times, options.at_once), lines)
    if json_file is not None:
        json_file.write_text("".join(lines), "utf-8")
    return {"split": options.split, "attempts_each": times, "versions": found}


async def _of_version(
    version: str, attempts: Attempts, entries: list[TaskEntry], counts: tuple[int, int], lines: list[str]
) -> dict[str, Json]:
    """One version's figures; each attempt is added to `lines`."""
    from openclaw_rl.agents.figures import figures_json, result_json
    from openclaw_rl.agents.measuring import attempt_all
    from openclaw_rl.agents.view import RunView

    times, at_once = counts
    began_s = time.monotonic()
    graded: list[bool] = []
    with RunView(say, version, times * len(entries)) as view:

        def tell(result: RolloutResult) -> None:
            lines.append(json.dumps({"version": version, **result_json(result)}) + "\n")
            graded.extend([result.is_success] if result.is_graded else [])
            view.show(len(graded), f"{sum(graded)} solved")

        run = f"eval-{secrets.token_hex(4)}"
        results = await attempt_all(attempts, entries, run=run, times=times, at_once=at_once, tell=tell)
    families = {entry.name: entry.family for entry in entries}
    return figures_json(results, families, seconds=time.monotonic() - began_s)
