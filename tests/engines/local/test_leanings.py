"""Biases, penalties and masks change what is drawn, and never the model's own log-probabilities."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

from openclaw_rl.core.sampling import LogitAdjustment, Sampling
from openclaw_rl.engines.local.masks import Masks
from openclaw_rl.engines.local.sampler import Draw, LogitAdjuster, sample

LOGITS = tensor([[2.0, 1.0, -1.0, 0.0]])


def _changed(leaning: LogitAdjustment, *, prompt: tuple[int, ...] = (), said: tuple[int, ...] = ()) -> list[float]:
    logits = LOGITS[0].clone()
    LogitAdjuster(leaning, prompt, said, 4).apply(logits)
    found: list[float] = logits.tolist()
    return found


def test_a_bias_is_added_to_the_logit_of_its_id() -> None:
    assert _changed(LogitAdjustment(bias=((1, 3.0), (2, -100.0), (900, 5.0)))) == [2.0, 4.0, -101.0, 0.0]


def test_penalties_are_those_of_the_engines_that_have_them() -> None:
    # said: token 0 twice, token 3 once; presence 0.5 once each, frequency 0.25 for each time
    assert _changed(LogitAdjustment(presence=0.5), said=(0, 3, 0)) == [1.5, 1.0, -1.0, -0.5]
    assert _changed(LogitAdjustment(frequency=0.25), said=(0, 3, 0)) == [1.5, 1.0, -1.0, -0.25]
    # what was read or said: divided by 2 above nought, else multiplied
    assert _changed(LogitAdjustment(repetition=2.0), prompt=(2,), said=(0,)) == [1.0, 1.0, -2.0, 0.0]
    assert _changed(LogitAdjustment(presence=0.5), prompt=(0, 1)) == [
        2.0,
        1.0,
        -1.0,
        0.0,
    ]  # what was read is not counted


def test_a_token_that_is_said_counts_from_then_on() -> None:
    leanings = LogitAdjuster(LogitAdjustment(frequency=1.0), (), (), 4)
    for token, expected in ((1, 0.0), (1, -1.0)):
        leanings.take(token)
        logits = LOGITS[0].clone()
        leanings.apply(logits)
        assert logits[1].item() == expected


def test_what_leans_is_drawn_from_and_the_models_own_is_told() -> None:
    logits = tensor([[0.5, 0.3, 0.2]]).log().repeat(2, 1)
    leaning = LogitAdjustment(bias=((2, math.log(4)),))  # shares 0.5, 0.3, 0.8 of 1.6
    draws = [Draw(Sampling(1, leaning=leaning), 0.6, LogitAdjuster(leaning, (), (), 3)), Draw(Sampling(1), 0.6)]
    drawn = sample(logits, draws)
    assert drawn.tokens == [2, 1]
    assert drawn.logp == pytest.approx([math.log(0.2), math.log(0.3)], abs=1e-6)
    assert drawn.logp_sampled == pytest.approx([math.log(0.5), math.log(0.3)], abs=1e-6)
    assert drawn.masked == {}


@pytest.mark.parametrize("is_crowded", [False, True])
def test_a_mask_shares_what_is_left_anew(is_crowded: bool) -> None:
    # of 0.5, 0.3, 0.2 the first is forbidden: 0.6 and 0.4 are left
    logits = tensor([[0.5, 0.3, 0.2]]).log().repeat(3, 1)
    masks = Masks((0, 1), tensor([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]), (False, True))
    draws = [Draw(Sampling(1), 0.59), Draw(Sampling(1, temperature=0.5), 0.3), Draw(Sampling(1), 0.4)]
    drawn = sample(logits[: 2 + is_crowded], draws[: 2 + is_crowded], masks)
    assert drawn.tokens[:2] == [1, 2]
    assert drawn.logp[:2] == pytest.approx([math.log(0.3), math.log(0.2)], abs=1e-6)
    assert drawn.logp_sampled[:2] == pytest.approx([math.log(0.6), 0.0], abs=1e-6)
    assert drawn.masked[0] == (pytest.approx(math.log(0.6), abs=1e-6), False)
    assert drawn.masked[1] == (0.0, True)
    if is_crowded:
        assert (drawn.tokens[2], drawn.logp_sampled[2], 2 in drawn.masked) == (0, drawn.logp[2], False)


def test_the_quick_way_through_a_mask_is_the_careful_one_and_where_nothing_is_left_the_careful_one_is_taken() -> None:
    draws = torch.Generator().manual_seed(5)
    logits = 6.0 * torch.randn(40, 64, generator=draws)
    allowed = (torch.rand(40, 64, generator=draws) < 0.2).float()
    allowed[:, 7] = 1.0
    logits[:3, :] = 40.0 * allowed[:3] * -1.0 + 45.0  # what is allowed has a share of 4e-18 or less
    logits[3, :] = 80.0 * allowed[3] * -1.0 + 85.0  # and here of 1e-35
    uniforms = torch.rand(40, generator=draws).tolist()
    masks = Masks(tuple(range(40)), allowed, tuple((allowed.sum(1) == 1).tolist()))
    quick = [
        sample(logits[row : row + 1], [Draw(Sampling(1), uniforms[row])], Masks((0,), allowed[row : row + 1], (False,)))
        for row in range(40)
    ]
    nothing = LogitAdjuster(LogitAdjustment(bias=((63, 0.0),)), (), (), 64)  # changes nothing, and is no plain draw
    careful = sample(logits, [Draw(Sampling(1), value, nothing) for value in uniforms], masks)
    for row, one in enumerate(quick):
        assert one.tokens == careful.tokens[row : row + 1]
        assert allowed[row, one.tokens[0]] == 1.0
        assert one.logp_sampled[0] == pytest.approx(careful.logp_sampled[row], abs=2e-5)
        assert one.masked[0][0] == pytest.approx(careful.masked[row][0], abs=2e-5)
        assert one.logp[0] == pytest.approx(careful.logp[row], abs=2e-5)


def test_the_likeliest_of_what_a_mask_leaves_is_the_greedy_one_however_unlikely() -> None:
    logits = torch.full((1, 8), 50.0)
    logits[0, 5] = -60.0
    allowed = torch.zeros(1, 8)
    allowed[0, 5] = 1.0
    for ask in (Sampling(1, temperature=0.0), Sampling(1), Sampling(1, top_k=3, top_p=0.5, min_p=0.1)):
        drawn = sample(logits, [Draw(ask, 0.99)], Masks((0,), allowed, (True,)))
        assert (drawn.tokens, drawn.logp_sampled, drawn.masked) == ([5], [0.0], {0: (0.0, True)})


def test_top_p_nought_leaves_the_likeliest_token() -> None:
    drawn = sample(LOGITS.repeat(2, 1), [Draw(Sampling(1, top_p=0.0), value) for value in (0.0, 0.99)])
    assert drawn.tokens == [0, 0]
    assert drawn.logp_sampled == pytest.approx([0.0, 0.0], abs=1e-6)


@pytest.mark.parametrize(
    "values", [{"presence": 2.5}, {"frequency": -3.0}, {"repetition": 0.0}, {"bias": ((1, 101.0),)}], ids=str
)
def test_what_no_engine_takes_is_no_leaning(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"penalty|logit_bias"):
        LogitAdjustment(**values)  # type: ignore[arg-type]
