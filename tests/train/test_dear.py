"""Samples that cost much: short ones never wait for them, and what is too dear for the machine is set aside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from train_doubles import STEPPED, sample
from train_flow import SETTINGS, Flow

from openclaw_rl.core.adapter import StepProgress, StepReport
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.sample import Sample
from openclaw_rl.errors import StepTooCostlyError
from openclaw_rl.serve.control.explain import explained
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionStatus
from openclaw_rl.testing.trainer import ScriptedTrainer
from openclaw_rl.train.costs import Costs
from openclaw_rl.train.step_parts import StepInProgress, left_s, progress_in_words

TIMEOUT_S, LIMIT_S = 1800.0, 600.0
FAST = 1e-3  # seconds a token and its attention to a thousand before it


def prompt_of(name: str) -> tuple[int, ...]:
    """`d` names hold 15,000 tokens, `m` names 3,000, all others 50."""
    size = {"d": 15_000, "m": 3_000}.get(name[0], 50)
    return (*range(1000, 1000 + size - 1), sum(map(ord, name)))


def machine(rate: float, flow: Callable[[], Flow]) -> Callable[[Sequence[Sample]], StepReport]:
    """A trainer as fast as that, which is ended after its time."""

    def answer(samples: Sequence[Sample]) -> StepReport:
        held = flow()
        work = held.stage.costs.work_of(samples)
        seconds = rate * work.units(2.0, 1000.0)
        if seconds > TIMEOUT_S:
            held.now_s += TIMEOUT_S
            raise StepTooCostlyError("the trainer did not answer within 1800 s", after_s=TIMEOUT_S)
        held.now_s += seconds
        return StepReport(True, {"seconds": seconds, "updates": 2.0, "updates_undone": 0.0})

    return answer


@asynccontextmanager
async def on_a_machine(home: Path, rate: float, *, size: int = 4, least: int = 1) -> AsyncIterator[Flow]:
    """A stage that admits what `said` makes, its trainer as fast as that."""
    settings = replace(SETTINGS, batch_size=size, min_batch=least, max_wait_s=0.0, max_lag=99, max_sample_tokens=32_768)
    trainer = ScriptedTrainer()
    async with aclosing(await Store.open(home)) as store:
        flow = Flow(home, store, trainer, settings)
        flow.stage.costs = flow.stage._parts.costs
        flow.stage.costs.limit_s, flow.stage.costs.updates = LIMIT_S, 2
        trainer.answer = machine(rate, lambda: flow)
        await flow.stage.start()
        yield flow


async def said(flow: Flow, *names: str) -> None:
    """Corrections, each ready for a step."""
    for name in names:
        await flow.judged(name, None)
        await flow.store.admit(replace(sample(name), prompt=prompt_of(name)))


async def steps(flow: Flow, *, most: int = 40) -> None:
    """Rounds until nothing moves; every version passes the gate."""
    for _ in range(most):
        for row in await flow.store.candidates():
            await flow.store.settle(row.version, VersionStatus.LIVE, "passed", {})
            await flow.store.set_current(row.version, why="passed")
        if not await flow.once():
            return
        flow.now_s += 400.0
    raise AssertionError("the stage never came to rest")


async def test_short_samples_go_before_an_older_dear_one_which_goes_alone(tmp_path: Path) -> None:
    async with on_a_machine(tmp_path, FAST) as flow:
        await said(flow, "d1", "a", "b", "c")
        await steps(flow)
        assert flow.trainer.batches == [["a", "b", "c"], ["d1"]]
        assert await flow.state("d1") is State.TRAINED


async def test_nor_does_a_dear_sample_of_one_user_go_before_short_ones_of_another(tmp_path: Path) -> None:
    async with on_a_machine(tmp_path, FAST, size=1) as flow:
        for name, scope in (("d1", "user:ann"), ("b1", "user:bob"), ("b2", "user:bob")):
            await flow.judged(name, None)
            await flow.store.admit(replace(sample(name), prompt=prompt_of(name)), scopes=(scope,))
        await steps(flow)
        assert flow.trainer.batches == [["b1"], ["b2"], ["d1"]]


async def test_what_costs_about_the_same_shares_a_step_as_far_as_its_time_allows(tmp_path: Path) -> None:
    # They share all of their prompts but one token: a step over four of them reads about as much as one over one.
    async with on_a_machine(tmp_path, FAST) as flow:
        await said(flow, "d1", "d2", "d3", "d4")
        await steps(flow)
        # the first alone, since nothing is known of this machine yet
        assert flow.trainer.batches == [["d1"], ["d2", "d3", "d4"]]


async def test_the_first_step_takes_as_many_as_a_step_needs_at_least(tmp_path: Path) -> None:
    async def first(folder: str, least: int) -> int:
        async with on_a_machine(tmp_path / folder, FAST, size=8, least=least) as flow:
            for number in range(8):  # 4,000 tokens each, which they do not share
                await flow.judged(f"t{number}", None)
                prompt = tuple(range(4000 * number, 4000 * (number + 1)))
                await flow.store.admit(replace(sample(f"t{number}"), prompt=prompt))
            await steps_once(flow)
            return len(flow.trainer.batches[0])

    assert (await first("few", 1), await first("many", 6)) == (1, 6)


async def test_a_dear_sample_has_its_turn_although_short_ones_keep_coming(tmp_path: Path) -> None:
    async with on_a_machine(tmp_path, 3e-4, size=2) as flow:
        await said(flow, "a0", "d1")
        for number in range(1, 400):
            await said(flow, f"a{number}")
            await steps_once(flow)
            if ["d1"] in flow.trainer.batches:
                break
        before = flow.trainer.batches.index(["d1"])
        assert before > 3  # short ones went first
        assert all(name.startswith("a") for batch in flow.trainer.batches[:before] for name in batch)


async def steps_once(flow: Flow) -> None:
    """A round in which a short step takes a minute, so that something is owed soon."""
    for row in await flow.store.candidates():
        await flow.store.settle(row.version, VersionStatus.LIVE, "passed", {})
        await flow.store.set_current(row.version, why="passed")
    answer, flow.trainer.before_export = flow.trainer.answer, None

    async def slow() -> None:
        flow.now_s += 10.0

    flow.trainer.before_export = slow
    await flow.once()
    flow.trainer.answer = answer


async def test_a_dear_one_that_takes_too_long_alone_is_set_aside_at_once_with_reason_and_cure(tmp_path: Path) -> None:
    async with on_a_machine(tmp_path, 1e-2) as flow:
        await said(flow, "d1", "a", "b")
        await steps(flow)
        assert flow.trainer.batches == [["a", "b"], ["d1"]]  # tried once, after the short ones, and not begun again
        assert await flow.state("d1") is DropReason.TOO_DEAR
        row = await flow.store.row("d1")
        assert row is not None and "considered again at the next start" in explained(row)[-1]
        await said(flow, "d2", "c")
        await steps(flow)
        assert flow.trainer.batches[2:] == [["c"]]  # known now: the other one is not even tried
        assert await flow.state("d2") is DropReason.TOO_DEAR


async def test_a_step_over_several_that_takes_too_long_is_split_and_the_dearest_left_out(tmp_path: Path) -> None:
    async with on_a_machine(tmp_path, FAST) as flow:
        await said(flow, "a0")
        await steps(flow)
        # The machine is slower than it was, and the model of its costs does not know that yet.
        flow.trainer.answer = machine(0.3, lambda: flow)
        await said(flow, "b1", "m1", "b2", "b3")
        flow.stage.costs.limit_s = 1e9
        await steps(flow)
        first, *rest = flow.trainer.batches[1:]
        assert "m1" in first and len(first) == 4
        assert rest[0] == ["b1", "b2"] and rest.count(["m1"]) == 1
        assert [await flow.state(name) for name in ("b1", "b2", "b3")] == [State.TRAINED] * 3
        assert await flow.state("m1") is DropReason.TOO_DEAR


async def test_what_was_set_aside_is_tried_again_after_a_start_with_more_time_and_not_without(tmp_path: Path) -> None:
    async with on_a_machine(tmp_path, 1e-2) as flow:
        await said(flow, "d1", "a")
        await steps(flow)
        assert await flow.state("d1") is DropReason.TOO_DEAR
    async with on_a_machine(tmp_path, 1e-2) as flow:  # as it was: what steps took is known from the store
        await steps(flow)
        assert (flow.trainer.batches, await flow.state("d1")) == ([], DropReason.TOO_DEAR)
    async with on_a_machine(tmp_path, FAST) as flow:
        flow.stage.costs.limit_s = 20_000.0
        await steps(flow)
        assert flow.trainer.batches == [["d1"]]
        assert await flow.state("d1") is State.TRAINED


async def test_a_lack_of_memory_sets_aside_only_what_fails_alone_while_others_pass(tmp_path: Path) -> None:
    def answer(samples: Sequence[Sample]) -> StepReport:
        if any(item.turn == "m1" for item in samples):
            raise StepTooCostlyError("the trainer ran out of memory")
        return STEPPED

    async with on_a_machine(tmp_path, FAST) as flow:
        flow.trainer.answer = answer
        await said(flow, "m1", "m2", "m3", "m4")
        await steps(flow)
        assert await flow.state("m1") is DropReason.TOO_DEAR
        assert [await flow.state(name) for name in ("m2", "m3", "m4")] == [State.TRAINED] * 3
        assert flow.trainer.batches.count(["m1"]) == 2


async def test_where_memory_is_short_for_everything_nothing_is_set_aside_at_once(tmp_path: Path) -> None:
    def answer(samples: Sequence[Sample]) -> StepReport:
        raise StepTooCostlyError("the trainer ran out of memory")

    async with on_a_machine(tmp_path, FAST) as flow:
        flow.trainer.answer = answer
        await said(flow, "a", "b")
        for _ in range(6):
            await flow.once()
            flow.now_s += 400.0
        assert (await flow.state("a"), await flow.state("b")) == (State.READY, State.READY)


async def test_rehearsals_that_cost_much_do_not_make_a_short_step_long(tmp_path: Path) -> None:
    async with on_a_machine(tmp_path, FAST) as flow:
        await flow.judged("dr", None)
        rehearsal = replace(sample("dr", 0.0, is_promoted=True), prompt=prompt_of("dr"))
        await flow.store.admit(rehearsal)
        await said(flow, "a")
        await steps(flow)
        assert flow.trainer.batches == [["a"]]
        assert await flow.state("dr") is State.READY


UNDER_WAY = StepInProgress(samples=1, tokens=12_000.0, seconds=90.0)


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (None, "about 90 s to go"),  # the model is being loaded
        (StepProgress(spent_s=30.0), "about 60 s to go"),
        (
            StepProgress(tokens=4000, reading_s=25.0, spent_s=30.0),
            "4,000 of 12,000 tokens read, about 60 s to go",
        ),
        # 21 s for two updates and a third look, that left a quarter: a half each, so a sixteenth takes two more.
        (
            StepProgress(12_000, 30.0, 2, 8, 0.25, 0.0625, 21.0, 51.0),
            "update 3 of at most 8, 25 % of the distance to the teacher left, about 14 s to go",
        ),
        (
            StepProgress(12_000, 30.0, 2, 3, 0.25, 0.0625, 21.0, 54.0),
            "update 3 of at most 3, 25 % of the distance to the teacher left, about 4 s to go",
        ),
    ],
)
def test_how_far_a_step_has_come_is_said_in_words(progress: StepProgress | None, words: str) -> None:
    assert progress_in_words(progress, UNDER_WAY) == words


def test_before_any_step_was_measured_nobody_says_how_long_it_takes() -> None:
    assert left_s(None, StepInProgress(1, 10.0, float("inf"))) is None
    assert Costs().seconds(Costs().work_of([sample("a")])) == float("inf")
