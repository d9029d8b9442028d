"""A training stage over a real store in a temporary folder, its time moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from train_doubles import HintRenderer, ToldTrainer, next_of, session, turn
from train_doubles import verdict as verdict_of

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionStatus
from openclaw_rl.teach.entry import Entry
from openclaw_rl.train.settings import TrainStageSettings, Wants
from openclaw_rl.train.stage import TrainStage

SETTINGS = TrainStageSettings(batch_size=2, min_batch=1, max_wait_s=60.0, max_lag=2, max_sample_tokens=100)


@dataclass
class Flow:
    """The stage, its store and its trainer."""

    home: Path
    store: Store
    trainer: ToldTrainer
    settings: TrainStageSettings = SETTINGS
    wants: Wants = Wants.EITHER
    now_s: float = 1000.0
    stage: TrainStage = field(init=False)

    def __post_init__(self) -> None:
        self.stage = TrainStage(
            store=self.store,
            entry=Entry(self.store, HintRenderer(), self.settings, self.wants),
            trainer=self.trainer,
            settings=self.settings,
            wants=self.wants,
            home=self.home,
            recipe={"method": "opd"},
            clock=lambda: self.now_s,
            now=lambda: self.now_s,
        )

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
    home: Path, *, trainer: ToldTrainer | None = None, settings: TrainStageSettings = SETTINGS,
    wants: Wants = Wants.EITHER,
) -> AsyncIterator[Flow]:  # fmt: skip
    store = await Store.open(home)
    try:
        yield Flow(home, store, trainer or ToldTrainer(), settings, wants)
    finally:
        await store.aclose()
