"""Installations that learned from the same turns but one, on a tiny random model, with the real trainer."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch
from forked_trainer import LAUNCHER
from transformers import Qwen3Config, Qwen3ForCausalLM

from openclaw_rl.config import Config
from openclaw_rl.core.adapter import Adapter, StepReport
from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.sample import HintPrompt, Sample, Wants
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.remake.forget_finish import finish_erasing, plan_text
from openclaw_rl.remake.forget_plan import plan_of
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.selection import ForgetSelection, ForgetTarget
from openclaw_rl.store.rows import VersionStatus
from openclaw_rl.testing.turns import a_sample, a_turn, ids_of
from openclaw_rl.train.settings import TrainSettings
from openclaw_rl.train.step_parts import StepParts
from openclaw_rl.train.steps import ScopeSteps
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import TrainerSettings

CANARY = "plum-violin-harbour-ninety"
SETTINGS = TrainerSettings(rank=4, alpha=8.0, lr=1e-2, updates=4, nice=0)
FORKED = replace(SETTINGS, launcher=LAUNCHER)  # its trainers begin at once, with the fixture `forked_trainers`


def tiny_model(folder: Path) -> Path:
    """A random model whose ids are bytes."""
    torch.manual_seed(3)
    config = Qwen3Config(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=True,
        max_position_embeddings=512,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


@dataclass(slots=True)
class Here:
    """The trainer without a process of its own."""

    trainer: LoraTrainer

    async def prepare(self) -> None:
        pass

    async def step(
        self, samples: Sequence[Sample], *, resume: Path | None, under: Path | None = None, gentleness: int = 0
    ) -> StepReport:
        self.trainer.restore(resume, under)
        return self.trainer.step(samples, gentleness=gentleness)

    async def rebase(self, *, resume: Path, under: Path | None) -> None:
        self.trainer.restore(resume, under)

    async def export(self, folder: Path, version: PolicyVersion) -> Adapter:
        return self.trainer.export(folder, version)


@dataclass(slots=True)
class Home:
    """An installation that learns when it is told to. `scopes` are what each turn trains."""

    store: Store
    folder: Path
    trainer: Here
    settings: TrainerSettings = FORKED

    @property
    def config(self) -> Config:
        return Config(home=self.folder, trainer=self.settings)

    async def say(self, name: str, words: str, *, user: str, scopes: tuple[str, ...] = (SHARED,)) -> None:
        """A turn of its own session, corrected with a hint, that waits for a step."""
        turn = a_turn(name, words, f"you said {words}", session=f"k:{name}", user=user)
        await self.store.add_turn(turn, chain=name, prefix=name)
        await self.store.pair(NextState(name, (message(Role.USER, f"no, {words} please"),), NextStateSource.USER))
        hint = Hint(f"Answer {words} in one word.")
        await self.store.judge(Verdict(name, -1, VerdictSource.VOTES, hints=(hint,)), keep=hint)
        read = HintPrompt(hint.text, ids_of(f"{words} {hint.text}"))
        await self.store.admit(replace(a_sample(turn, score=-1.0), hints=(read,)), scopes=scopes)

    async def rehearse(self, name: str, words: str, *, user: str) -> None:
        """A turn that nobody corrected; it goes along in a step, and is said so late that no wish came after it."""
        turn = replace(a_turn(name, words, f"you said {words}", session=f"k:{name}", user=user), at_s=1e12)
        await self.store.add_turn(turn, chain=name, prefix=name)
        await self.store.pair(NextState(name, (message(Role.USER, "thanks"),), NextStateSource.USER))
        await self.store.judge(Verdict(name, 0, VerdictSource.VOTES))
        await self.store.admit(replace(a_sample(turn, score=0.0), is_promoted=True))

    async def learn(self, scope: str = SHARED) -> PolicyVersion:
        """A step over all that waits; its version is served."""
        taken = await (steps := self._steps(scope)).step((await steps.look()).ready)
        assert taken.version is not None, taken
        return await self._serve(taken.version)

    async def rebase(self, scope: str) -> PolicyVersion:
        """The scope's version on top of the shared one served now."""
        taken = await self._steps(scope).rebase()
        assert taken is not None and taken.version is not None
        return await self._serve(taken.version)

    async def serve_candidates(self) -> None:
        """Every version at the gate passes it."""
        for row in await self.store.versions():
            if row.status is VersionStatus.CANDIDATE:
                assert row.parent == await self.store.current(row.version.scope)
                await self._serve(row.version)

    async def digest(self, version: PolicyVersion) -> str:
        row = await self.store.version(version)
        assert row is not None
        return row.digest

    async def reopen(self) -> None:
        await self.store.aclose()
        self.store = await Store.open(self.folder)

    async def begin_forgetting(self, what: ForgetTarget, *, has_records: bool = False) -> None:
        """What `forget` does first: it plans, and erases from the store."""

        def planned(sql: sqlite3.Connection, found: ForgetSelection) -> str:
            return plan_text(plan_of(sql, what, found, name="f", at_s=1.0, has_records=has_records))

        await self.store.forgettings.begin(what, name="f", at_s=1.0, planned=planned)

    async def erase(self, what: ForgetTarget, *, has_records: bool = False) -> None:
        """What `forget` does up to the versions that are to be made again."""
        await self.begin_forgetting(what, has_records=has_records)
        await self.store.aclose()
        finish_erasing(self.folder)
        await self.reopen()

    async def _serve(self, version: PolicyVersion) -> PolicyVersion:
        await self.store.settle(version, VersionStatus.LIVE, "passed the gate", {})
        await self.store.set_current(version, why="passed the gate")
        return version

    def _steps(self, scope: str) -> ScopeSteps:
        parts = StepParts(
            self.store,
            self.trainer,
            TrainSettings(batch_size=8, min_batch=1, max_wait_s=0.0),
            Wants.HINT,
            self.folder,
            {"trainer": msgspec.to_builtins(self.settings)},
            lambda: 1e9,
            lambda: 0.0,
            time.time,
        )
        return ScopeSteps(parts, scope)


async def make_home(folder: Path, model: Path, settings: TrainerSettings = FORKED) -> Home:
    """An empty one."""
    return Home(await Store.open(folder), folder, Here(LoraTrainer.open(model, settings)), settings)


async def lived(home: Home, *, with_canary: bool) -> PolicyVersion:
    """Three steps; the canary is among what the second consumed."""
    await home.say("b1", "one", user="bob")
    await home.say("b2", "two", user="bob")
    await home.learn()
    await home.say("b3", "three", user="bob")
    if with_canary:
        await home.say("turn-of-ann", CANARY, user="ann")
    await home.say("b4", "four", user="bob")
    await home.learn()
    await home.say("b5", "five", user="bob")
    return await home.learn()


async def rehearsing(home: Home, *, with_canary: bool = True) -> PolicyVersion:
    """Three steps; the second and the third read again what the first rehearsed, the canary with it."""
    await home.say("b1", "one", user="bob")
    if with_canary:
        await home.rehearse("turn-of-ann", CANARY, user="ann")
    await home.rehearse("b2", "two", user="bob")
    await home.learn()
    await home.say("b3", "three", user="bob")
    await home.learn()
    await home.say("b4", "four", user="bob")
    return await home.learn()


async def never_saw(folder: Path, model: Path) -> str:
    """The digest of the last version of an installation that never saw the canary."""
    home = await make_home(folder, model)
    digest = await home.digest(await lived(home, with_canary=False))
    await home.store.aclose()
    return digest


def files_with(folder: Path, phrase: str) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and phrase.encode() in path.read_bytes()]
