"""Nobody takes over: a user's share of a step, the same correction over and over, and masses of samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from train_doubles import sample, turn, verdict
from train_flow import flowing

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.teach.floods import DAY_S, DailyCounts
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.testing.clock import Clock
from openclaw_rl.train.schedule import apart, most_of_one, shared_fairly
from openclaw_rl.train.settings import TrainSettings


def corrected(name: str, words: str) -> Verdict:
    return Verdict(name, -1, VerdictSource.VOTES, hints=(Hint(words),))


def test_a_step_takes_no_more_of_one_user_than_their_share() -> None:
    # half of 4 is 2: of bob's three the third waits, whoever else is there
    samples = [
        replace(sample(name), user=user)
        for name, user in zip("abcde", ("bob", "bob", "ann", "bob", "ann"), strict=True)
    ]
    most = most_of_one(TrainSettings(batch_size=4, min_batch=1))
    assert [item.turn for item in shared_fairly(samples, most, lambda one: True)] == list("abce")
    assert most_of_one(TrainSettings(batch_size=1, min_batch=1)) == 1  # a step always has room for one


def test_what_refused_versions_gave_back_is_learned_by_itself_one_users_at_a_time() -> None:
    samples = [
        replace(sample(name), user=user)
        for name, user in zip("abcdr", ("ann", "bob", "ann", "ann", "bob"), strict=True)
    ]

    def teaching(one: Sample) -> bool:
        return one.turn != "r"

    def turns(returned: dict[str, int], *, without: str = "") -> str:
        return "".join(
            item.turn for item in apart([one for one in samples if one.turn not in without], returned, teaching)
        )

    assert turns({}) == "abcdr"
    assert turns({"a": 1, "b": 1, "c": 2}) == "acr"  # rehearsals go along
    assert turns({"b": 1, "c": 2}, without="a") == "br"
    assert turns({"b": 1, "c": 2}) == "adr"  # an older one that was never refused comes first, without them
    assert turns({"r": 1}, without="abcd") == "r"


def test_what_trains_the_anchor_alone_takes_nothing_of_a_users_share() -> None:
    rehearsals = [replace(sample(name, 0.0, is_promoted=True), user="bob") for name in ("r1", "r2")]
    samples = [*rehearsals, replace(sample("a"), user="bob"), replace(sample("b"), user="bob")]
    kept = shared_fairly(samples, 1, lambda one: not one.is_promoted)
    assert [item.turn for item in kept] == ["r1", "r2", "a"]


def test_the_same_correction_counts_only_so_often_a_day() -> None:
    clock = Clock(0.0)
    floods = DailyCounts(TeachSettings(same_words_a_day=2), clock)
    ann = [replace(turn(f"a{index}"), user="ann") for index in range(5)]
    said = ["Say it  in French.", "say it in french.", "Say it in French."]
    refused = [floods.refusal(each, corrected(each.id, words)) for each, words in zip(ann[:3], said, strict=True)]
    assert refused == [None, None, DropReason.REPEATED]
    assert floods.refusal(ann[0], corrected("a0", said[0])) is None  # asked again, it counts once
    assert floods.refusal(ann[3], corrected("a3", "Be short, please.")) is None  # other words
    bob = replace(turn("b"), user="bob")
    assert floods.refusal(bob, corrected("b", said[0])) is None  # another user
    clock.advance(DAY_S)
    assert floods.refusal(ann[4], corrected("a4", said[0])) is None  # another day


def test_a_user_gives_only_so_many_samples_a_day_where_that_is_set() -> None:
    floods = DailyCounts(TeachSettings(user_samples_a_day=1), Clock(0.0))
    assert floods.refusal(turn("a"), verdict("a", 1)) is None
    assert floods.refusal(turn("b"), verdict("b", 1)) is DropReason.TOO_MANY


@pytest.mark.parametrize("share", [0.0, 1.1])
def test_shares_and_limits_that_mean_nothing_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match="user_share"):
        TrainSettings(user_share=share)
    with pytest.raises(ValueError, match="same_words_a_day"):
        TeachSettings(same_words_a_day=-1)


async def test_a_repeated_correction_is_dropped_with_that_reason_and_counted(tmp_path: Path) -> None:
    async with flowing(tmp_path, teaches=TeachSettings(same_words_a_day=1)) as flow:
        await flow.judged("a", -1, hints=1)
        await flow.judged("b", -1, hints=1)
        await flow.teach.once()
        assert await flow.state("b") is DropReason.REPEATED
        assert (await flow.store.counts())["dropped.repeated"] == 1
