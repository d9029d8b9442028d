"""A training stage over a real store in a temporary folder, its time moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from train_doubles import HintRenderer, next_of, session, turn
from train_doubles import verdict as verdict_of

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.sample import Sample, Wants
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionStatus
from openclaw_rl.teach.rules import LearningRules
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.teach.stage import TeachStage
from openclaw_rl.testing.trainer import ScriptedTrainer
from openclaw_rl.train.settings import TrainSettings
from openclaw_rl.train.stage import TrainStage

SETTINGS = TrainSettings(batch_size=2, min_batch=1, max_wait_s=60.0, max_lag=2, max_sample_tokens=100)
TEACHES = TeachSettings()


@dataclass
class NeverWaits:
    """The teaching stage, as a step depends on it where the test itself says when it looks."""

    stage: TeachStage

    async def wait_until_looked_at(self) -> None:
        return None

    async def still_holds(self, rehearsal: Sample, since: Sequence[str]) -> bool:
        return await self.stage.still_holds(rehearsal, since)


@dataclass
class Flow:
    """The teaching and the training stage, their store and their trainer."""

    home: Path
    store: Store
    trainer: ScriptedTrainer
    settings: TrainSettings = SETTINGS
    wants: Wants = Wants.EITHER
    teaches: TeachSettings = TEACHES
    now_s: float = 1000.0
    teach: TeachStage = field(init=False)
    stage: TrainStage = field(init=False)

    def __post_init__(self) -> None:
        rules = LearningRules(self.wants, self.settings.scopes, self.settings.max_sample_tokens)
        self.teach = TeachStage(self.store, HintRenderer(), self.teaches, rules)
        self.stage = TrainStage(
            store=self.store,
            teaching=NeverWaits(self.teach),
            trainer=self.trainer,
            settings=self.settings,
            wants=self.wants,
            home=self.home,
            recipe={"method": "opd"},
            clock=lambda: self.now_s,
            now=lambda: self.now_s,
        )

    async def once(self) -> bool:
        """One round of both stages, one after the other."""
        has_moved = await self.teach.once()
        return await self.stage.once() or has_moved

    def asks(self, **teacher: object) -> None:
        """Who is asked about a judged turn."""
        self.teach.teacher = replace(self.teach.teacher, **teacher)  # type: ignore[arg-type]

    def rules(self, **rules: object) -> None:
        """Other rules about what becomes a sample."""
        self.teach.rules = replace(self.teach.rules, **rules)  # type: ignore[arg-type]

    async def judged(
        self, name: str, score: int | None, *, hints: int = 0, mean: float | None = None, session_id: str = "s1",
        version: PolicyVersion = BASE,
    ) -> None:  # fmt: skip
        """Brings a turn up to its verdict."""
        await self.paired(name, session_id=session_id, version=version)
        assert await self.store.judge(verdict_of(name, score, hints=hints, mean=mean))

    async def paired(self, name: str, *, session_id: str = "s1", version: PolicyVersion = BASE) -> None:
        """Brings a turn up to its next state."""
        await self.store.see_session(session(session_id))
        await self.store.add_turn(turn(name, session=session_id, version=version), chain=f"chain {name}")
        assert await self.store.pair(next_of(name))

    async def pass_gate(self, version: PolicyVersion) -> None:
        """What publishing does with a good version."""
        await self.store.settle(version, VersionStatus.LIVE, "passed", {})
        await self.store.set_current(version, why="passed")

    async def state(self, name: str) -> State | DropReason | None:
        """Where a turn stands, or why it was dropped."""
        row = await self.store.row(name)
        assert row is not None
        return row.reason or row.state


@asynccontextmanager
async def flowing(
    home: Path, *, trainer: ScriptedTrainer | None = None, settings: TrainSettings = SETTINGS,
    wants: Wants = Wants.EITHER, teaches: TeachSettings = TEACHES,
) -> AsyncIterator[Flow]:  # fmt: skip
    async with aclosing(await Store.open(home)) as store:
        yield Flow(home, store, trainer or ScriptedTrainer(), settings, wants, teaches)
