"""Replies that nobody corrected: how long they may ride, and that each rides once."""

from __future__ import annotations

from pathlib import Path

import pytest
from train_doubles import Following, rider
from train_flow import Flow, flowing

from openclaw_rl.core.hint import Hint, HintSource
from openclaw_rl.core.kept_hint import HintState, KeptHint
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.train.riders import Room, chosen, is_asked_for
from openclaw_rl.train.settings import Wants


def kept_hint(text: str, at_s: float) -> KeptHint:
    return KeptHint(text, "ann", text, HintSource.JUDGE, HintState.IN_USE, "asked for", at_s, at_s)


async def settle(flow: Flow) -> None:
    """Rounds until nothing moves, with long pauses between."""
    while await flow.stage.once():
        flow.now_s += 1000.0


@pytest.mark.parametrize(
    ("later", "rides"),
    [
        ([], True),
        ([("Answer in French.", 2.0)], True),
        ([("Please do not be brief.", 2.0)], False),  # asked for since
        ([("Please do not be brief.", 0.5)], True),  # what was asked for before it does not count
    ],
)
def test_a_rider_rides_while_what_it_rehearses_is_asked_for(later: list[tuple[str, float]], rides: bool) -> None:
    kept = {text: kept_hint(text, at_s) for text, at_s in [("Be brief.", 1.0), *later]}
    assert is_asked_for(rider("r", rehearses=("Be brief.",)), kept) is rides
    assert is_asked_for(rider("r"), kept)
    assert not is_asked_for(rider("r", rehearses=("Be brief.", "Be kind.")), kept)


def test_riders_take_no_more_tokens_than_there_is_room_for() -> None:
    plain, hinted = rider("plain"), rider("hinted", rehearses=("Be brief.",))  # of 5 tokens, and of 6 behind its hint
    assert chosen([plain, hinted], Room(9, 11)) == [plain, hinted]
    assert chosen([plain, hinted], Room(9, 10)) == [plain]
    assert chosen([hinted, plain], Room(9, 5)) == [plain]  # a smaller one still fits


async def test_a_rider_whose_hint_was_taken_back_is_dropped(tmp_path: Path) -> None:
    async with flowing(tmp_path, wants=Wants.HINT) as flow:
        flow.stage.entry.guide = Following(("Be brief.",))
        kept = await flow.store.hints.adopt("ann", Hint("Be brief."), turn=None, at_s=1.0)
        await flow.judged("good", 1)
        await flow.store.end_session("s1", why="idle", at_s=2.0)
        await settle(flow)
        assert flow.stage.status.riders == 1
        await flow.store.hints.remove(kept.id)
        await settle(flow)
        assert flow.stage.status.riders == 0
        assert await flow.state("good") is DropReason.NO_SIGNAL


async def test_a_rider_rides_once_and_is_settled_with_the_step(tmp_path: Path) -> None:
    async with flowing(tmp_path, wants=Wants.HINT) as flow:
        flow.stage.entry.guide = Following(("Be brief.",))
        await flow.store.hints.adopt("ann", Hint("Be brief."), turn=None, at_s=1.0)
        await flow.judged("good", 1)
        await flow.store.end_session("s1", why="idle", at_s=2.0)
        for name in ("a", "b", "c", "d"):
            await flow.judged(name, -1, hints=1, session_id="s2")
        await settle(flow)
        assert flow.trainer.batches == [["a", "b", "good"]]
        await flow.pass_gate(PolicyVersion(SHARED, 1))
        await settle(flow)
        assert flow.trainer.batches == [["a", "b", "good"], ["c", "d"]]
        assert await flow.state("good") is State.TRAINED
