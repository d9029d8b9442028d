from __future__ import annotations

import pytest

from openclaw_rl.trainers.settings import FORMS, Distill, Method, MethodSettings, TrainerSettings, Weights


def test_methods_are_weights() -> None:
    weights = {name: MethodSettings(name=name).weights for name in Method}
    assert weights[Method.BINARY] == Weights(1.0, 0.0, 0.0)
    assert weights[Method.OPD] == Weights(0.0, 1.0, 0.0)
    assert weights[Method.COMBINE] == Weights(1.0, 1.0, 0.0)
    assert weights[Method.HYBRID] == Weights(1.0, 0.0, 1.0)


def test_a_weight_that_was_set_stands_beside_the_methods_own() -> None:
    assert MethodSettings(name=Method.COMBINE, w_rl=0.25).weights == Weights(0.25, 1.0, 0.0)
    assert MethodSettings(name=Method.COMBINE, w_opd=0.0).weights == Weights(1.0, 0.0, 0.0)


def test_each_form_of_distillation_compares_its_own_number_of_tokens() -> None:
    assert MethodSettings(name=Method.HYBRID).form is FORMS[Distill.SELECTED]
    assert MethodSettings(name=Method.HYBRID).compared == 4
    assert MethodSettings(name=Method.TOPK).form is FORMS[Distill.TAIL]
    assert MethodSettings(name=Method.TOPK).compared == 50
    assert MethodSettings(name=Method.TOPK, top_k=7).compared == 7


@pytest.mark.parametrize("wrong", [{"kl_beta": -1.0}, {"clip_low": 1.0}, {"clip_high": 0.0}, {"ema_decay": 1.0}])
def test_a_method_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MethodSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"lr": 0.0}, {"timeout_s": 0.0}, {"beta1": 1.0}])
def test_a_trainer_that_cannot_work_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TrainerSettings(**wrong)  # type: ignore[arg-type]
