"""Twelve wishes of one user, taught one after another to a model that can follow several at once: how many hold?

The model is the world `museum`: four kinds of problems, and for each a format, first words and last words. Each wish is
taught until three sessions in a row need no correction, eight at most, in an order that the seed chooses; afterwards
nobody speaks of it again. In the end first replies to unseen problems are measured without anything in the prompt. A
wish holds if 80 % of them follow it; the base model is measured with all their hints in its prompt in the same way.
The judge knows what the user meant: the bundled one knows none of these kinds. Nothing else is set but what `--set`
changes; `--users` teaches only some of the wishes. Runs are kept in build/many-wishes under a digest of the product.
The last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.transfer import folder_of, product_digest
from benchmarks.transfer_users import Visitor, hint_for, users_of
from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.learning import Event, LearningRun, RunSettings, measure
from openclaw_rl.evals.records import Measurement, SessionRecord
from openclaw_rl.evals.scripted_judge import MODEL as SCRIPTED_MODEL
from openclaw_rl.evals.scripted_judge import scripted_judge
from openclaw_rl.evals.server import serving

MODEL = "museum"
KEPT = Path("build/many-wishes")
HOLDS = 0.8  # the share of first replies that must follow a wish for it to hold
SESSIONS = 8  # for each wish
SETTLE_S = 300.0  # the longest wait between sessions: on a busy machine a step takes a minute
WHILE_TAUGHT = 10  # problems of the measurements while a wish is taught
Run = dict[str, Any]


def show(event: Event) -> None:
    """Writes sessions and measurements to standard error."""
    if isinstance(event, SessionRecord):
        marks = "".join("+" if turn.check.is_met else "-" for turn in event.turns)
        progress(f"  session {event.number} {event.turns[0].reply.version} {marks} {event.seconds:.1f} s")
    elif isinstance(event, Measurement):
        progress(f"  {event.label}: wish {event.wish}, right {event.right}")


async def taught(client: Client, user: Visitor) -> Figures:
    """One wish, until three sessions in a row need no correction."""
    progress(f"{user.name}: {user.wish}")
    settings = RunSettings(sessions=SESSIONS, problems=WHILE_TAUGHT, stop_after=0, settle_s=SETTLE_S)
    run = LearningRun(client, user, settings, seed=user.seed, on_event=show)
    await run.run()
    report = await run.report()
    return {
        "converged_at": report.converged_at,
        "sessions": len(report.sessions),
        "corrections": report.corrections,
        "refused": report.refused,
        "unsettled": sum(not session.is_settled for session in report.sessions),
    }


async def shares(client: Client, users: list[Visitor], settings: RunSettings, label: str) -> dict[str, list[float]]:
    """Per wish: the shares of first replies to unseen problems that follow it, and that are right."""
    found: dict[str, list[float]] = {}
    for user in users:
        at = await measure(client, user, settings, label=label)
        found[user.name.removesuffix("-told")] = [at.wish.value, at.right.value]
    return found


async def tried(client: Client, users: list[Visitor], settings: RunSettings) -> Run:
    """The whole run against a server: the base model told all wishes, twelve wishes taught, the end."""
    hints = tuple(hint_for(user.want) for user in users)
    never = [replace(users[0].elsewhere(), name="never")]
    before = await shares(client, [*users, *never], settings, "before")
    told = await shares(client, [user.told(*hints) for user in [*users, *never]], settings, "told")
    progress(f"told all: {told}")
    wishes: Run = {}
    for user in users:
        wishes[user.name] = await taught(client, user)
        at = await shares(client, users[: len(wishes)], replace(settings, problems=WHILE_TAUGHT), f"after {user.name}")
        progress("  so far: " + ", ".join(f"{name} {wish:.0%}" for name, (wish, _) in at.items()))
    end = await shares(client, [*users, *never], settings, "end")
    versions = await client.versions()
    return {
        "order": [user.name for user in users],
        "wishes": wishes,
        "before": before,
        "told": told,
        "end": end,
        "versions": len(versions),
        "versions_refused": [version["why"] for version in versions if version["status"] == "refused"],
        "requests_refused": client.refused,
    }


def lines(changed: list[str]) -> str:
    """`teach.checks=0` and the like, as TOML: dotted keys."""
    return "".join(f"{key} = {value}\n" for key, value in (each.split("=", 1) for each in changed))


async def one(seed: int, settings: RunSettings, given: argparse.Namespace) -> Run:
    """One seed, with a server on a fresh folder, and with what is `given` in place of the shipped settings."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="openclaw-rl-many-")))
        judge = await stack.enter_async_context(scripted_judge())
        config = f'judge.url = "{judge.url}"\njudge.model = "{SCRIPTED_MODEL}"\n' + lines(given.set)
        (home / "judge.toml").write_text(config, "utf-8")
        server = await stack.enter_async_context(serving(home, model=folder_of(MODEL), config=home / "judge.toml"))
        users = users_of(MODEL, seed, judge.tell)
        Random(seed).shuffle(users)
        if given.users:
            named = {user.name: user for user in users}
            users = [named[name] for name in given.users]
        async with Client(server.base_url, server.key, await served_model(server.base_url, server.key)) as client:
            found = await tried(client, users, settings)
    return {"seed": seed, **found, "seconds": round(time.monotonic() - began)}


def summed_up(run: Run) -> Run:
    """One seed in a few figures: of the wishes that the told base model follows, how many hold; points lost."""
    told = [name for name in run["order"] if run["told"][name][0] >= HOLDS]
    kept = [name for name in told if run["end"][name][0] >= HOLDS]
    lost = [100 * (run["before"][name][1] - run["end"][name][1]) for name in run["order"]]
    return {
        "seed": run["seed"],
        "told": len(told),
        "hold": len(kept),
        "lost": [name for name in told if name not in kept],
        "learned": sum(wish["converged_at"] is not None for wish in run["wishes"].values()),
        "wish_end": round(fmean(run["end"][name][0] for name in run["order"]), 4),
        "wish_told": round(fmean(run["told"][name][0] for name in run["order"]), 4),
        "points_lost": round(fmean(lost), 2),
        "points_lost_never": round(100 * (run["before"]["never"][1] - run["end"]["never"][1]), 2),
        "corrections": sum(wish["corrections"] for wish in run["wishes"].values()),
        "unsettled": sum(wish["unsettled"] for wish in run["wishes"].values()),
        "sessions": sum(wish["sessions"] for wish in run["wishes"].values()),
        "versions": run["versions"],
        "versions_refused": len(run["versions_refused"]),
        "requests_refused": run["requests_refused"],
        "seconds": run["seconds"],
    }


def main() -> None:
    """Runs what is asked for and is not there yet."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, nargs="*", default=[0] if is_quick() else list(range(5)))
    options.add_argument("--problems", type=int, default=40, help="of each measurement at the beginning and at the end")
    options.add_argument("--set", nargs="*", default=[], help="settings in place of the shipped ones: teach.checks=0")
    options.add_argument("--users", nargs="*", default=[], help="only these wishes, in this order: hours-first")
    given = options.parse_args()
    if wrong := [each for each in given.set if "=" not in each]:
        options.error(f"{wrong[0]!r} sets nothing: write KEY=VALUE")
    if unknown := set(given.users) - (names := {user.name for user in users_of(MODEL, 0)}):
        options.error(f"there is no wish {', '.join(sorted(unknown))}: choose among {', '.join(sorted(names))}")
    KEPT.mkdir(parents=True, exist_ok=True)
    product = product_digest()
    found = []
    for seed in given.seeds:
        chosen = [str(seed), str(given.problems), *sorted(given.set), *given.users]
        name = "-".join([product, Path(folder_of(MODEL)).name, *chosen])
        path = KEPT / f"{name}.json"
        if not path.is_file():
            run = asyncio.run(one(seed, RunSettings(problems=given.problems), given))
            path.write_text(json.dumps(run, indent=1) + "\n", "utf-8")
        found.append(summed_up(json.loads(path.read_text("utf-8"))))
        progress(f"seed {seed}: {found[-1]}")
    told, hold = (sum(run[name] for run in found) for name in ("told", "hold"))
    figures = {
        "told": told,
        "hold": hold,
        "share": round(hold / told, 4) if told else None,
        "set": given.set,
        "users": given.users,
        "runs": found,
    }
    finish(figures | {"conditions": conditions(MODEL, threads=1, seeds=given.seeds, repeats=1)})


if __name__ == "__main__":
    main()
