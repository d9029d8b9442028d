"""Does it learn what people want: every method, several seeds, three people with hidden wishes, alone or together.

Each trial has its own server on a new folder, driven over HTTP. A finished trial is kept in a folder and not run
again under the same conditions, so a run that was stopped continues where it was.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from openclaw_rl.core.message import Json
from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.people.exercises import Exercises, ToyExercises
from openclaw_rl.evals.people.jobs import Person
from openclaw_rl.evals.people.voices import ScriptedVoice, Voice, playing
from openclaw_rl.evals.people.wishes import ASSISTANT, STUDENT, TEACHER
from openclaw_rl.evals.personalization.methods import EvalMethod, Mode, config_text
from openclaw_rl.evals.personalization.probes import BaseShares, Probes
from openclaw_rl.evals.personalization.trial import TrialRun, nobody_listens
from openclaw_rl.evals.personalization.trials import Trial, TrialSettings
from openclaw_rl.evals.scripted_judge import MODEL as SCRIPTED_JUDGE
from openclaw_rl.evals.scripted_judge import scripted_judge
from openclaw_rl.evals.server import serving
from openclaw_rl.tiny import world

BUNDLED, SCRIPTED = "bundled", "scripted"
EDITION = 2  # of the rules: trials of another edition are run again


@dataclass(frozen=True, slots=True)
class EvalPlan:
    """What to run. An empty `judge` is the recipe's own; `users` is `scripted` or the URL of a model that plays users.

    `cast` makes the people of a seed; with `in_turn` they teach one after another instead of in rounds.
    """

    mode: Mode
    methods: tuple[EvalMethod, ...]
    seeds: tuple[int, ...]
    recipe: dict[str, Json]
    folder: Path
    settings: TrialSettings = field(default_factory=TrialSettings)
    model: str = BUNDLED
    users: str = SCRIPTED
    judge: str = ""
    exercises: Exercises = field(default_factory=ToyExercises)
    at_once: int = 1
    cast: Callable[[Exercises, int], tuple[Person, ...]] = field(default_factory=lambda: three)
    in_turn: bool = False

    @property
    def name(self) -> str:
        """The name for its trials' files."""
        return "wishes" if self.in_turn else self.mode.value

    def cells(self) -> list[Cell]:
        """All trials to run, method by method."""
        return [
            Cell(method, seed, people)
            for method in self.methods
            for seed in self.seeds
            for people in ([self.people(seed)] if self.mode is Mode.JOINT else [(one,) for one in self.people(seed)])
        ]

    def people(self, seed: int) -> tuple[Person, ...]:
        """Who teaches."""
        return self.cast(self.exercises, seed)


@dataclass(frozen=True, slots=True)
class Cell:
    """One trial to run."""

    method: EvalMethod
    seed: int
    people: tuple[Person, ...]

    @property
    def name(self) -> str:
        """As `recipe-0-student`."""
        who = self.people[0].name if len(self.people) == 1 else "all"
        return f"{self.method.name}-{self.seed}-{who}"


class Watcher(Protocol):
    """Receives the progress of a plan."""

    def started(self, cell: str) -> None:
        """A trial begins."""

    def progressed(self, cell: str, done: int, of: int, what: str) -> None:
        """A session is over, or something is being measured."""

    def finished(self, cell: str, trial: Trial, *, is_kept: bool) -> None:
        """A trial is over, or was already finished."""


def three(exercises: Exercises, seed: int) -> tuple[Person, ...]:
    """A student, a teaching assistant and a teacher."""
    return (
        Person("student", STUDENT, exercises, seed, keeps_file=True),
        Person("assistant", ASSISTANT, exercises, seed),
        Person("teacher", TEACHER, exercises, seed),
    )


async def run_plan(plan: EvalPlan, watcher: Watcher) -> list[Trial]:
    """Every trial of the plan, `at_once` at a time, in the plan's order."""
    slots = asyncio.Semaphore(plan.at_once)
    async with AsyncExitStack() as stack:
        voice: Voice = ScriptedVoice()
        if plan.users != SCRIPTED:
            voice = await stack.enter_async_context(playing(plan.users))

        async def one(cell: Cell) -> Trial:
            async with slots:
                return await _trial(plan, cell, voice, watcher)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(cell)) for cell in plan.cells()]
    return [task.result() for task in tasks]


def conditions_of(plan: EvalPlan, method: EvalMethod) -> str:
    """A digest of everything a trial's outcome depends on, besides the seed and the people."""
    facts = [
        EDITION,
        plan.name,
        asdict(method),
        plan.recipe,
        asdict(plan.settings),
        model_digest(plan.model),
        plan.users,
        plan.judge,
        plan.exercises.name,
    ]
    return _digest(facts)


def model_digest(model: str) -> str:
    """The model's name, and for a folder the digest of its weights."""
    folder = world.bundled_model() if model == BUNDLED else Path(model)
    digest = hashlib.blake2b(model.encode(), digest_size=8)
    for file in sorted(folder.glob("*.safetensors")) if folder.is_dir() else []:
        with file.open("rb") as weights:
            while block := weights.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


async def _trial(plan: EvalPlan, cell: Cell, voice: Voice, watcher: Watcher) -> Trial:
    conditions = conditions_of(plan, cell.method)
    kept = FinishedTrial(plan.folder / f"{plan.name}-{cell.name}-{conditions[:8]}.json", conditions)
    found = kept.read()
    if found is None:
        watcher.started(cell.name)
        found = await _run(plan, cell, voice, lambda done, of, what: watcher.progressed(cell.name, done, of, what))
        kept.write(found)
        watcher.finished(cell.name, found, is_kept=False)
    else:
        watcher.finished(cell.name, found, is_kept=True)
    return found


async def _run(plan: EvalPlan, cell: Cell, voice: Voice, on_progress: Callable[[int, int, str], None]) -> Trial:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="openclaw-rl-eval-")))
        changes, tell = dict(cell.method.changes), nobody_listens
        if plan.judge == SCRIPTED:
            judge = await stack.enter_async_context(scripted_judge())
            changes |= {"judge.url": judge.url, "judge.model": SCRIPTED_JUDGE, "judge.votes": 1}
            tell = judge.tell
        elif plan.judge:
            changes |= {"judge.url": plan.judge, "judge.model": await served_model(plan.judge, "none")}
        config = home / "settings.toml"
        config.write_text(config_text(plan.recipe, changes), "utf-8")
        options = () if cell.method.judges else ("--no-learn",)
        server = await stack.enter_async_context(serving(home, model=plan.model, config=config, options=options))
        name = await served_model(server.base_url, server.key)
        client = await stack.enter_async_context(Client(server.base_url, server.key, name))
        base = BaseShares(
            plan.folder, _digest([EDITION, model_digest(plan.model), asdict(plan.settings), plan.exercises.name])
        )
        run = TrialRun(
            client,
            cell.method,
            cell.seed,
            cell.people,
            plan.people(cell.seed),
            voice,
            plan.settings,
            Probes(client, plan.settings, base),
            tell=tell,
            on_progress=on_progress,
        )
        return await (run.run_in_turn() if plan.in_turn else run.run())


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """The file of a finished trial."""

    path: Path
    conditions: str

    def read(self) -> Trial | None:
        """The trial, if one was finished under these conditions."""
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=_KeptTrial)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return found.trial if found.conditions == self.conditions else None

    def write(self, trial: Trial) -> None:
        """Stores it atomically."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".part")
        draft.write_bytes(msgspec.json.encode(_KeptTrial(self.conditions, trial)))
        draft.replace(self.path)


@dataclass(frozen=True, slots=True)
class _KeptTrial:
    conditions: str
    trial: Trial


def _digest(facts: Sequence[object]) -> str:
    digested = json.dumps(msgspec.to_builtins(facts), sort_keys=True)
    return hashlib.blake2b(digested.encode(), digest_size=12).hexdigest()
