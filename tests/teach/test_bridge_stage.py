"""A hint retires when the weights say the same without it, on what was said behind it and on what they say alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio
from carry_doubles import BARE, WISHED, Wishful, label_renderer

from openclaw_rl.core.completion import Completion, Finish
from openclaw_rl.core.hint import Carry, Hint
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.teach.bridge import BridgeStage
from openclaw_rl.teach.in_use import HintsInUse
from openclaw_rl.teach.placing import placed
from openclaw_rl.teach.probes import Prober
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.turns import a_turn

WISH = Hint("Write plain sentences.")
SETTINGS = TeachSettings(probes=2, retire_gap=0.05)


@dataclass
class Bridge:
    """The stage over a real store, with weights that change by number."""

    store: Store
    mind: Wishful
    engine: ScriptedEngine
    stage: BridgeStage
    version: int = 0

    async def served(self, name: str, *, score: int | None = 1, says: int = WISHED, asked: str = "") -> Turn:
        """A turn behind whatever hints are in use, judged unless `score` is None."""
        messages = (message(Role.USER, asked or f"question {name}"),)
        carried = placed(messages, await self.stage.hints.of_user("alice"), None)
        made = replace(a_turn(name, messages), carried=carried)
        tokens = (says,) * 3
        completion = Completion(tokens, (-0.1,) * 3, (-0.1,) * 3, PolicyVersion("shared", self.version), Finish.STOP)
        turn = replace(made, prompt=self.stage.renderer.prompt(made.read, (), None), completion=completion)
        await self.store.add_turn(turn, chain=name)
        if score is not None:
            await self.store.pair(NextState(name, (message(Role.USER, "ok"),), NextStateSource.USER))
            await self.store.judge(Verdict(name, score, VerdictSource.VOTES))
        return turn

    async def retire(self) -> None:
        """The wish is in use, and retires in one pass: the weights follow it without it."""
        self.mind.follows = {0}
        await self.store.hints.adopt("alice", WISH, at_s=1.0)
        for name in ("a", "b"):
            await self.served(name)
        await self.stage.once()

    async def states(self) -> list[tuple[str, str]]:
        return [(item.text, item.state.value) for item in await self.store.hints.of_user("alice")]


@pytest_asyncio.fixture
async def bridge(tmp_path: Path) -> AsyncIterator[Bridge]:
    store = await Store.open(tmp_path)
    mind, renderer = Wishful(), label_renderer()
    engine = mind.engine()

    async def current(turn: Turn) -> PolicyVersion:
        return PolicyVersion("shared", made.version)

    hints = HintsInUse(store, Carry.BRIDGE, SETTINGS, len)
    stage = BridgeStage(store, hints, Prober(engine, current, (), SETTINGS), renderer, SETTINGS, now=lambda: 9.0)
    made = Bridge(store, mind, engine, stage)
    yield made
    await store.aclose()


async def test_a_hint_stays_while_the_weights_need_it_and_retires_when_they_do_not(bridge: Bridge) -> None:
    await bridge.store.hints.adopt("alice", WISH, at_s=1.0)
    for name in ("a", "b"):
        await bridge.served(name)
    assert await bridge.stage.has_work() and await bridge.stage.once()
    assert await bridge.states() == [(WISH.text, "in_use")]
    # -0.1 behind the hint, -2.1 without it
    assert "2.000 nats a token" in bridge.stage.status.last
    assert not await bridge.stage.has_work() and not await bridge.stage.once()  # nothing has changed
    bridge.version, bridge.mind.follows = 1, {1}
    assert await bridge.stage.has_work() and await bridge.stage.once()
    (kept,) = await bridge.store.hints.of_user("alice")
    assert not kept.is_in_use and kept.changed_s == 9.0
    assert kept.why.startswith("version shared.1 follows without it: it is worth 0.000 nats a token, and would have")
    assert (await bridge.stage.status_now()).retired == 1
    assert (await bridge.served("c")).carried == ()


async def test_it_comes_back_when_the_user_asks_again(bridge: Bridge) -> None:
    await bridge.retire()
    assert await bridge.states() == [(WISH.text, "retired")]
    await bridge.store.hints.adopt("alice", Hint("Plain sentences, please!"), at_s=2000.0)
    assert await bridge.states() == [(WISH.text, "in_use")]  # its own words say all of it
    assert [item.text for item in (await bridge.served("c")).carried] == [WISH.text]
    await bridge.stage.once()
    assert await bridge.states() == [(WISH.text, "in_use")]  # what was served before did not keep it from being asked


@pytest.mark.parametrize("score", [-1, None])
async def test_what_was_found_bad_or_not_judged_is_no_sign_of_having_been_learned(
    bridge: Bridge, score: int | None
) -> None:
    bridge.mind.follows = {0}
    await bridge.store.hints.adopt("alice", WISH, at_s=1.0)
    await bridge.served("good")
    for name in ("a", "b", "c"):
        await bridge.served(name, score=score)
    await bridge.stage.once()
    assert await bridge.states() == [(WISH.text, "in_use")]


# A reply has 3 tokens, and one that the hint makes 2 nats less likely is one that it would have prevented.
@pytest.mark.parametrize(("gap", "state"), [(2.0, "in_use"), (0.7, "in_use"), (0.6, "retired")])
async def test_a_reply_that_the_hint_would_have_prevented_keeps_it(bridge: Bridge, gap: float, state: str) -> None:
    # What was served is what the base says anyway, so on it the hint is worth nothing (less, even); but left to
    # themselves the weights say BARE, which the hint makes less likely.
    bridge.mind.gap = gap
    await bridge.store.hints.adopt("alice", WISH, at_s=1.0)
    for name in ("a", "b"):
        await bridge.served(name, says=BARE)
    await bridge.stage.once()
    assert bridge.engine.asked and await bridge.states() == [(WISH.text, state)]


async def test_the_same_request_again_tells_nothing_new(bridge: Bridge) -> None:
    bridge.mind.follows = {0}
    await bridge.store.hints.adopt("alice", WISH, at_s=1.0)
    for name in ("a", "b", "c"):
        await bridge.served(name, asked="the same question")
    await bridge.stage.once()
    assert await bridge.states() == [(WISH.text, "in_use")]
    await bridge.served("d")
    await bridge.stage.once()
    assert await bridge.states() == [(WISH.text, "retired")]


async def test_of_two_hints_each_is_tried_without_the_other_being_taken_away(bridge: Bridge) -> None:
    await bridge.store.hints.adopt("alice", WISH, at_s=1.0)
    await bridge.store.hints.adopt("alice", Hint("Explain every step."), at_s=2.0)
    turn = await bridge.served("a")
    await bridge.served("b")
    await bridge.stage.once()
    # Either alone makes these weights say what both do, so one of them is enough; both at once are not let go.
    assert len(turn.carried) == 2
    assert [state for _, state in await bridge.states()].count("in_use") == 1


async def test_an_engine_that_is_away_decides_nothing(bridge: Bridge) -> None:
    bridge.mind.follows, bridge.engine.is_away = {0}, True
    await bridge.store.hints.adopt("alice", WISH, at_s=1.0)
    for name in ("a", "b"):
        await bridge.served(name)
    await bridge.stage.once()
    assert await bridge.states() == [(WISH.text, "in_use")]
    bridge.engine.is_away = False
    await bridge.stage.once()
    assert await bridge.states() == [(WISH.text, "retired")]


async def test_the_student_is_asked_for_its_own_words_once(bridge: Bridge) -> None:
    await bridge.store.hints.adopt("alice", WISH, at_s=1.0)
    turn = await bridge.served("a")
    bare = bridge.stage.renderer.prompt(turn.messages, (), None)
    prober = bridge.stage.prober
    assert not await prober.follows(turn, bare)
    own = await prober.reply(turn, bare)
    assert own is not None and own.tokens == (BARE,) * 3
    assert await prober.reply(turn, bare) == own and len(bridge.engine.asked) == SETTINGS.replies
    bridge.version, bridge.mind.follows = 1, {1}
    assert await prober.follows(turn, bare)
    off = replace(prober, settings=replace(SETTINGS, own_replies=False))
    assert await off.reply(turn, bare) is None


async def test_the_teacher_also_reads_what_else_was_asked_for(bridge: Bridge) -> None:
    kept = await bridge.store.hints.adopt("alice", WISH, at_s=1.0)
    turn = await bridge.served("a")
    await bridge.store.hints.adopt("alice", Hint("Explain every step."), at_s=2.0)
    old = await bridge.store.hints.adopt("alice", Hint("Use metric units."), at_s=3.0)
    await bridge.store.hints.retire(old.id, why="learned", at_s=4.0)
    beside = await bridge.stage.hints.beside(turn)
    assert [(item.at, item.text) for item in beside] == [(0, "Explain every step."), (0, "Use metric units.")]
    assert kept.id not in {item.id for item in beside}
    alone = replace(bridge.stage.hints, settings=replace(SETTINGS, rehearse=False))
    assert await alone.beside(turn) == ()


async def test_a_hint_that_changes_nothing_goes_out_of_prompts_and_is_not_read_beside_others(bridge: Bridge) -> None:
    turn = await bridge.served("a")
    other = Hint("Say hello first.")
    await bridge.store.hints.adopt("alice", WISH, at_s=1.0, turn=turn.id)
    await bridge.store.hints.adopt("alice", other, at_s=1.0, turn=(await bridge.served("b")).id)
    await bridge.stage.hints.give_up(turn)
    assert await bridge.states() == [(WISH.text, "retired"), (other.text, "in_use")]
    assert [item.text for item in await bridge.stage.hints.of_user("alice")] == [other.text]
    assert [item.text for item in await bridge.stage.hints.beside(await bridge.served("c"))] == []
    bare = replace(a_turn("d", (message(Role.USER, "question d"),)), carried=())
    assert [item.text for item in await bridge.stage.hints.beside(bare)] == [other.text]
    await bridge.store.hints.adopt("alice", WISH, at_s=2.0, turn=turn.id)  # asked for again
    assert (WISH.text, "in_use") in await bridge.states()


async def test_a_memory_keeps_what_changes_nothing(bridge: Bridge) -> None:
    turn = await bridge.served("a")
    await bridge.store.hints.adopt("alice", WISH, at_s=1.0, turn=turn.id)
    bridge.stage.hints.carry = Carry.MEMORY
    await bridge.stage.hints.give_up(turn)
    assert await bridge.states() == [(WISH.text, "in_use")]


async def test_a_hint_goes_where_all_that_it_brought_about_was_corrected(bridge: Bridge) -> None:
    await bridge.store.hints.adopt("alice", WISH, at_s=0.5)
    await bridge.served("a", score=-1)
    await bridge.served("b", score=-1, says=BARE)  # as it is said without the hint: no doing of its
    await bridge.served("c", score=1, says=BARE)
    await bridge.stage.once()
    assert await bridge.states() == [(WISH.text, "in_use")]
    await bridge.served("d", score=-1)
    assert await bridge.stage.once()
    assert await bridge.states() == [(WISH.text, "retired")]
    [kept] = await bridge.store.hints.of_user("alice")
    assert kept.why == "all recent replies that it caused were corrected"


async def test_a_hint_stays_that_helped_once_or_is_asked_for_again(bridge: Bridge) -> None:
    await bridge.store.hints.adopt("alice", WISH, at_s=0.5)
    for name, score in (("a", -1), ("b", 1), ("c", -1), ("d", -1), ("e", -1)):
        await bridge.served(name, score=score)
    await bridge.stage.once()
    assert await bridge.states() == [(WISH.text, "in_use")]
    await bridge.store.hints.remove((await bridge.store.hints.of_user("alice"))[0].id)
    other = Hint("Say hello first.")
    await bridge.store.hints.adopt("alice", other, at_s=0.5)
    await bridge.served("f", score=-1)
    await bridge.store.hints.adopt("alice", other, at_s=1e12)  # those before do not count: it was missed
    await bridge.served("g", score=-1)
    await bridge.stage.once()
    assert await bridge.states() == [(other.text, "in_use")]


async def test_of_what_is_forgotten_no_prompt_and_no_sampled_reply_is_kept(bridge: Bridge) -> None:
    await bridge.retire()
    held = bridge.stage.prober._last
    assert held is not None and held.replies
    bridge.stage.let_go()
    assert bridge.stage.prober._last is None


async def test_with_weights_the_status_counts_the_hints_that_they_could_not_learn(bridge: Bridge) -> None:
    for name, text in (("t1", "Write plain sentences."), ("t2", "Call me Al.")):
        await bridge.store.add_turn(a_turn(name, f"question {name}", user="alice"), chain=name)
        await bridge.store.hints.adopt("alice", Hint(text), at_s=1.0, turn=name)
    bridge.stage.hints = HintsInUse(bridge.store, Carry.WEIGHTS, SETTINGS, len)
    assert (await bridge.stage.status_now()).in_use == 0
    await bridge.store.hints.leave_to_prompts(["t1"])
    status = await bridge.stage.status_now()
    assert (status.kept, status.in_use, status.retired) == (2, 1, 0)
