"""Corrections that say the same again, one after the other, in a real store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from train_doubles import Following, next_of, turn, verdict
from train_flow import Flow, flowing

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.sample import Wants
from openclaw_rl.core.version import BASE, PolicyVersion

NEXT = PolicyVersion("shared", 1)


async def corrected(
    flow: Flow, name: str, *, parent: str | None = None, version: PolicyVersion = BASE, hint: int = 1, score: int = -1
) -> None:
    """Brings a turn up to its verdict, with one hint, or none if that is 0."""
    said = replace(turn(name, at_s=float(len(name)), version=version), parent=parent)
    await flow.store.add_turn(said, chain=name)
    assert await flow.store.pair(next_of(name))
    found = verdict(name, score, hints=hint, mean=float(score))
    assert await flow.store.judge(replace(found, hints=found.hints[-1:] if hint else ()))


async def taught(flow: Flow) -> list[str]:
    while await flow.teach.once():
        pass
    return [sample.turn for sample in await flow.store.ready(limit=9)]


async def test_a_correction_in_the_same_words_of_the_same_version_is_learned_once(hinted: Flow) -> None:
    hinted.asks(base=Following(()))
    await corrected(hinted, "a")
    await corrected(hinted, "bb", parent="a")
    await corrected(hinted, "ccc", parent="bb")
    assert await taught(hinted) == ["a"]
    assert [await hinted.state(name) for name in ("bb", "ccc")] == [DropReason.SAID_BEFORE] * 2


@pytest.mark.parametrize(
    "later",
    [{"hint": 2}, {"version": NEXT}, {"parent": None}],
    ids=["in other words", "of a version that may have learned from the first", "in another conversation"],
)
async def test_a_correction_that_says_something_new_is_learned_from_as_well(
    hinted: Flow, later: dict[str, object]
) -> None:
    hinted.asks(base=Following(()))
    await corrected(hinted, "a")
    await corrected(hinted, "bb", **{"parent": "a", **later})  # type: ignore[arg-type]
    assert await taught(hinted) == ["a", "bb"]


async def test_nor_is_one_said_before_if_a_reply_in_between_was_good_or_the_first_was_dropped(hinted: Flow) -> None:
    hinted.asks(base=Following(()))
    await corrected(hinted, "a")
    await corrected(hinted, "bb", parent="a", hint=0, score=1)
    await corrected(hinted, "ccc", parent="bb")
    assert "ccc" in await taught(hinted)
    await corrected(hinted, "dddd")
    assert await hinted.store.drop("dddd", DropReason.UNHEEDED)
    await corrected(hinted, "eeeee", parent="dddd")
    assert "eeeee" in await taught(hinted)


async def test_where_scores_teach_each_correction_does(tmp_path: Path) -> None:
    async with flowing(tmp_path, wants=Wants.EITHER) as flow:
        flow.asks(base=Following(()))
        await corrected(flow, "a")
        await corrected(flow, "bb", parent="a")
        assert await taught(flow) == ["a", "bb"]
        assert await flow.state("bb") is State.READY
