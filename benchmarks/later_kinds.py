"""Is damage noticed that nobody complains about, once somebody asks for the kind of problem that was lost?

Models and users of bench-transfer, default settings. A user corrects until three sessions in a row need no correction.
Then they ask on, without any further feedback: every other request is of the kind that was never asked for before.
Printed are the replies to both kinds that are right and as wished, by half of the requests, what the base model gets
right with the wish in its prompt, and after which request a version was rolled back, if one was. No version of those
that lost nothing should be. The last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.common import Figures, conditions, end_servers_on_term, finish, is_quick, progress
from benchmarks.transfer import NEVER_TOLD, SETTLE_S, folder_of
from benchmarks.transfer_users import BUNDLED, MODELS, Visitor, users_of
from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.learning import LearningRun, RunSettings, measure
from openclaw_rl.evals.server import Server, serving

FIRST = 500  # the number of the first later request: above those of sessions, below those of measurements
PAUSE_S = 1.0  # between two requests
LAST_S = 30.0  # how long a rollback is waited for after the last


async def asked_on(client: Client, user: Visitor, settings: RunSettings, many: int) -> Figures:
    """What became of these many requests: shares by kind and half, and when the version changed."""
    marks: dict[str, list[tuple[bool, bool]]] = {}
    versions: list[str] = []
    for at in range(many):
        asker = user.elsewhere() if at % 2 else user
        errand = asker.task(FIRST + at)
        reply = await client.say(
            [{"role": "user", "content": errand.opening}],
            session=f"later-{user.seed}-{at}",
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            seed=user.seed * 1_000_000 + FIRST + at,
        )
        check = errand.check(reply.text)
        half = "first half" if at < many // 2 else "second half"
        kind = "never corrected" if at % 2 else "corrected"
        marks.setdefault(f"{kind}, {half}", []).append((bool(check.right), check.is_met))
        versions.append(reply.version)
        await asyncio.sleep(PAUSE_S)
    changed = [at for at in range(1, many) if versions[at] != versions[at - 1]]
    shares = {
        name: [sum(each[place] for each in found) / len(found) for place in (0, 1)] for name, found in marks.items()
    }
    return {"right_and_wished": shares, "changed_after": changed, "versions": list(dict.fromkeys(versions))}


async def driven(server: Server, user: Visitor, settings: RunSettings, many: int) -> Figures:
    """One user with a server."""
    async with Client(server.base_url, server.key, await served_model(server.base_url, server.key)) as client:
        told = await measure(client, user.elsewhere().told(), settings, label=NEVER_TOLD, on_event=lambda event: None)
        run = LearningRun(client, user, settings, seed=user.seed)
        await run.run()
        report = await run.report()
        later = await asked_on(client, user, settings, many)
        await asyncio.sleep(LAST_S)
        rows = await client.versions()
    taken = [
        {"version": row["version"], "why": row["why"]} for row in rows if str(row["why"]).startswith("rolled back")
    ]
    after = report.measurements[-1]
    return {
        "converged_at": report.converged_at,
        "right_after": after.right.value,
        "never_told": told.right.value,
        **later,
        "rolled_back": taken,
    }


async def one(model: str, name: str, seed: int, settings: RunSettings, many: int) -> Figures:
    """One run, server and all. Nothing is set but the model and the judge."""
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="openclaw-rl-later-")))
        config = home / "judge.toml"
        config.write_text(f'[judge]\nmodel = "{BUNDLED}"\n', "utf-8")
        user = next(visitor for visitor in users_of(model, seed) if visitor.name == name)
        server = await stack.enter_async_context(serving(home, model=folder_of(model), config=config))
        return {"model": model, "user": name, "seed": seed, **await driven(server, user, settings, many)}


def main() -> None:
    """Runs what is asked for."""
    end_servers_on_term()
    options = argparse.ArgumentParser(description=__doc__)
    models = ["kitchen"] if is_quick() else [BUNDLED, "kitchen", "school"]
    options.add_argument("--models", nargs="*", default=models, choices=MODELS)
    options.add_argument("--users", nargs="*", default=[], help="Only users of these names; all by default.")
    options.add_argument("--seeds", type=int, nargs="*", default=[0])
    options.add_argument("--requests", type=int, default=16 if is_quick() else 48)
    given = options.parse_args()
    settings = RunSettings(sessions=10, problems=40, stop_after=0, settle_s=SETTLE_S)
    found = []
    for model in given.models:
        for user in users_of(model, 0):
            for seed in given.seeds if not given.users or user.name in given.users else []:
                found.append(asyncio.run(one(model, user.name, seed, settings, given.requests)))
                progress(str(found[-1]))
    where = conditions(", ".join(given.models), threads=1, seeds=given.seeds, repeats=given.requests)
    finish({"runs": found, "conditions": where})


if __name__ == "__main__":
    main()
