"""A teacher that takes long over each turn: steps come between the turns, and the status says what is going on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from train_doubles import Assembled, Following
from train_flow import SETTINGS, Flow, flowing

from openclaw_rl.core.adapter import StepReport
from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.hint import PlacedHint
from openclaw_rl.core.ledger import State
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, Sample, SampledReply
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.teach.stage import SLICE_S
from openclaw_rl.teach.status import TeachStatus
from openclaw_rl.testing.trainer import ScriptedTrainer
from openclaw_rl.train.status import TrainStatus

SHOWN = (SampledReply((8, 9), (-0.1, -0.2), BASE),)
JUDGED = 13


@dataclass(frozen=True)
class Slow(Following):
    """A teacher that every hint tells something, after as long as one takes on a busy engine."""

    flow: Flow
    takes_s: float
    asked: list[str] = field(default_factory=list)
    seen: list[TeachStatus] = field(default_factory=list)

    async def demonstrated(
        self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled
    ) -> tuple[Sample, Sequence[PlacedHint]]:
        self.asked.append(turn.id)
        self.seen.append(self.flow.teach.status)
        self.flow.now_s += self.takes_s
        return replace(await assembled(()), hints=(HintPrompt("h", (1, 2, 9)),), shown=SHOWN), ()


async def _slow(flow: Flow, takes_s: float) -> Slow:
    flow.teach.clock = lambda: flow.now_s
    guide = Slow((), flow, takes_s)
    flow.asks(base=guide)
    for number in range(JUDGED):
        await flow.judged(f"t{number:02}", -1, hints=1, session_id=f"s{number}")
    return guide


async def test_a_step_that_is_due_does_not_wait_until_every_judged_turn_was_looked_at(tmp_path: Path) -> None:
    settings = replace(SETTINGS, batch_size=1)
    async with flowing(tmp_path, settings=settings) as flow:
        guide = await _slow(flow, 20.0)
        assert await flow.once()
        assert (guide.asked, flow.trainer.batches) == (["t00"], [["t00"]])
        await flow.pass_gate(PolicyVersion(SHARED, 1))
        assert await flow.once()
        assert flow.trainer.batches == [["t00"], ["t01"]]


async def test_turns_that_take_no_time_are_looked_at_together(flow: Flow) -> None:
    guide = await _slow(flow, SLICE_S / 100)
    await flow.once()
    assert len(guide.asked) == JUDGED


async def test_all_of_them_come_up_in_the_end_each_once(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=replace(SETTINGS, batch_size=50, min_batch=50, max_lag=9)) as flow:
        guide = await _slow(flow, 20.0)
        rounds = 0
        while await flow.once():
            rounds += 1
        assert rounds == JUDGED
        assert guide.asked == [f"t{number:02}" for number in range(JUDGED)]
        assert [await flow.state(name) for name in guide.asked] == [State.READY] * JUDGED


async def test_the_status_says_what_is_under_way_and_why_no_step_is(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=replace(SETTINGS, batch_size=1)) as flow:
        assert flow.stage.status.why_waiting == "training has not begun yet"
        guide = await _slow(flow, 20.0)
        await flow.once()  # takes a step
        assert "seen whether a step is due" in flow.stage.status.why_waiting
        await flow.pass_gate(PolicyVersion(SHARED, 1))
        await flow.once()
        first, second = guide.seen
        assert first.doing == "looking at 13 judged turns" and second.doing == "looking at 12 judged turns"
        assert not first.is_resting and not second.is_resting


async def test_what_waits_is_counted_while_a_step_is_under_way_and_while_the_gate_decides(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    async def look() -> None:
        status = (await flow.stage.report(StoreFacts(await flow.store.counts()))).status
        assert isinstance(status, TrainStatus)
        seen.append((status.ready, status.waiting))

    class BusyTrainer(ScriptedTrainer):
        async def step(
            self, samples: Sequence[Sample], *, resume: Path | None, under: Path | None = None, gentleness: int = 0
        ) -> StepReport:
            for name in ("c", "d", "e"):
                await flow.judged(name, -1)
            await flow.teach.once()
            await look()
            return await super().step(samples, resume=resume, under=under, gentleness=gentleness)

    async with flowing(tmp_path, trainer=BusyTrainer()) as flow:
        for name in ("a", "b"):
            await flow.judged(name, -1)
        await flow.once()  # a step over a and b, during which three others become ready
        await look()
        await flow.stage.once()  # its version is at the gate
        await look()
    assert seen == [(2, 3), (2, 3), (0, 3)]


async def test_a_step_under_way_is_named(flow: Flow) -> None:
    said: list[TrainStatus] = []
    turns: list[frozenset[str]] = []

    async def note() -> None:
        said.append(flow.stage.status)
        turns.append(flow.stage.turns_in_step)

    flow.trainer.before_export = note
    await flow.judged("a", -1)
    await flow.judged("b", -1)
    await flow.once()
    (status,) = said
    assert turns == [{"a", "b"}] and flow.stage.turns_in_step == frozenset()
    assert status.is_training and status.doing == "taking a step over 2 samples for shared"
    assert flow.stage.status.doing == ""
