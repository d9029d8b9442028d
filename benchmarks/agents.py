"""Does reinforcement teach the small agent model its four settings: success on unseen tasks, before and after.

Every setting x way of learning x seed, each a fresh server on a fresh folder with `recipes/agent.toml`: unseen tasks
are attempted, a training run is driven over HTTP, and the same tasks are attempted again. Results are kept in
build/agents under a digest of the product and the model, so a run that was stopped goes on. Progress goes to standard
error; the last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.common import Figures, conditions, end_servers_on_term, finish, is_quick, progress
from benchmarks.transfer import product_digest
from openclaw_rl.agents.endpoint import PolicyEndpoint
from openclaw_rl.agents.entries import local_envs
from openclaw_rl.agents.training import TrainingPlan
from openclaw_rl.agents.trial import SMALL, AgentTrial, TrialPlan
from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.probe import BoxKind
from openclaw_rl.envs.open import EnvOptions
from openclaw_rl.evals.server import serving
from openclaw_rl.tiny.agent import folders, make
from openclaw_rl.tiny.agent.exercise import Setting

KEPT = Path("build/agents")
RECIPE = Path(__file__).parent.parent / "recipes" / "agent.toml"
# Ways of learning: what is said to the server beside the recipe.
# Where the only samples are steps of episodes, a step of less than this is mostly noise.
WHOLE = "[train]\nmin_batch = 64"
SITUATION = '[episodes]\ngrouping = "situation"'


@dataclass(frozen=True, slots=True)
class Way:
    """A way of learning: what the server's settings say beside the recipe, and how attempts are made and graded."""

    settings: tuple[str, ...] = (WHOLE, SITUATION)
    scores_steps: bool = True


WAYS: dict[str, Way] = {
    "steps": Way(),
    "outcome": Way((WHOLE, SITUATION, "[trainer.method]\nstep_coefficient = 0.0"), scores_steps=False),
    "steps by index": Way((WHOLE, '[episodes]\ngrouping = "step_index"')),
    "steps anchored": Way((WHOLE, SITUATION, "[trainer.method]\nkl_beta = 0.05")),
}
COMPARED = ("steps", "outcome", "steps by index")
SCORED = {Setting.TERMINAL, Setting.SOFTWARE}  # where tests run after each step; a page gives scores by itself
# A look, two repairs, and the end. With more, the model learned not to end an attempt: a further repair costs nothing,
# and after a few that it had never seen followed by others its calls fell apart. So an attempt in training that runs
# out of turns now fails, too.
TURNS = {Setting.SOFTWARE: 4}
EPISODES = 1600
AT_ONCE = 16
PAGES_AT_ONCE = 4  # a page that does not load in time is a fault of the machine, and the attempt is made again
Row = dict[str, Json]


def config_text(extra: tuple[str, ...]) -> str:
    """The recipe with other values: each of `extra` is a table's head and lines of `name = value`."""
    text = RECIPE.read_text("utf-8")
    for more in extra:
        head, *lines = more.splitlines()
        text = text if f"{head}\n" in text else f"{text}\n{head}\n"
        for line in lines:
            known = re.compile(rf"^{line.partition(' ')[0]} = .*$", re.MULTILINE)
            text = known.sub(line, text) if known.search(text) else text.replace(f"{head}\n", f"{head}\n{line}\n")
    return text


async def one(setting: Setting, way: str, seed: int, *, model: Path, episodes: int, times: int) -> Row:
    """One run, server and all."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="openclaw-rl-agents-")))
        (home / "agent.toml").write_text(config_text(WAYS[way].settings), "utf-8")
        places = folders.write(home / "tasks", setting, folders.TaskCounts(), seed=seed)
        measured = {name: places[name] for name in (folders.TEST, folders.HELD_BACK)}
        at_once = PAGES_AT_ONCE if setting is Setting.SCREEN else AT_ONCE
        training = TrainingPlan(group_size=8, at_once=at_once, episodes=episodes)
        budget = replace(SMALL, turns=TURNS.get(setting, SMALL.turns), needs_end=True)
        plan = TrialPlan(
            setting.value, places[folders.TRAIN], measured, training, times=times, seed=seed, budget=budget
        )
        server = await stack.enter_async_context(serving(home, model=str(model), config=home / "agent.toml"))
        endpoint = await stack.enter_async_context(PolicyEndpoint(server.base_url, server.key))
        options = EnvOptions(score_steps=setting in SCORED and WAYS[way].scores_steps)
        plain = await stack.enter_async_context(local_envs(setting.value, BoxKind.AUTO))
        scored = await stack.enter_async_context(local_envs(setting.value, BoxKind.AUTO, options))
        trial = AgentTrial(endpoint, scored, plan, lambda words: progress(f"  {words}"))
        measuring = replace(trial, open_env=plain)
        before = await measuring.measure("before")
        trained = await trial.train()
        trained_s = time.monotonic() - began
        after = await measuring.measure("after")
        versions = await endpoint.get("/v1/rl/versions?limit=500")
    held = versions.get("versions")
    statuses = [str(row.get("status")) for row in held if isinstance(row, dict)] if isinstance(held, list) else []
    return {
        "setting": setting.value,
        "way": way,
        "seed": seed,
        "before": before.figures[folders.TEST],
        "after": after.figures[folders.TEST],
        "held_back_before": before.figures[folders.HELD_BACK],
        "held_back_after": after.figures[folders.HELD_BACK],
        "training": trained,
        "versions": {status: statuses.count(status) for status in sorted(set(statuses))},
        "minutes": round((time.monotonic() - began) / 60, 2),
        "training_minutes": round(trained_s / 60, 2),
    }


def success(row: Row, name: str) -> float:
    """The share of a measurement."""
    found = row[name]
    assert isinstance(found, dict)
    value = found["success"]
    return float(value) if isinstance(value, int | float) else 0.0


def ended(row: Row, name: str) -> float:
    """The share of a measurement's attempts that no budget ended."""
    found = row[name]
    assert isinstance(found, dict)
    count, graded = found["ended"], found["graded"]
    return round(count / graded, 3) if isinstance(count, int) and isinstance(graded, int) and graded else 0.0


def figures(rows: list[Row]) -> Figures:
    """By setting and way: success before and after over the seeds, the worst seed, and what it took."""
    found: Figures = {}
    for setting in dict.fromkeys(str(row["setting"]) for row in rows):
        of_ways: Figures = {}
        for way in dict.fromkeys(str(row["way"]) for row in rows if row["setting"] == setting):
            these = [row for row in rows if (row["setting"], row["way"]) == (setting, way)]
            before, after = ([success(row, name) for row in these] for name in ("before", "after"))
            runs = [row["training"] for row in these if isinstance(row["training"], dict)]
            of_ways[way] = {
                "before": [round(value, 3) for value in before],
                "after": [round(value, 3) for value in after],
                "after_median": round(statistics.median(after), 3),
                "after_worst": round(min(after), 3),
                "doubled_or_above_0.8": [b > 0.8 or b >= 2 * a for a, b in zip(before, after, strict=True)],
                "ended": [[ended(row, "before"), ended(row, "after")] for row in these],
                "held_back": [[success(row, "held_back_before"), success(row, "held_back_after")] for row in these],
                "episodes": [run["episodes"] for run in runs],
                "tokens": [run["tokens"] for run in runs],
                "minutes": [row["training_minutes"] for row in these],
                "versions": [row["versions"] for row in these],
                "seeds": [row["seed"] for row in these],
            }
        found[setting] = of_ways
    return found


def kept_key(model: Path, setting: Setting, way: str, seed: int, *, counts: str) -> str:
    """A run's name: nothing is taken over from another product, model or recipe."""
    digest = hashlib.blake2b(digest_size=4)
    for path in (*sorted(model.glob("*.safetensors")), *sorted(model.glob("*.json*")), RECIPE):
        digest.update(path.read_bytes())
    named = f"{product_digest()}-{digest.hexdigest()}-{setting.value}-{way}-{seed}-{counts}"
    return named.replace(" ", "_")


def main() -> None:
    """Runs what is asked for and is not there yet."""
    end_servers_on_term()
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--settings", nargs="*", default=["terminal"] if is_quick() else [*folders.WRITTEN])
    options.add_argument("--ways", nargs="*", default=["steps"] if is_quick() else [*COMPARED])
    options.add_argument("--seeds", type=int, nargs="*", default=[0] if is_quick() else [0, 1, 2])
    options.add_argument("--episodes", type=int, default=200 if is_quick() else EPISODES)
    options.add_argument("--times", type=int, default=2, help="Attempts at each unseen task.")
    options.add_argument("--model", type=Path, default=None, help="A model folder; the shipped agent model by default.")
    given = options.parse_args()
    model = given.model or make.shipped()
    KEPT.mkdir(parents=True, exist_ok=True)
    wanted = [(Setting(name), way, seed) for way in given.ways for seed in given.seeds for name in given.settings]
    rows: list[Row] = []
    for number, (setting, way, seed) in enumerate(wanted, 1):
        counts = f"{given.episodes}x{given.times}"
        path = KEPT / f"{kept_key(model, setting, way, seed, counts=counts)}.json"
        if not path.is_file():
            progress(f"[{number}/{len(wanted)}] {setting.value}, {way}, seed {seed}")
            row = asyncio.run(one(setting, way, seed, model=model, episodes=given.episodes, times=given.times))
            path.write_text(json.dumps(row, indent=1) + "\n", "utf-8")
        row = json.loads(path.read_text("utf-8"))
        progress(
            f"[{number}/{len(wanted)}] {setting.value}, {way}, seed {seed}: {success(row, 'before'):.2f} -> "
            f"{success(row, 'after'):.2f} in {row['training_minutes']} minutes"
        )
        rows.append(row)
    stated = conditions(model.name, threads=1, seeds=given.seeds, repeats=given.times)
    finish({"benchmark": "agents", **figures(rows), "conditions": stated})


if __name__ == "__main__":
    main()
