"""Where learning does not help: it rests for a while, and begins again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from train_doubles import turn, verdict
from train_flow import flowing

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.teach.in_vain import CorrectionMonitor, told_apart
from openclaw_rl.teach.settings import TeachSettings


def of_version(at: int, name: str = "t", each: int = 1) -> Turn:
    """A turn of a version that so many turns have."""
    return turn(f"{name}{at}", version=PolicyVersion(SHARED, at // each), user=name)


def rests(scores: str, turns: int = 4, each: int = 1) -> str:
    """`-` where nothing is learned from a turn; of the scores, c is a correction."""
    watch = CorrectionMonitor(turns)
    return "".join(
        "-" if watch.rests(of_version(at, each=each), verdict(f"t{at}", -1 if said == "c" else 1)) else "+"
        for at, said in enumerate(scores)
    )


def test_who_corrects_as_often_as_before_is_not_learned_from_for_a_while() -> None:
    #             eight turns, and with the last two more corrections than not: it was in vain
    assert rests("cgcgcgcg" + "c" * 18) == "++++++++" + "+" + "-" * 16 + "+"


@pytest.mark.parametrize(
    "scores",
    [
        "ccccgggg",
        "cccgcggg",
        "ggggcggg",
        "cgggcgggcgggcggg",
        "cccccccgcggggggg",
        "gggggggggggg",
        "cggggggccccg",
    ],
)
def test_who_is_taught_with_success_is_learned_from_all_along(scores: str) -> None:
    assert "-" not in rests(scores)


PLAIN = "In solutions: The user wants plain sentences like a person writes, without markdown or numbered steps."
MARKED = (
    "In solutions: The user wants markdown with headers, bold text, numbered steps and a boxed answer.",
    "In solutions: Use markdown: headers, bold text, numbered steps, a boxed answer.",
)


FIRST, LAST = 'In grades: Begin the reply with "Good day."', 'In solutions: End the reply with "Stay curious!"'


@pytest.mark.parametrize(
    ("asked", "wish", "again", "returns"),
    [
        ([(MARKED[0],), (MARKED[1],), (MARKED[0],)], (MARKED[0],), 3, 0),
        ([(MARKED[0],), (PLAIN,), (MARKED[1],), (PLAIN,)], (MARKED[0],), 2, 2),
        ([(FIRST,), (LAST,), (LAST,), (PLAIN,)], (LAST,), 2, 0),
        ([(PLAIN, MARKED[0]), (MARKED[1],)], (PLAIN, MARKED[0]), 2, 0),
        ([(FIRST,), (), (FIRST,)], (FIRST,), 2, 0),  # a result was wrong, too
        ([(FIRST,), (), (LAST,), (FIRST,)], (FIRST,), 2, 2),
        ([(FIRST,), (), ()], (FIRST,), 1, 2),
        ([], (), 0, 0),
    ],
)
def test_wishes_are_told_apart(asked: list[tuple[str, ...]], wish: tuple[str, ...], again: int, returns: int) -> None:
    found, at, returned = told_apart(asked)
    assert (found, len(at), returned) == (wish, again, returns)
    assert all(asked[index] for index in at)  # one without hints asks for nothing


def taught(asked: Sequence[str], turns: int) -> tuple[list[bool], list[PolicyVersion]]:
    """Of corrections that all had a hint: from which nothing is learned, and to which versions one goes back."""
    watch = CorrectionMonitor(turns)
    rested = [
        watch.rests(of_version(at), replace(verdict(f"t{at}", -1), hints=(Hint(text),)))
        for at, text in enumerate(asked)
    ]
    return rested, [found.since for found in watch.found()]


def test_what_is_asked_for_again_and_again_is_taken_back_and_learned_anew_at_once() -> None:
    rested, back = taught(MARKED * 4, 4)
    assert not any(rested)
    assert back == [PolicyVersion(SHARED, 0)]


def test_what_was_learned_before_it_was_first_asked_for_stays() -> None:
    watch = CorrectionMonitor(4)
    for at, hint in enumerate([None, FIRST, None, *MARKED, MARKED[0], *MARKED]):
        hints = () if hint is None else (Hint(hint),)
        watch.rests(of_version(at), replace(verdict(f"t{at}", 1 if hint is None else -1), hints=hints))
    (found,) = watch.found()  # since the version which gave the reply that MARKED first objected to
    assert (found.user, found.since, found.wish) == ("t", PolicyVersion(SHARED, 3), (MARKED[0],))


def test_while_versions_are_refused_corrections_are_not_in_vain() -> None:
    def since(versions: Sequence[int]) -> list[PolicyVersion]:
        watch = CorrectionMonitor(8)
        for at, number in enumerate(versions):
            said = turn(f"t{at}", version=PolicyVersion(SHARED, number))
            watch.rests(said, replace(verdict(said.id, -1), hints=(Hint(MARKED[at % 2]),)))
        return [found.since for found in watch.found()]

    # Replies of version 3 while all that was learned from their corrections was refused; then 4 and 5 are corrected.
    assert since([3] * 11 + [4] * 3 + [5] * 2) == []
    assert since([3] * 10 + [4] * 3 + [5] * 3) == [PolicyVersion(SHARED, 3)]
    assert since([3] * 10 + [4] * 3 + [5] * 2 + [3] * 3) == []  # back at 3, which learned nothing of it


def test_from_who_wants_this_and_that_in_turn_nothing_is_learned_for_a_while() -> None:
    rested, back = taught((PLAIN, MARKED[0]) * 4, 4)
    assert rested == [False] * 7 + [True]
    assert back == [PolicyVersion(SHARED, 0)]


def test_who_repeats_a_wish_and_corrects_wrong_results_beside_it_does_not_contradict_themselves() -> None:
    watch = CorrectionMonitor(8)
    rested = [
        watch.rests(of_version(at), replace(verdict(f"t{at}", -1), hints=(Hint(FIRST),) if at % 4 else ()))
        for at in range(16)
    ]
    assert not any(rested)
    assert [found.wish for found in watch.found()] == [(FIRST,)]


def test_one_new_wish_after_the_other_is_not_in_vain() -> None:
    words = ("alpha", "beta", "gamma", "delta", "eta")
    wishes = [f'In solutions: Begin the reply with "{word} {word}ly."' for word in words]
    rested, back = taught([wish for wish in wishes for _ in range(4)], 8)
    assert not any(rested)
    assert back == []


def test_a_new_wish_that_took_a_while_and_holds_was_not_in_vain() -> None:
    assert "-" not in rests("gggggccgccccccccgggggggg", turns=8)
    assert "-" in rests("gggggccgccccccccgcccgccc", turns=8)


def test_where_hardly_anything_was_learned_meanwhile_nothing_was_in_vain() -> None:
    assert "-" not in rests("c" * 40, each=8)
    assert "-" in rests("c" * 40, each=3)


def test_a_user_has_a_record_of_their_own_and_a_turn_counts_once() -> None:
    watch = CorrectionMonitor(2)
    for at in range(3):
        one = of_version(at, "ann")
        assert not any(watch.rests(one, verdict(one.id, -1)) for _ in range(5))
    assert not watch.rests(turn("b", user="bob"), verdict("b", -1))
    last = of_version(3, "ann")
    assert [watch.rests(last, verdict(last.id, -1)) for _ in range(2)] == [True, True]


def test_rollouts_and_what_nobody_scored_do_not_count() -> None:
    watch = CorrectionMonitor(1)
    for at in range(4):
        assert not watch.rests(replace(turn(f"r{at}"), group="g"), verdict(f"r{at}", -1))
        assert not watch.rests(turn(f"n{at}"), verdict(f"n{at}", None))
    assert not any(CorrectionMonitor(0).rests(turn(f"t{at}"), verdict(f"t{at}", -1)) for at in range(9))


async def test_the_version_with_which_the_turns_in_vain_began_is_asked_for(tmp_path: Path) -> None:
    asked: list[tuple[str, PolicyVersion, Sequence[str]]] = []

    class Publishing:
        async def take_back(
            self, user: str, version: PolicyVersion, wish: Sequence[str] = (), *, why: str = ""
        ) -> bool:
            asked.append((user, version, wish))
            return True

    async with flowing(tmp_path, teaches=TeachSettings(in_vain_turns=2)) as flow:
        flow.teach.publishing = Publishing()
        for at, number in enumerate((0, 1, 1, 2, 2)):
            await flow.judged(f"t{at}", 1 if at == 0 else -1, version=PolicyVersion(SHARED, number))
        await flow.teach.once()
    assert asked == [("ann", PolicyVersion(SHARED, 0), ())]


async def test_such_turns_are_dropped_with_that_reason(tmp_path: Path) -> None:
    async with flowing(tmp_path, teaches=TeachSettings(in_vain_turns=1)) as flow:
        for name in "ab":
            await flow.judged(name, -1)
        await flow.teach.once()
        assert await flow.state("b") is DropReason.IN_VAIN
        assert (await flow.store.counts())["dropped.in_vain"] == 1
