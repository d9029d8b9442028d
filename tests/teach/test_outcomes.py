"""Which steps of episodes become samples, when, and with which rewards beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from carry_doubles import label_renderer

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.episode import Episode, EpisodeEnd, EpisodeStep, FailureClass
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.sample import Peer, Wants
from openclaw_rl.core.turn import Turn
from openclaw_rl.store.db import Store
from openclaw_rl.teach.outcomes import OutcomeStage, peers_of, sharing
from openclaw_rl.teach.rules import LearningRules
from openclaw_rl.teach.settings import EpisodeSettings, StepGrouping
from openclaw_rl.testing.turns import a_turn
from openclaw_rl.trainers.lessons import rl_advantages

SETTINGS = EpisodeSettings(group_wait_s=60.0, idle_s=600.0)


@dataclass
class World:
    store: Store
    now_s: float = 1000.0

    def stage(
        self, settings: EpisodeSettings = SETTINGS, *, coefficient: float = 1.0, teach: bool = True
    ) -> OutcomeStage:
        rules = LearningRules(Wants.HINT, may_teach=lambda turn: teach)
        return OutcomeStage(self.store, label_renderer(), settings, rules, coefficient, now=lambda: self.now_s)

    async def episode(self, name: str, steps: int = 1, *, group: str | None = "g", size: int | None = 4) -> None:
        await self.store.episodes.begin(
            Episode(f"key:{name}", "alice", "pens", self.now_s, group=group, group_size=size)
        )
        for index in range(steps):
            await self.step(name, index)

    async def step(self, name: str, index: int, **more: Finish) -> Turn:
        made = a_turn(f"{name}{index}", f"{name} sees {index}", session=f"key:{name}", at_s=self.now_s, **more)
        turn = replace(made, step=EpisodeStep(f"key:{name}", index, "terminal"))
        reason = DropReason.CUT_BY_LENGTH if turn.completion.finish is Finish.LENGTH else None
        assert await self.store.add_turn(turn, chain=turn.id, prefix=f"asked {turn.id}", reason=reason)
        return turn

    async def end(self, name: str, outcome: float | None, failure: str = "none", *, closes: bool = False) -> None:
        ended = EpisodeEnd(outcome, FailureClass(failure), "graded", closes)
        await self.store.episodes.end(f"key:{name}", ended, at_s=self.now_s)

    async def states(self) -> dict[str, str]:
        rows = await self.store.history(limit=100)
        return {row.turn.id: str(row.reason or row.state) for row in rows}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = await Store.open(tmp_path)
    yield World(store)
    await store.aclose()


async def test_a_complete_group_becomes_samples_that_bring_the_rewards_of_all(world: World) -> None:
    for name, outcome in zip("abcd", (1.0, 0.0, 0.0, 1.0), strict=True):
        await world.episode(name)
        await world.end(name, outcome)
    assert await world.stage().once()
    ready = await world.store.ready(limit=9)
    assert [sample.turn for sample in ready] == ["a0", "b0", "c0", "d0"]
    peers = (Peer("a0", 1.0, None), Peer("b0", 0.0, None), Peer("c0", 0.0, None), Peer("d0", 1.0, None))
    assert all(sample.peers == peers for sample in ready)
    assert [sample.outcome.reward for sample in ready if sample.outcome is not None] == [1.0, 0.0, 0.0, 1.0]
    assert not await world.stage().once()  # nothing twice


async def test_steps_are_compared_by_index_or_with_all_of_the_task(world: World) -> None:
    for name, steps, outcome in (("a", 2, 1.0), ("b", 1, 0.0)):
        await world.episode(name, steps, size=2)
        await world.end(name, outcome)
    await world.stage().once()
    by_index = {sample.turn: [peer.turn for peer in sample.peers] for sample in await world.store.ready(limit=9)}
    assert by_index == {"a0": ["a0", "b0"], "b0": ["a0", "b0"], "a1": ["a1"]}
    for name, steps, outcome in (("c", 2, 1.0), ("d", 1, 0.0)):
        await world.episode(name, steps, size=2, group="h")
        await world.end(name, outcome)
    await world.stage(replace(SETTINGS, grouping=StepGrouping.TASK)).once()
    by_task = {sample.turn: [peer.turn for peer in sample.peers] for sample in await world.store.ready(limit=9)}
    assert by_task["c0"] == by_task["c1"] == by_task["d0"] == ["c0", "c1", "d0"]


async def test_a_group_without_spread_is_dropped_with_that_reason_and_a_step_score_gives_it_one(world: World) -> None:
    for name in "ab":
        await world.episode(name, size=2)
        await world.end(name, 1.0)
    await world.stage().once()
    assert await world.states() == {"a0": "no_spread", "b0": "no_spread"}
    for name in "cd":
        await world.episode(name, size=2, group="h")
    await world.store.episodes.report_step("key:c", 0, score=0.5)
    for name in "cd":
        await world.end(name, 1.0)
    await world.stage(coefficient=0.0).once()  # the coefficient takes the score away again
    assert (await world.states())["c0"] == "no_spread"
    for name in "ef":
        await world.episode(name, size=2, group="i")
    await world.store.episodes.report_step("key:e", 0, score=0.5)
    for name in "ef":
        await world.end(name, 1.0)
    await world.stage().once()
    assert [(one.turn, one.score) for one in await world.store.ready(limit=9)] == [("e0", 0.5), ("f0", None)]


async def test_what_a_machine_failed_is_masked_at_once_and_its_place_may_be_taken(world: World) -> None:
    for name in "abc":
        await world.episode(name, size=3)
    await world.end("a", 1.0)
    await world.end("b", 0.0, "infrastructure")
    await world.end("c", None, "agent")  # counts as 0
    stage = world.stage()
    await stage.once()
    assert await world.states() == {"a0": "judged", "b0": "infrastructure_failed", "c0": "judged"}
    assert stage.status.masked == 1 and "2 of 3 are graded" in stage.status.why_waiting[0]
    await world.episode("d", size=3)
    await world.end("d", 1.0)
    await stage.once()
    ready = {sample.turn: sample for sample in await world.store.ready(limit=9)}
    assert ready.keys() == {"a0", "c0", "d0"}
    assert [(peer.turn, peer.outcome) for peer in ready["a0"].peers] == [("a0", 1.0), ("c0", 0.0), ("d0", 1.0)]
    counts = await world.store.episodes.counts()
    assert (counts["settled"], counts["failure.infrastructure"], counts["failure.agent"]) == (4, 1, 1)


async def test_an_incomplete_group_waits_with_a_reason_and_no_longer_than_its_bound(world: World) -> None:
    await world.episode("a")
    await world.episode("b")
    await world.end("a", 1.0)
    stage = world.stage()
    assert not await stage.once()
    assert stage.status.why_waiting == (
        "task pens, group g: 1 of 4 are graded, 1 still open; learned from incomplete in 60 s unless something happens",
    )
    world.now_s += 30.0
    await world.end("b", 0.0)
    world.now_s += 59.0
    assert not await stage.once()  # counted from what happened last
    world.now_s += 1.0
    assert await stage.once() and stage.status.waiting == 0
    assert [sample.turn for sample in await world.store.ready(limit=9)] == ["a0", "b0"]


async def test_a_group_can_be_closed_and_an_episode_without_a_group_waits_for_nobody(world: World) -> None:
    for name in "ab":
        await world.episode(name, size=None)
    await world.end("a", 1.0)
    await world.end("b", 0.0, closes=True)
    await world.episode("alone", group=None, size=None)
    await world.end("alone", 0.25)
    await world.episode("nought", group=None, size=None)
    await world.end("nought", 0.0)
    await world.stage().once()
    ready = {sample.turn: len(sample.peers) for sample in await world.store.ready(limit=9)}
    assert ready == {"a0": 2, "b0": 2, "alone0": 1}
    assert (await world.states())["nought0"] == "no_signal"


async def test_an_episode_of_which_nothing_is_heard_ends_as_a_failure_of_the_infrastructure(world: World) -> None:
    await world.episode("a")
    world.now_s += 599.0
    assert not await world.stage().once()
    world.now_s += 2.0
    await world.stage().once()
    row = await world.store.episodes.get("key:a")
    assert row is not None and row.episode.failure is FailureClass.INFRASTRUCTURE
    assert "600 s" in row.episode.why and await world.states() == {"a0": "infrastructure_failed"}


async def test_half_a_group_settled_before_a_restart_changes_nothing_for_the_other_half(world: World) -> None:
    for name, outcome in zip("abcd", (1.0, 0.0, 0.0, 1.0), strict=True):
        await world.episode(name)
        await world.end(name, outcome)
    stage = world.stage()
    rows = await world.store.episodes.of_group((await world.store.episodes.waiting_groups())[0])
    for row in rows[:2]:  # as far as a process came that was killed then
        assert await stage.settle(row, peers_of(rows, StepGrouping.STEP_INDEX))
    assert await world.stage().once()
    ready = await world.store.ready(limit=9)
    assert [sample.turn for sample in ready] == ["a0", "b0", "c0", "d0"]
    assert len({sample.peers for sample in ready}) == 1 and len(ready[0].peers) == 4
    assert not await world.store.episodes.settle("key:a", [], [])  # settled once


async def test_a_cut_answer_is_no_sample_but_its_reward_counts_among_its_peers(world: World) -> None:
    await world.episode("a", size=2)
    await world.store.episodes.begin(Episode("key:b", "alice", "pens", 1000.0, group="g", group_size=2))
    await world.step("b", 0, finish=Finish.LENGTH)
    await world.end("a", 1.0)
    await world.end("b", 0.0)
    await world.stage().once()
    (sample,) = await world.store.ready(limit=9)
    assert sample.turn == "a0" and [(peer.turn, peer.outcome) for peer in sample.peers] == [("a0", 1.0), ("b0", 0.0)]


async def test_who_may_not_teach_gives_no_sample(world: World) -> None:
    for name, outcome in (("a", 1.0), ("b", 0.0)):
        await world.episode(name, size=2)
        await world.end(name, outcome)
    await world.stage(teach=False).once()
    assert await world.states() == {"a0": "may_not_teach", "b0": "may_not_teach"}
    assert (await world.store.counts())[State.READY] == 0


async def test_an_episode_with_an_overlong_reply_earns_less(world: World) -> None:
    settings = replace(SETTINGS, overlong_tokens=20, overlong_cache=10)
    lengths = {"a": 10, "b": 15, "c": 20, "d": 40}
    for name, length in lengths.items():
        episode = Episode(f"key:{name}", "alice", "pens", world.now_s, group="g", group_size=4)
        await world.store.episodes.begin(episode)
        made = a_turn(f"{name}0", f"{name} sees", "x" * (length - 1), session=f"key:{name}", at_s=world.now_s)
        turn = replace(made, step=EpisodeStep(f"key:{name}", 0, "terminal"))
        is_cut = name == "d"
        assert len(turn.completion.tokens) == length
        reason = DropReason.CUT_BY_LENGTH if is_cut else None
        assert await world.store.add_turn(turn, chain=turn.id, prefix=f"asked {turn.id}", reason=reason)
        await world.end(name, 1.0)
    await world.stage(settings).once()
    ready = {sample.turn: sample for sample in await world.store.ready(limit=9)}
    assert set(ready) == {"a0", "b0", "c0"}  # a cut reply is no sample, but counts
    # 0 up to 10 tokens, then linear: 15 tokens cost 1/2, 20 and more cost 1
    assert [peer.outcome for peer in ready["a0"].peers] == [1.0, 0.5, 0.0, 0.0]
    assert [sample.outcome.reward for sample in ready.values() if sample.outcome is not None] == [1.0, 0.5, 0.0]
    assert all(sample.outcome is not None and sample.outcome.is_success for sample in ready.values())


async def test_by_situation_a_sample_says_how_far_each_peers_reply_begins_as_its_own(world: World) -> None:
    said = {"a": ("look", "abcd"), "b": ("look", "abxy"), "c": ("look", "q"), "d": ("other words", "abcd")}
    for name, (asked, reply) in said.items():
        episode = Episode(f"key:{name}", "alice", "pens", world.now_s, group="g", group_size=4)
        await world.store.episodes.begin(episode)
        made = a_turn(f"{name}0", asked, reply, session=f"key:{name}", at_s=world.now_s)
        assert await world.store.add_turn(
            replace(made, step=EpisodeStep(f"key:{name}", 0, "terminal")), chain=f"{name}0", prefix=f"asked {name}"
        )
        await world.end(name, float(name in "ad"))
    await world.stage(replace(SETTINGS, grouping=StepGrouping.SITUATION)).once()
    ready = {sample.turn: sample for sample in await world.store.ready(limit=9)}
    assert {peer.turn: peer.shared for peer in ready["a0"].peers} == {
        "a0": len(ready["a0"].response), "b0": 2, "c0": 0
    }  # fmt: skip


def test_replies_to_another_prompt_share_nothing_with_a_sample() -> None:
    turns = {"a": a_turn("a", "look", "abcd"), "b": a_turn("b", "look", "abxy"), "c": a_turn("c", "other", "abcd")}
    peers = tuple(Peer(name, 1.0, None) for name in (*turns, "gone"))
    length = len(turns["a"].completion.tokens)
    assert [peer.shared for peer in sharing("a", peers, turns)] == [length, 2, 0, 0]
    assert sharing("gone", peers, turns) == peers


async def test_by_episode_each_of_the_others_counts_once_however_long_it_was(world: World) -> None:
    for name, steps, outcome in (("a", 3, 1.0), ("b", 1, 0.0), ("c", 2, 0.0)):
        await world.episode(name, steps, size=3)
        if name == "a":
            await world.store.episodes.report_step("key:a", 1, score=0.5)
        await world.end(name, outcome)
    await world.stage(replace(SETTINGS, grouping=StepGrouping.EPISODE)).once()
    ready = {sample.turn: sample for sample in await world.store.ready(limit=9)}
    assert [peer.turn for peer in ready["a1"].peers] == ["a1", "b0", "c0"]
    assert [(peer.outcome, peer.score) for peer in ready["b0"].peers] == [(1.0, None), (0.0, None), (0.0, None)]
    # outcomes 1, 0, 0: mean 1/3, standard deviation sqrt(2)/3, for every step of an episode alike
    found = dict(zip(ready, rl_advantages([*ready.values()], 0.0), strict=True))
    assert found == pytest.approx(
        dict.fromkeys(("a0", "a1", "a2"), 2**0.5) | dict.fromkeys(("b0", "c0", "c1"), -(2**-0.5))
    )
