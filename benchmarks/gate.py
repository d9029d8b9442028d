"""`make bench-gate`: bad versions beside good ones, at the real gate of a real server, with a student who talks on.

Good versions come from the real loop: students are served over HTTP, correct, and what they teach is trained, tried and
published. Each bad one is put before the same gate on top of the last good one. What gets through is served to the
student until it is taken back, or until it has been watched to the end. While bad versions are tried nothing is
trained, so that only the gate and the way back are seen at work. The last line is one line of JSON.

python -m benchmarks.gate
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from openai.types.chat import ChatCompletionMessageParam

from benchmarks import gate_cases as cases
from benchmarks.common import Figures, conditions, finish, is_quick, progress
from openclaw_rl.config import read_config
from openclaw_rl.core.message import Json
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.learning import LearningRun, RunSettings, measure
from openclaw_rl.evals.people.users import Student
from openclaw_rl.home.address import taken
from openclaw_rl.publish.swap import rollback
from openclaw_rl.runtime.installation import Installation, installed
from openclaw_rl.runtime.listening import listening
from openclaw_rl.store.rows import VersionRow, VersionStatus
from openclaw_rl.tiny import world
from openclaw_rl.trainers.descent import FIRST_RATE

KEY = "sk-bench-gate"
TASKS = 24
DRIFT_STEPS = 8
DRIFT_PROBLEMS = 30
WORSE = 0.15  # by so much a share must fall before a version that got through is called harmful
WAIT_S = 600.0


@dataclass(slots=True)
class Live:
    """A running server with its parts at hand, and its student."""

    parts: Installation
    client: Client
    student: Student
    sessions: int = 0

    async def session(self) -> None:
        """One conversation: at most three corrections, then thanks; returns once everything is judged and looked at."""
        self.sessions += 1
        number = 5000 + self.sessions
        task, name = self.student.task(number), f"bench-{number}"
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": task.opening}]
        for turn in range(4):
            reply = await self.client.say(
                messages, session=name, temperature=0.7, max_tokens=256, seed=number * 10 + turn
            )
            check = task.check(reply.text)
            messages.append({"role": "assistant", "content": reply.text})
            messages.append({"role": "user", "content": task.answer(reply.text, check)})
            if check.is_met:
                break
        await self.client.say(messages, session=name, temperature=0.7, max_tokens=8, seed=number)
        await self.client.end(name)
        await self.until(self._is_judged)
        self.parts.publishing.candidate_made.set()  # the stage looks at once instead of in a moment
        await self.until(self._is_looked_at)

    async def _is_judged(self) -> bool:
        return not (await self.parts.store.counts()).get("paired")

    async def _is_looked_at(self) -> bool:
        return self.parts.publishing.looked_at == await self.parts.store.effects.last_judged()

    async def settled(self, row: VersionRow) -> VersionRow:
        """The version, once the gate has decided."""

        async def is_decided() -> bool:
            held = await self.parts.store.version(row.version)
            return held is not None and held.status is not VersionStatus.CANDIDATE and "being swapped" not in held.why

        await self.until(is_decided)
        found = await self.parts.store.version(row.version)
        assert found is not None
        return found

    async def until(self, is_so: Callable[[], object]) -> None:
        """Waits for it."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            answer = is_so()
            if await answer if asyncio.iscoroutine(answer) else answer:
                return
            await asyncio.sleep(0.05)
        raise TimeoutError("the server did not get there")

    async def answered_by(self, versions: set[PolicyVersion]) -> int:
        """How many of the student's requests these versions have answered."""
        rows = await self.parts.store.rows(limit=500)
        return sum(row.turn.is_main and row.turn.completion.version in versions for row in rows)

    async def judged(self, versions: set[PolicyVersion]) -> int:
        """How many replies of these versions were judged: the watch looks at so many, not at requests."""
        return sum(item.version in versions for item in await self.parts.store.effects.outcomes())

    async def shares(self, problems: int) -> dict[str, float]:
        """Wish and right answers on unseen problems, under what is served now."""
        found = await measure(self.client, self.student, RunSettings(problems=problems), label="gate")
        return {"wish": round(found.wish.value, 3), "right": round(found.right.value, 3)}


@dataclass(slots=True)
class Result:
    """What became of a bad version."""

    name: str
    by: str = ""  # gate, watch, or empty where it was let through
    why: str = ""
    requests: int = 0
    judged: int = 0
    shares: dict[str, float] = field(default_factory=dict)
    is_harmful: bool = True


@contextlib.asynccontextmanager
async def live(home: Path, seed: int) -> AsyncIterator[Live]:
    """A server in this process with engine and trainer in theirs, learning."""
    tasks = home / "tasks.jsonl"
    rng = Random(f"tasks {seed}")
    with tasks.open("w", encoding="utf-8") as out:
        for _ in range(TASKS):
            problem = world.problem(rng, held_out=True)
            expects = rf"(?<!\d){re.escape(str(problem.answer))}(?!\d)"
            out.write(json.dumps({"prompt": world.request(problem, rng), "expect": expects}) + "\n")
    overrides: dict[str, Json] = {"home": str(home), "serve.port": 0, "serve.api_key": KEY, "publish.tasks": str(tasks)}
    config = read_config(None, environment={}, overrides=overrides)
    async with (
        installed(config) as parts,
        taken(config.serve) as place,
        listening(parts, place, learns=True) as url,
        asyncio.TaskGroup() as group,
    ):
        behind = [group.create_task(parts.collect.run()), group.create_task(parts.learning.run())]
        try:
            base = f"{url}/v1"
            async with Client(base, KEY, await served_model(base, KEY)) as client:
                yield Live(parts, client, Student(seed))
        finally:
            for task in behind:
                task.cancel()


async def learned(at: Live, settings: RunSettings, seed: int) -> dict[str, object]:
    """The real loop for some sessions: the good versions it made, and those of them refused or taken back."""
    run = LearningRun(at.client, at.student, settings, seed=seed)
    await run.run()
    rows = [row for row in await at.parts.store.versions() if not row.version.is_base]
    alarms = [f"{row.version}: {row.why}" for row in rows if row.status is VersionStatus.REFUSED]
    alarms += [f"{row.version}: {row.why}" for row in rows if row.why.startswith("rolled back")]
    report = run.report_now()
    progress(
        f"seed {seed}: {len(rows)} good versions, {len(alarms)} false alarms, converged at {report.converged_at}, "
        f"wish {report.last.wish if report.last else None}"
    )
    for alarm in alarms:
        progress(f"  false alarm {alarm}")
    kept = ("gate_kl", "gate_wish_before", "gate_wish", "gate_kept_before", "gate_kept", "gate_tasks", "gate_length")
    for row in rows:
        shown = {name: round(row.metrics[name], 3) for name in kept if name in row.metrics}
        progress(f"  {row.version} {row.status.value}: {shown}")
    return {"seed": seed, "versions": len(rows), "false_alarms": alarms, "converged_at": report.converged_at}


async def tried(at: Live, name: str, row: VersionRow, good: dict[str, float], problems: int) -> Result:
    """A bad version at the gate; where it gets through, the student talks to it until it is taken back."""
    served = row.parent
    assert served is not None
    settled = await at.settled(row)
    result = Result(name, why=settled.why)
    if settled.status is VersionStatus.REFUSED:
        result.by = "gate"
        progress(f"{name}: refused: {settled.why}")
        return result
    result.shares = await at.shares(problems)
    watched = at.parts.config.publish.watch_turns
    while at.parts.served.current(SHARED) == row.version and await at.judged({row.version}) < watched:
        await at.session()
    result.requests = await at.answered_by({row.version})
    result.judged = await at.judged({row.version})
    if at.parts.served.current(SHARED) == row.version:
        result.is_harmful = any(good[key] - result.shares[key] > WORSE for key in good)
        await rollback(at.parts.store, served, served=at.parts.served)
    else:
        held = await at.parts.store.version(row.version)
        result.by, result.why = "watch", "" if held is None else held.why
    progress(f"{name}: {result.by or 'let through'} after {result.requests} requests {result.shares}: {result.why}")
    return result


async def drifted(
    at: Live, ground: cases.Ground, good: dict[str, float], name: str, at_step: Callable[[int], cases.Change]
) -> Result:
    """Versions that are each a little worse than the one before, two conversations with each."""
    result, made, parent = Result(name), set[PolicyVersion](), ground.row.version
    for number in range(1, DRIFT_STEPS + 1):
        row = await at.settled(await ground.enter(name, ground.changed(at_step(number)), parent=parent))
        if row.status is VersionStatus.REFUSED:
            result.by, result.why = "gate", f"step {number}: {row.why}"
            break
        made.add(row.version)
        parent = row.version
        for _ in range(2):
            if at.parts.served.current(SHARED) == row.version:
                await at.session()
        if at.parts.served.current(SHARED) != row.version:
            result.by, result.why = "watch", f"step {number}: {at.parts.publishing.status.last}"
            break
    watched = at.parts.config.publish.watch_turns
    while not result.by and await at.judged(made) < watched + 8:
        await at.session()
        if at.parts.served.current(SHARED) != parent:
            result.by, result.why = "watch", at.parts.publishing.status.last
    result.requests = await at.answered_by(made)
    result.judged = await at.judged(made)
    if not result.by:
        result.shares = await at.shares(DRIFT_PROBLEMS)
        result.is_harmful = any(good[key] - result.shares[key] > WORSE for key in good)
    shares = result.shares
    progress(f"{name}: {result.by or 'let through'} after {result.requests} requests {shares}: {result.why}")
    await rollback(at.parts.store, ground.row.version, served=at.parts.served)
    return result


async def all_bad(at: Live, problems: int) -> list[Result]:
    """Every bad version, one after the other, each on top of the last good one."""
    row = await at.parts.store.version(at.parts.served.current(SHARED))
    assert row is not None
    await at.parts.store.orders.freeze(at_s=time.time())
    ground, good = cases.Ground(at.parts, row), await at.shares(problems)
    progress(f"the good version {row.version}: {good}")
    settings = at.parts.config.trainer
    samples = await ground.hinted()
    inverted, vocabulary = await ground.turned_around(), at.parts.engine.info.vocab_size
    noisy = cases.random_hints(samples, vocabulary)
    lr = settings.lr or FIRST_RATE
    fills = {
        "noise": ground.changed(cases.noise(0.2)),
        "noise added": ground.changed(cases.shaken(0.15)),
        "not finite": ground.changed(cases.not_finite),
        "learning rate x 100": await ground.trained(samples, steps=1, settings=replace(settings, lr=100 * lr)),
        "random hints": await ground.trained(noisy, steps=cases.STEPS, settings=settings),
        "inverted feedback": await ground.trained(inverted, steps=cases.STEPS, settings=settings),
    }
    found = [await tried(at, name, await ground.enter(name, fill), good, problems) for name, fill in fills.items()]
    for name, harm in (("truncated", cases.truncate), ("flipped", cases.flip)):
        damaged = await ground.enter(name, ground.changed(cases.untouched), harm=harm)
        found.append(await tried(at, name, damaged, good, problems))
    found.append(await drifted(at, ground, good, "drift by noise", lambda step: cases.shaken(0.03 * step)))
    found.append(await drifted(at, ground, good, "drift by fading", lambda step: cases.faded(1.0 - step / DRIFT_STEPS)))
    return found


async def run(seeds: list[int], settings: RunSettings, problems: int) -> Figures:
    """Good versions in a home for each seed, bad ones in the last."""
    good: list[dict[str, object]] = []
    bad: list[Result] = []
    window = 0
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="openclaw-rl-gate-") as home:
            async with live(Path(home), seed) as at:
                good.append(await learned(at, settings, seed))
                window = at.parts.config.publish.watch_turns
                if seed == seeds[-1]:
                    bad = await all_bad(at, problems)
    harmful = [result for result in bad if result.by or result.is_harmful]
    alarms = [item["false_alarms"] for item in good]
    return {
        "tried": len(harmful),
        "caught": sum(bool(result.by) for result in harmful),
        "requests_served_by_bad_versions": {result.name: result.requests for result in harmful},
        "judged_turns_of_bad_versions": {result.name: result.judged for result in harmful},
        "window_judged_turns": window,
        "caught_by": {result.name: result.by for result in harmful},
        "why": {result.name: result.why for result in bad},
        "harmless": {result.name: result.shares for result in bad if result not in harmful},
        "shares": {result.name: result.shares for result in bad if result.shares},
        "false_alarms": sum(len(alarm) for alarm in alarms if isinstance(alarm, list)),
        "good_versions": sum(int(str(item["versions"])) for item in good),
        "good": good,
    }


def main() -> None:
    """Runs everything and prints the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, nargs="*", default=[0] if is_quick() else [0, 1, 2, 3, 4])
    options.add_argument("--sessions", type=int, default=14 if is_quick() else 18)
    options.add_argument("--problems", type=int, default=20 if is_quick() else 30)
    given = options.parse_args()
    settings = RunSettings(sessions=given.sessions, problems=given.problems, settle_s=180.0)
    found = asyncio.run(run(given.seeds, settings, given.problems))
    finish({**found, "conditions": conditions("bundled", threads=1, seeds=given.seeds, repeats=1)})


if __name__ == "__main__":
    main()
