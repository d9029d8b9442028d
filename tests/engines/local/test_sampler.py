"""Tokens are drawn from the distribution a request asks for, and both log-probabilities are told."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, tensor

from openclaw_rl.core.sampling import Sampling
from openclaw_rl.engines.local.sampler import Draw, sample, uniform


def _draw(value: float, **cuts: float) -> Draw:
    return Draw(Sampling(max_tokens=1, **cuts), value)  # type: ignore[arg-type]


def _theirs(logits: Tensor, ask: Sampling) -> Tensor:
    """The distribution by transformers' own processors, in the order `generate` applies them."""
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    ids = torch.zeros(1, 1, dtype=torch.long)
    scores = TemperatureLogitsWarper(ask.temperature)(ids, logits[None])
    if ask.top_k:
        scores = TopKLogitsWarper(ask.top_k)(ids, scores)
    if ask.top_p < 1.0:
        scores = TopPLogitsWarper(ask.top_p)(ids, scores)
    if ask.min_p:
        scores = MinPLogitsWarper(ask.min_p)(ids, scores)
    return torch.log_softmax(scores[0], -1)


def test_a_number_picks_the_token_whose_share_it_falls_into() -> None:
    # shares 0.5, 0.3, 0.2: 0.49 falls into the first, 0.51 and 0.79 into the second, 0.81 into the third
    logits = tensor([[0.5, 0.3, 0.2]]).log().repeat(4, 1)
    drawn = sample(logits, [_draw(value) for value in (0.49, 0.51, 0.79, 0.81)])
    assert drawn.tokens == [0, 1, 1, 2]
    assert drawn.logp == pytest.approx([math.log(share) for share in (0.5, 0.3, 0.3, 0.2)], abs=1e-6)
    assert drawn.logp_sampled == drawn.logp


def test_temperature_changes_what_is_drawn_and_only_one_of_the_log_probabilities() -> None:
    # at temperature 0.5 shares 0.5, 0.3, 0.2 become 25, 9, 4 of 38
    drawn = sample(tensor([[0.5, 0.3, 0.2]]).log(), [_draw(0.65, temperature=0.5)])
    assert drawn.tokens == [0]
    assert drawn.logp == pytest.approx([math.log(0.5)], abs=1e-6)
    assert drawn.logp_sampled == pytest.approx([math.log(25 / 38)], abs=1e-6)


def test_top_k_and_top_p_leave_what_they_say_and_share_it_anew() -> None:
    logits = tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    # top_k 2: 4/7 and 3/7; top_p 0.6 needs two as well; top_p 0.4 is met by the first alone; min_p 0.6: 0.3 >= 0.24
    for cuts in ({"top_k": 2}, {"top_p": 0.6}, {"min_p": 0.6}):
        drawn = sample(logits.repeat(2, 1), [_draw(0.57, **cuts), _draw(0.58, **cuts)])
        assert drawn.tokens == [0, 1]
        assert drawn.logp_sampled == pytest.approx([math.log(4 / 7), math.log(3 / 7)], abs=1e-6)
    assert sample(logits, [_draw(0.99, top_p=0.4)]).logp_sampled == [0.0]


@pytest.mark.parametrize(
    "ask",
    [
        Sampling(1, temperature=0.7, top_k=5),
        Sampling(1, top_p=0.3),
        Sampling(1, temperature=3.0, top_p=0.95),  # flat: deeper than the first 64, and than 1,024
        Sampling(1, top_k=100, top_p=0.9),
        Sampling(1, temperature=2.0, top_k=1500, top_p=0.99, min_p=0.001),
        Sampling(1, min_p=0.02),
        Sampling(1, temperature=1.3, top_p=0.8, min_p=0.05),
    ],
    ids=str,
)
def test_cuts_are_those_of_transformers(ask: Sampling) -> None:
    torch.manual_seed(3)
    logits = torch.randn(3000) * 2
    theirs = _theirs(logits, ask)
    numbers = [(step + 0.5) / 400 for step in range(400)]
    drawn = sample(logits.repeat(400, 1), [Draw(ask, number) for number in numbers])
    for token, logp in zip(drawn.tokens, drawn.logp_sampled, strict=True):
        assert logp == pytest.approx(float(theirs[token]), abs=1e-4)
    # evenly spread numbers must reach each token about as often as its share says
    counts = torch.bincount(tensor(drawn.tokens), minlength=3000) / 400
    assert float((counts - theirs.exp()).abs().max()) <= 1 / 400 + 1e-6


def test_rows_of_all_kinds_in_one_batch_are_each_drawn_their_own_way() -> None:
    torch.manual_seed(4)
    logits = torch.randn(5, 200)
    asks = [
        _draw(0.3),
        _draw(0.3, temperature=0.0),
        _draw(0.3, top_k=3),
        _draw(0.3, temperature=0.5, top_p=0.5),
        _draw(0.3, top_logprobs=2),
    ]
    together = sample(logits, asks)
    for row, ask in enumerate(asks):
        alone = sample(logits[row : row + 1], [ask])
        assert alone.tokens == [together.tokens[row]]
        assert alone.logp_sampled == pytest.approx([together.logp_sampled[row]], abs=1e-6)
    assert set(together.top) == {4}
    assert len(together.top[4]) == 2


def test_a_token_without_a_share_is_never_drawn() -> None:
    logits = torch.full((1, 50), float("-inf"))
    logits[0, 20] = 0.0
    for number in (0.0, 0.5, 1 - 2.0**-22):
        assert sample(logits, [_draw(number)]).tokens == [20]


def test_the_numbers_of_a_seed_are_spread_evenly_and_are_its_own() -> None:
    numbers = [uniform(1, draw) for draw in range(4000)]
    assert all(0.0 <= number < 1.0 for number in numbers)
    # the mean of 4,000 even numbers lies within 0.02 of a half but once in 10^5
    assert sum(numbers) / 4000 == pytest.approx(0.5, abs=0.02)
    assert numbers != [uniform(2, draw) for draw in range(4000)]


def test_numbers_beyond_every_range_are_taken_for_the_furthest_within() -> None:
    # shares 0.5, 0.3, 0.2; k beyond the vocabulary cuts nothing: 0.81 falls into the third
    logits = tensor([[0.5, 0.3, 0.2]]).log().repeat(3, 1)
    drawn = sample(logits, [_draw(0.81, top_k=10**400), _draw(0.81, top_k=2**63), _draw(0.81, temperature=5e-324)])
    assert drawn.tokens == [2, 2, 0]
    assert drawn.logp_sampled == pytest.approx([math.log(0.2), math.log(0.2), 0.0], abs=1e-6)
