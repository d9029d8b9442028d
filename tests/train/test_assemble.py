"""A judged turn as training data."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from train_doubles import HintRenderer, turn, verdict

from openclaw_rl.core.hint import Hint, PlacedHint
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.teach.admit import refusal
from openclaw_rl.teach.assemble import ema_baseline, others, sample_of


def test_a_sample_holds_the_ids_as_served_and_every_signal() -> None:
    made = sample_of(turn("t"), verdict("t", 1, hints=2), HintRenderer(), baseline=0.25, max_tokens=100)
    assert (made.prompt, made.response, made.logp) == ((1, 2, 3), (4, 5), (-0.5, -0.4))  # logp at temperature 1
    assert made.mask == (True, True)
    assert (made.score, made.baseline, made.is_promoted) == (1.0, 0.25, False)
    # the 35 characters of each hint stand behind the prompt's own ids
    assert [hint.tokens for hint in made.hints] == [(1, 2, 3, 35), (1, 2, 3, 35)]


def test_what_a_grammar_forced_is_masked_out_and_the_share_it_left_is_kept() -> None:
    # at the second token it left a half of the model's own distribution: log 0.5 = -0.4 - (-0.4 + log 2)
    held = replace(turn("t").completion, logp_masked=(0.0, -0.4 + math.log(2)), forced=(True, False))
    made = sample_of(
        replace(turn("t"), completion=held), verdict("t", 1), HintRenderer(), baseline=None, max_tokens=100
    )
    assert made.mask == (False, True)
    assert made.kept == pytest.approx((-0.5, -math.log(2)), abs=1e-12)
    assert made.logp == (-0.5, -0.4)
    plain = sample_of(turn("t"), verdict("t", 1), HintRenderer(), baseline=None, max_tokens=100)
    assert (plain.mask, plain.kept) == ((True, True), ())


def test_a_reply_without_a_token_of_the_models_own_choice_is_no_sample() -> None:
    forced = replace(turn("t").completion, logp_masked=(0.0, 0.0), forced=(True, True))
    for completion, reason in ((forced, DropReason.EMPTY), (turn("t").completion, None)):
        found = refusal(replace(turn("t"), completion=completion), verdict("t", 1), may_teach=True, max_tokens=100)
        assert found is reason


def test_a_promoted_turn_has_its_reward_for_a_score() -> None:
    made = sample_of(turn("t"), verdict("t", 0), HintRenderer(), baseline=0.5, max_tokens=100, reward=1 / 3)
    assert (made.score, made.baseline, made.is_promoted) == (1 / 3, 0.5, True)


@pytest.mark.parametrize("score", [0, None])
def test_a_turn_without_praise_or_blame_is_not_measured_against_a_baseline(score: int | None) -> None:
    made = sample_of(turn("t"), verdict("t", score, hints=1), HintRenderer(), baseline=0.5, max_tokens=100)
    assert made.baseline is None
    assert made.score == score
    anchor = sample_of(turn("t"), verdict("t", 0), HintRenderer(), baseline=0.5, max_tokens=100, reward=0.0)
    assert (anchor.score, anchor.baseline, anchor.has_signal) == (0.0, None, False)


def test_hints_that_cannot_be_rendered_or_are_too_long_are_left_out() -> None:
    words = (Hint("bad: there is nobody to hint to"), Hint("Write in plain sentences."))
    both = Verdict("t", -1, VerdictSource.VOTES, hints=words)
    made = sample_of(turn("t"), both, HintRenderer(), baseline=None, max_tokens=6)  # 4 ids of prompt and 2 of answer
    assert made.hints == (HintPrompt("Write in plain sentences.", (1, 2, 3, 25)),)
    assert sample_of(turn("t"), both, HintRenderer(), baseline=None, max_tokens=5).hints == ()


@pytest.mark.parametrize(
    ("rewards", "own", "baseline"),
    [
        ([], 1.0, 0.0),
        ([1.0], 1.0, 0.0),  # its own score is no part of it
        ([-1.0, 1.0], -1.0, 0.1),  # 0.9 * 0 + 0.1 * 1
        ([1.0, -1.0, 1.0], 1.0, -0.01),  # oldest first: 0.1, then 0.9 * 0.1 - 0.1
        ([0.0, 1.0], 0.0, 0.1),
    ],
)
def test_the_baseline_is_a_moving_average_of_the_users_other_scores(
    rewards: list[float], own: float, baseline: float
) -> None:
    assert ema_baseline(rewards, own, 0.9) == pytest.approx(baseline, abs=1e-12)


@settings(deadline=None)
@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0])), st.sampled_from([-1.0, 1.0]))
def test_a_baseline_lies_between_the_scores(rewards: list[float], own: float) -> None:
    assert -1.0 < ema_baseline(rewards, own, 0.9) < 1.0


BEHIND = replace(turn("t"), carried=(PlacedHint(0, "hint-1", "Be brief."),), prompt=Prompt((1, 2, 3, 9)))


def test_what_was_sampled_behind_hints_is_the_teachers_and_its_prompt_is_the_clients() -> None:
    made = sample_of(BEHIND, verdict("t", 1), HintRenderer(), baseline=None, max_tokens=100, known=BEHIND.carried)
    assert made.is_taught and made.own is None
    assert made.prompt == (1, 2, 3) and made.response == BEHIND.completion.tokens
    assert made.hints == (HintPrompt("Be brief.", (1, 2, 3, len("Be brief."))),)


def test_a_correction_of_it_is_what_its_teacher_reads_beside_its_hints() -> None:
    told = Verdict("t", -1, VerdictSource.VOTES, hints=(Hint("In French."),))
    made = sample_of(BEHIND, told, HintRenderer(), baseline=None, max_tokens=100, known=BEHIND.carried)
    assert made.is_taught and made.hints == (
        HintPrompt("Be brief. In French.", (1, 2, 3, len("Be brief. In French."))),
    )


def test_a_teacher_heeds_what_else_the_user_asked_for_but_nothing_twice() -> None:
    known = [PlacedHint(0, "a", "Use metric units."), PlacedHint(0, "b", "In french!"), PlacedHint(0, "c", "Be brief.")]
    told = Verdict("t", -1, VerdictSource.VOTES, hints=(Hint("In French."),))
    heeded = [*BEHIND.carried, *others(BEHIND, told, known)]
    made = sample_of(BEHIND, told, HintRenderer(), baseline=None, max_tokens=100, known=heeded)
    assert [hint.text for hint in made.hints] == ["Be brief. Use metric units. In French."]
    plain = sample_of(turn("t"), verdict("t", 1), HintRenderer(), baseline=None, max_tokens=100, known=known)
    assert plain.hints == () and not plain.is_taught


def test_what_may_be_the_opposite_of_a_new_wish_is_not_read_beside_it() -> None:
    known = [
        PlacedHint(0, "a", "In solutions: ordinary sentences, without markdown, lists or boxes."),
        PlacedHint(0, "b", "In solutions: name the units."),
        PlacedHint(0, "c", "In grades: no markdown."),
    ]
    new = Verdict("t", -1, VerdictSource.VOTES, hints=(Hint("In solutions: use markdown with headers."),))
    made = sample_of(turn("t"), new, HintRenderer(), baseline=None, max_tokens=400, known=others(turn("t"), new, known))
    assert [hint.text for hint in made.hints] == [f"{known[1].text} {known[2].text} {new.hints[0].text}"]
