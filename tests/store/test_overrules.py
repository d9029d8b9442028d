"""The owner's verdict takes the judge's place wherever a turn may still be learned from, and both are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.core.hint import Hint, HintSource
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.turn import TurnKind
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.store.db import Store
from openclaw_rl.store.tables.overrules import Overrule
from openclaw_rl.testing.folders import a_small_adapter, add_version, lived_in
from openclaw_rl.testing.turns import a_sample, a_turn


def said(turn: str, score: int = -1, *hints: str) -> Overrule:
    return Overrule(turn, 7.0, "owner", score, hints)


async def verdict(store: Store, turn: str) -> tuple[State | None, int | None, VerdictSource, tuple[str, ...]]:
    row = await store.row(turn)
    assert row is not None and row.verdict is not None
    return row.state, row.verdict.score, row.verdict.source, tuple(hint.text for hint in row.verdict.hints)


@pytest.mark.parametrize("name", ["served0", "paired0", "judged0", "ready0"])
async def test_a_turn_that_waits_is_judged_as_its_owner_says(tmp_path: Path, name: str) -> None:
    await lived_in(tmp_path)
    store = await Store.open(tmp_path)
    before = await store.row(name)
    assert await store.overrules.add(said(name, -1, "Be brief."))
    assert await verdict(store, name) == (State.JUDGED, -1, VerdictSource.OWNER, ("Be brief.",))
    row = await store.row(name)
    assert row is not None and before is not None and not row.has_sample and row.next_state is not None
    kept = await store.overrules.of_turn(name)
    judged = None if before.verdict is None else (before.verdict.score, ())
    assert kept == [Overrule(name, 7.0, "owner", -1, ("Be brief.",), judged)]
    assert [item.turn.id for item in await store.judged(limit=9)].count(name) == 1
    assert await store.ready(limit=9) == [one for one in await store.ready(limit=9) if one.turn != name]
    await store.admit(a_sample(row.turn))  # and may become a sample again
    await store.aclose()


async def test_what_a_version_has_learned_from_stays_as_it_was_and_the_word_is_kept_for_the_judge(
    tmp_path: Path,
) -> None:
    await lived_in(tmp_path)
    store = await Store.open(tmp_path)
    assert not await store.overrules.add(said("one0", 1))
    assert await verdict(store, "one0") == (State.TRAINED, -1, VerdictSource.VOTES, ())
    assert (await store.overrules.newest(limit=5))[0].judged == (-1, ())
    assert len(await store.effects.samples(["one0"])) == 1
    await store.aclose()


async def test_a_turn_that_one_scope_has_learned_from_and_another_waits_for_stays_as_it_was(
    store: Store, tmp_path: Path
) -> None:
    turn = a_turn("a")
    await store.add_turn(turn, chain="a")
    await store.pair(NextState("a", (message(Role.USER, "Shorter."),), NextStateSource.USER))
    await store.judge(Verdict("a", -1, VerdictSource.VOTES))
    await store.admit(a_sample(turn), scopes=("shared", "user-alice"))
    await add_version(store, tmp_path, 1, a_small_adapter, ("a",))
    assert not await store.overrules.add(said("a", 1))
    assert await verdict(store, "a") == (State.READY, -1, VerdictSource.VOTES, ())


@pytest.mark.parametrize(
    ("reason", "is_judged"),
    [
        (DropReason.NO_SIGNAL, True),
        (DropReason.NO_NEXT_STATE, True),
        (DropReason.EXCLUDED, True),
        (DropReason.EMPTY, False),
        (DropReason.MAY_NOT_TEACH, False),
        (DropReason.REDACTED, False),
    ],
)
async def test_a_dropped_turn_is_judged_anew_where_only_the_reaction_was_at_fault(
    store: Store, reason: DropReason, is_judged: bool
) -> None:
    await store.add_turn(a_turn("a"), chain="a")
    await store.drop("a", reason)
    assert await store.overrules.add(said("a", -1, "Be brief.")) is is_judged
    row = await store.row("a")
    assert row is not None and row.state is (State.JUDGED if is_judged else State.DROPPED)


async def test_a_kept_hint_is_reworded_and_struck_with_the_verdict(store: Store) -> None:
    await store.add_turn(a_turn("a"), chain="a")
    await store.pair(NextState("a", (message(Role.USER, "Shorter."),), NextStateSource.USER))
    await store.judge(Verdict("a", -1, VerdictSource.VOTES, hints=(Hint("Be brief."),)), keep=Hint("Be brief."))
    changes = store.hints.changes
    await store.overrules.add(said("a", -1, "Answer in one line."))
    kept = (await store.hints.of_user("alice"))[0]
    assert (kept.text, kept.source, kept.is_in_use) == ("Answer in one line.", HintSource.OWNER, True)
    assert store.hints.changes > changes  # who holds hints in memory reads them again
    await store.overrules.add(said("a", -1))
    kept = (await store.hints.of_user("alice"))[0]
    assert (kept.is_in_use, kept.why) == (False, "struck by its owner")
    assert [one.judged for one in await store.overrules.of_turn("a")] == [
        (-1, ("Be brief.",)),
        (-1, ("Answer in one line.",)),
    ]


async def test_side_turns_and_turns_that_are_not_there_are_refused(store: Store) -> None:
    await store.add_turn(a_turn("side", kind=TurnKind.SIDE), chain="side")
    for name in ("side", "nobody"):
        with pytest.raises(ValueError, match="not one that can be judged"):
            await store.overrules.add(said(name, 1))
    with pytest.raises(ValueError, match="-1, 0 or 1"):
        said("side", 3)
    assert await store.overrules.newest(limit=5) == []


async def test_what_is_forgotten_takes_the_word_on_it_along(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    store = await Store.open(tmp_path)
    await store.overrules.add(said("judged0", -1, "A phrase to forget."))
    await store.end_session("key:s0", why="over", at_s=9.0)
    while await store.erase_older(1e9):
        pass
    assert await store.overrules.of_turn("judged0") != []  # it waits, so it is not erased by age
    await store.drop("judged0", DropReason.EXCLUDED)
    while await store.erase_older(1e9):
        pass
    assert await store.overrules.newest(limit=5) == []
    await store.aclose()
