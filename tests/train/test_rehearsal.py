"""Replies that nobody corrected: how long they may wait, that one step consumes each, and which are read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from train_doubles import STEPPED, Following, rehearsal
from train_flow import SETTINGS, Flow, flowing

from openclaw_rl.core.adapter import StepReport
from openclaw_rl.core.hint import NOT_LEARNED, Hint, HintSource, HintState, KeptHint
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.manifest import read_manifest
from openclaw_rl.core.sample import Wants
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.store.connection import NAME, open_writer
from openclaw_rl.store.forget.selection import learners
from openclaw_rl.store.mend.check import check_rows
from openclaw_rl.train.schedule import RehearsalBudget, again, chosen, is_asked_for, wished_since
from openclaw_rl.train.settings import TrainSettings


def kept_hint(text: str, at_s: float) -> KeptHint:
    return KeptHint(text, "ann", text, HintSource.JUDGE, HintState.IN_USE, "asked for", at_s, at_s)


async def settle(flow: Flow) -> None:
    """Rounds until nothing moves, with long pauses between."""
    while await flow.once():
        flow.now_s += 1000.0


@pytest.mark.parametrize(
    ("later", "is_rehearsed"),
    [
        ([], True),
        ([("Answer in French.", 2.0)], True),
        ([("Please do not be brief.", 2.0)], False),  # asked for since
        ([("Please do not be brief.", 0.5)], True),  # what was asked for before it does not count
    ],
)
def test_a_sample_is_rehearsed_while_its_hints_are_asked_for(
    later: list[tuple[str, float]], is_rehearsed: bool
) -> None:
    kept = {text: kept_hint(text, at_s) for text, at_s in [("Be brief.", 1.0), *later]}
    assert is_asked_for(rehearsal("r", rehearses=("Be brief.",)), kept) is is_rehearsed
    assert is_asked_for(rehearsal("r"), kept)
    assert not is_asked_for(rehearsal("r", rehearses=("Be brief.", "Be kind.")), kept)
    assert (
        is_asked_for(rehearsal("r", rehearses=("Please be brief!",)), kept) is is_rehearsed
    )  # the same in other words


def test_what_the_weights_could_not_learn_is_not_rehearsed() -> None:
    hint = replace(kept_hint("Be brief.", 1.0), why=NOT_LEARNED)
    assert not is_asked_for(rehearsal("r", rehearses=("Be brief.",)), {"Be brief.": hint})
    assert is_asked_for(rehearsal("r", rehearses=("Be kind.",)), {"Be kind.": kept_hint("Be kind.", 1.0), "": hint})


def test_rehearsals_take_no_more_tokens_than_there_is_room_for() -> None:
    plain, hinted = (
        rehearsal("plain"),
        rehearsal("hinted", rehearses=("Be brief.",)),
    )  # of 5 tokens, and of 6 behind its hint
    assert chosen([plain, hinted], RehearsalBudget(9, 11)) == [plain, hinted]
    assert chosen([plain, hinted], RehearsalBudget(9, 10)) == [plain]
    assert chosen([hinted, plain], RehearsalBudget(9, 5)) == [plain]  # a smaller one still fits


async def test_a_rehearsal_whose_hint_was_taken_back_is_dropped(hinted: Flow) -> None:
    hinted.asks(base=Following(("Be brief.",)))
    kept = await hinted.store.hints.adopt("ann", Hint("Be brief."), turn=None, at_s=1.0)
    await hinted.judged("good", 1)
    await hinted.store.end_session("s1", why="idle", at_s=2.0)
    await settle(hinted)
    assert hinted.stage.status.rehearsals == 1
    await hinted.store.hints.remove(kept.id)
    await settle(hinted)
    assert hinted.stage.status.rehearsals == 0
    assert await hinted.state("good") is DropReason.NO_SIGNAL


def test_of_those_that_rode_each_kind_has_its_turn_and_in_it_each_reply() -> None:
    of = {"a1": "a", "a2": "a", "b1": "b", "c1": "c", "c2": "c", "c3": "c"}
    earlier = [rehearsal(name, rehearses=(kind,)) for name, kind in of.items()]
    tried = [[one.turn for one in again(earlier, number, 2)] for number in range(12)]
    assert tried[0] == ["a1", "b1", "c1", "a2", "c2"]  # two to be read, and others in case these do not hold
    read = [name for names in tried for name in names[:2]]
    assert {name: read.count(name) for name in of} == {"a1": 4, "a2": 4, "b1": 8, "c1": 3, "c2": 3, "c3": 2}
    assert again([], 3, 4) == [] and again(earlier[:1], 3, 4) == earlier[:1]


@pytest.mark.parametrize(
    ("text", "made_s", "may_speak"),
    [
        ("In grades: Be brief.", 9.0, False),  # what it rehearses itself, asked for again
        ("In grades: Be brief, please.", 9.0, False),  # in other words
        ("In comments: Be kind.", 9.0, False),  # about another kind of task
        ("In grades: Say hello.", 9.0, True),
        ("Say hello.", 9.0, True),
        ("Say hello.", 1.0, False),  # asked for before, and it was accepted all the same
    ],
)
def test_what_was_wished_since_a_reply_was_given_may_speak_against_it(
    text: str, made_s: float, may_speak: bool
) -> None:
    kept = {text: kept_hint(text, made_s)}
    found = wished_since(rehearsal("r", rehearses=("In grades: Be brief.",)), 5.0, kept)
    assert found == ([text] if may_speak else [])
    # Nobody knows what one that follows no hint was for.
    assert wished_since(rehearsal("r"), 5.0, kept) == ([text] if made_s > 5.0 else [])


async def taught(flow: Flow) -> None:
    """One good reply that follows a kept hint, and four corrections, which make two steps."""
    flow.asks(base=Following(("Be brief.",)))
    await flow.judged("good", 1)
    await flow.store.end_session("s1", why="idle", at_s=2.0)
    for name in ("a", "b", "c", "d"):
        await flow.judged(name, -1, hints=1, session_id="s2")
    await settle(flow)


async def test_a_rehearsal_is_consumed_by_one_step_and_read_again_by_the_next(tmp_path: Path) -> None:
    async with flowing(tmp_path, wants=Wants.HINT) as flow:
        await flow.store.hints.adopt("ann", Hint("Be brief."), turn=None, at_s=1.0)
        await taught(flow)
        assert flow.trainer.batches == [["a", "b", "good"]]
        await flow.pass_gate(PolicyVersion(SHARED, 1))
        await settle(flow)
        assert flow.trainer.batches == [["a", "b", "good"], ["c", "d", "good"]]
        assert await flow.state("good") is State.TRAINED
        first, second = (row for row in await flow.store.versions() if not row.version.is_base)
        assert (first.turns, first.rehearsed) == (("a", "b", "good"), ())
        assert (second.turns, second.rehearsed, second.read) == (("c", "d"), ("good",), ("c", "d", "good"))
        assert second.folder is not None
        manifest = read_manifest(second.folder)
        assert (manifest.turns, manifest.rehearsed, manifest.samples) == (("c", "d"), ("good",), 3)
        alone = replace(second, parent=None)  # whoever forgets the reply forgets what read it again, too
        assert learners([alone], ["good"]) == (alone,)
    sql = open_writer(tmp_path / NAME)
    assert check_rows(sql, repair=False) == []
    sql.close()


@pytest.mark.parametrize(
    ("wish", "is_read"),
    [("Say hello.", True), ("Not that, say hello.", False), ("?", False)],
    ids=["beside", "against", "unknown"],
)
async def test_it_is_not_read_again_where_a_later_wish_speaks_against_it(
    hinted: Flow, wish: str, is_read: bool
) -> None:
    await hinted.store.hints.adopt("ann", Hint("Be brief."), turn=None, at_s=1.0)
    await taught(hinted)
    await hinted.store.hints.adopt("ann", Hint(wish), turn=None, at_s=1e9)
    await hinted.pass_gate(PolicyVersion(SHARED, 1))
    await settle(hinted)
    assert hinted.trainer.batches[1] == (["c", "d", "good"] if is_read else ["c", "d"])


async def test_nor_of_somebody_who_may_not_teach_any_more(hinted: Flow) -> None:
    await hinted.store.hints.adopt("ann", Hint("Be brief."), turn=None, at_s=1.0)
    await taught(hinted)
    hinted.rules(may_teach=lambda turn: False)
    await hinted.pass_gate(PolicyVersion(SHARED, 1))
    await settle(hinted)
    assert hinted.trainer.batches[1] == ["c", "d"]


async def test_a_failure_may_be_that_of_what_was_read_again(tmp_path: Path) -> None:
    """The one sample that teaches is not blamed: it is tried without it before anything was given up."""
    async with flowing(tmp_path, wants=Wants.HINT, settings=replace(SETTINGS, batch_size=1, min_batch=1)) as flow:
        await flow.store.hints.adopt("ann", Hint("Be brief."), turn=None, at_s=1.0)
        flow.trainer.answer = lambda samples: (
            StepReport(False, {}, why="a loss is not finite")
            if samples[-1].turn == "good" and len(samples) == 2 and samples[0].turn == "b"
            else STEPPED
        )
        await taught(flow)
        await flow.pass_gate(PolicyVersion(SHARED, 1))
        await settle(flow)
        assert flow.trainer.batches == [["a", "good"], ["b", "good"], ["b"]]
        assert await flow.state("b") is State.TRAINED


async def test_nor_is_it_read_again_once_its_hint_was_taken_back(hinted: Flow) -> None:
    kept = await hinted.store.hints.adopt("ann", Hint("Be brief."), turn=None, at_s=1.0)
    await taught(hinted)
    await hinted.store.hints.remove(kept.id)
    await hinted.pass_gate(PolicyVersion(SHARED, 1))
    await settle(hinted)
    assert hinted.trainer.batches[1:] == [["c", "d"]]


@pytest.mark.parametrize("settings", [replace(SETTINGS, rehearse_again=0), replace(SETTINGS, rehearsal_samples=0)])
async def test_without_room_or_where_each_rides_once_nothing_is_read_again(
    tmp_path: Path, settings: TrainSettings
) -> None:
    async with flowing(tmp_path, wants=Wants.HINT, settings=settings) as flow:
        await flow.store.hints.adopt("ann", Hint("Be brief."), turn=None, at_s=1.0)
        await taught(flow)
        await flow.pass_gate(PolicyVersion(SHARED, 1))
        await settle(flow)
        assert flow.trainer.batches[1] == ["c", "d"]


async def test_what_was_forgotten_while_a_step_read_it_again_makes_no_version(hinted: Flow) -> None:
    await hinted.store.hints.adopt("ann", Hint("Be brief."), turn=None, at_s=1.0)
    await taught(hinted)
    await hinted.pass_gate(PolicyVersion(SHARED, 1))

    async def erased() -> None:
        await hinted.store.erase_older(before_s=1e12)

    hinted.trainer.before_export = erased
    await hinted.once()
    assert [row.version.number for row in await hinted.store.versions()] == [0, 1]
