"""What was sampled behind a hint is the teacher's: learned from by the forward divergence alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trainer_models import Recorder, policy_logp, settings_of

from openclaw_rl.algo.methods.topk import Divergence, bin_divergence, with_tail
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, Sample, SampledReply
from openclaw_rl.core.version import BASE
from openclaw_rl.trainers.lessons import lessons, shares
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Mean, Method, MethodSettings

HINT = HintPrompt("say the other thing", (1, 2, 3, 40, 41, 42, 43))
SPOKEN = (10, 11, 12, 13)
METHODS = [Method.TOPK, Method.HYBRID, Method.COMBINE, Method.OPD, Method.BINARY]


def taught(recorder: Recorder, **changes: object) -> Sample:
    """A turn sampled behind the hint: its log-probabilities are those of the base model there."""
    plain = recorder.sample((1, 2, 3), SPOKEN, turn="taught", score=1.0, hints=(HINT,))
    behind = replace(plain, logp=recorder.logp(HINT.tokens, SPOKEN), is_taught=True)
    return replace(behind, **changes)  # type: ignore[arg-type]


def forward_gradient(trainer: LoraTrainer, sample: Sample) -> list[torch.Tensor]:
    """The gradient of the mean of KL(teacher || policy) over the reply's positions, with plain torch.

    The teacher's distribution is that of its samples, at temperature 0.7.
    """
    model = trainer.model

    def logp(prompt: tuple[int, ...]) -> torch.Tensor:
        hidden = model.hidden(torch.tensor([prompt + sample.response]))[0]
        return model.logits(hidden[len(prompt) - 1 : -1]).log_softmax(-1)

    with torch.no_grad(), model.without_adapter():
        teacher = (logp(HINT.tokens) / 0.7).log_softmax(-1)
    top = teacher.topk(50).indices
    student = with_tail(logp(sample.prompt).gather(-1, top))
    loss = bin_divergence(student, with_tail(teacher.gather(-1, top)), kind=Divergence.FORWARD).mean()
    return list(torch.autograd.grad(loss, list(dict(model.named()).values())))


def gradient_of(trainer: LoraTrainer, sample: Sample, monkey: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """What the optimiser was given for a step over the sample; the step itself is not taken."""
    found: list[torch.Tensor] = []
    parameters = list(dict(trainer.model.named()).values())

    def note(*_: object, **__: object) -> None:
        found.extend(torch.zeros_like(one) if one.grad is None else one.grad.clone() for one in parameters)

    monkey.setattr(torch.optim.AdamW, "step", note)
    trainer.step([sample])
    return found


def moved(model: Path, recorder: Recorder, method: Method, **changes: float) -> LoraTrainer:
    """A trainer a step away from the base, so that a ratio would not be 1."""
    settings = MethodSettings(name=method, kl_beta=0.0, **changes)  # type: ignore[arg-type]
    trainer = LoraTrainer.open(model, settings_of(settings, grad_clip=1e9, updates=1))
    for _ in range(3):
        trainer.step([*recorder.batch(), taught(recorder)])
    return trainer


@pytest.mark.parametrize("method", METHODS)
def test_the_gradient_is_that_of_the_forward_divergence_alone(
    trainer_model: Path, recorder: Recorder, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = moved(trainer_model, recorder, method)
    expected = forward_gradient(trainer, taught(recorder))
    found = gradient_of(trainer, taught(recorder), monkeypatch)
    assert max(float(one.abs().max()) for one in expected) > 1e-4
    for one, other in zip(expected, found, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-6)


def test_of_a_checked_demonstration_the_tokens_are_learned_and_not_what_else_the_teacher_would_say(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = moved(trainer_model, recorder, Method.TOPK)
    shown = SampledReply((10, 11, 12, 14), (-1.0,) * 4, BASE)
    plain = recorder.sample((1, 2, 3), SPOKEN, turn="corrected", hints=(HINT,))
    checked = replace(plain, elsewhere=(OtherRequestReply((4, 5), HINT, shown),), is_literal=True)
    literal = gradient_of(trainer, checked, monkeypatch)
    spread = gradient_of(trainer, replace(checked, is_literal=False), monkeypatch)
    hidden = trainer.model.hidden(torch.tensor([(4, 5, *shown.tokens)]))[0]
    logp = trainer.model.logits(hidden[1:-1]).log_softmax(-1)
    tokens = torch.autograd.grad(-logp[range(4), shown.tokens].mean(), list(dict(trainer.model.named()).values()))
    whole = forward_gradient(trainer, replace(plain, prompt=(4, 5), response=shown.tokens))
    assert max(float((one - other).abs().max()) for one, other in zip(literal, spread, strict=True)) > 1e-3
    for one, other, own, all_of_it in zip(literal, spread, tokens, whole, strict=True):
        # half of the step's eight tokens are the demonstration's
        assert torch.allclose(one - other, 0.5 * (own - all_of_it), rtol=0, atol=1e-6)


def test_neither_a_served_reply_nor_one_that_is_held_is_learned_token_by_token(recorder: Recorder) -> None:
    held = OtherRequestReply((4, 5), HintPrompt("", (4, 5)), SampledReply((10,), (-1.0,), BASE))
    checked = OtherRequestReply((4, 5), HINT, SampledReply((10,), (-1.0,), BASE))
    found = lessons([taught(recorder, elsewhere=(held, checked), is_literal=True)], MethodSettings(name=Method.TOPK))
    assert [lesson.is_literal for lesson in found] == [False, False, True]


def test_what_was_recorded_behind_the_hint_changes_nothing(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = moved(trainer_model, recorder, Method.HYBRID)
    one = gradient_of(trainer, taught(recorder), monkeypatch)
    other = gradient_of(trainer, taught(recorder, logp=(-9.0,) * 4, score=-1.0), monkeypatch)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_weight_scales_it_and_without_weight_there_is_no_step(trainer_model: Path, recorder: Recorder) -> None:
    half = MethodSettings(name=Method.TOPK, w_taught=0.5)
    (lesson,) = lessons([taught(recorder)], half)
    assert shares([lesson], half)[0].distill == pytest.approx(0.5 / 4)
    off = MethodSettings(name=Method.TOPK, w_taught=0.0)
    report = LoraTrainer.open(trainer_model, settings_of(off)).step([taught(recorder)])
    assert not report.took_step and "signal" in report.why


def test_the_policys_own_reply_beside_it_is_learned_from_as_its_own(recorder: Recorder) -> None:
    own = SampledReply((20, 21), recorder.logp((1, 2, 3), (20, 21)), BASE)
    method = MethodSettings(name=Method.COMBINE)
    said, mine = lessons([taught(recorder, own=own)], method)
    assert (said.is_taught, mine.is_taught) == (True, False)
    assert mine.sample.response == (20, 21) and mine.sample.prompt == (1, 2, 3) and mine.hints == (HINT,)
    assert said.advantage is None and mine.advantage is None  # the praise was for the teacher's reply
    weighed = shares([said, mine], method)
    assert weighed[0].policy == 0.0 and weighed[1].policy == pytest.approx(1 / 2)  # 2 tokens of its own
    assert weighed[0].distill == pytest.approx(1 / 4) and weighed[1].distill == 0.0


def test_it_is_left_out_of_the_gap_between_rollout_and_training(trainer_model: Path, recorder: Recorder) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(MethodSettings(name=Method.TOPK)))
    report = trainer.step([taught(recorder)])
    assert "train_rollout_logp_gap" not in report.metrics
    own = SampledReply((20, 21), recorder.logp((1, 2, 3), (20, 21)), BASE)
    trainer = LoraTrainer.open(trainer_model, settings_of(MethodSettings(name=Method.TOPK)))
    assert trainer.step([taught(recorder, own=own)]).metrics["train_rollout_logp_gap"] < 1e-5


def test_steps_on_it_bring_the_bare_prompt_to_the_teacher(trainer_model: Path, recorder: Recorder) -> None:
    method = MethodSettings(name=Method.TOPK, kl_beta=0.0, taught_temperature=1.0)
    trainer = LoraTrainer.open(trainer_model, settings_of(method, lr=1e-2))
    sample = taught(recorder)
    before = policy_logp(trainer, sample).sum()
    first = trainer.step([sample]).metrics["loss_distill"]
    for _ in range(20):
        last = trainer.step([sample]).metrics["loss_distill"]
    assert last < 0.2 * first
    assert abs(float(policy_logp(trainer, sample).sum()) - sum(sample.logp)) < abs(float(before) - sum(sample.logp))


def corrected(recorder: Recorder, *shown: int) -> Sample:
    """A reply of the policy's that a hint objects to, with what the base model is said to say behind the hint."""
    plain = recorder.sample((1, 2, 3), SPOKEN, turn="corrected", score=-1.0, hints=(HINT,))
    return replace(plain, shown=(SampledReply(shown, recorder.logp(HINT.tokens, shown), BASE),) if shown else ())


def test_a_reply_shown_beside_a_corrected_one_is_learned_from_as_the_teachers(recorder: Recorder) -> None:
    method = MethodSettings(name=Method.TOPK)
    served, shown = lessons([corrected(recorder, 30, 31)], method)
    assert (served.is_taught, shown.is_taught) == (False, True)
    assert served.is_corrected and not shown.is_corrected  # the blame was for what was served
    assert shown.sample.response == (30, 31) and shown.sample.prompt == (1, 2, 3) and shown.hints == (HINT,)
    weighed = shares([served, shown], method)
    assert weighed[0].distill == weighed[1].distill == pytest.approx(1 / 6)  # all tokens weigh the same
    (alone,) = lessons([corrected(recorder, 30, 31)], MethodSettings(name=Method.TOPK, w_taught=0.0))
    assert not alone.is_taught


def test_of_a_corrected_reply_of_the_teachers_all_three_are_learned_from(recorder: Recorder) -> None:
    """What was served, what the policy says by itself, and what the teacher shows."""
    own = SampledReply((32, 33), recorder.logp((1, 2, 3), (32, 33)), BASE)
    told = replace(corrected(recorder, 30, 31), is_taught=True, own=own)
    found = lessons([told], MethodSettings(name=Method.TOPK))
    assert [(one.sample.response, one.is_taught) for one in found] == [
        (told.response, True), ((32, 33), False), ((30, 31), True)
    ]  # fmt: skip
    assert all(one.hints == (HINT,) and one.sample.score is None for one in found)


def test_new_words_are_learned_whole_from_a_reply_that_was_shown(trainer_model: Path, recorder: Recorder) -> None:
    """From the corrected reply alone the policy hears what should have come first, and never what follows it."""
    shown = (30, 31, 32, 33, 34)

    def learned(sample: Sample) -> float:
        method = MethodSettings(name=Method.TOPK, kl_beta=0.0, taught_temperature=1.0)
        trainer = LoraTrainer.open(trainer_model, settings_of(method, lr=1e-2))
        said = replace(sample, response=shown, logp=(0.0,) * 5, mask=(True,) * 5, shown=())
        behind = recorder.logp(HINT.tokens, shown)
        for _ in range(10):
            trainer.step([sample])
        return float((policy_logp(trainer, said) - torch.tensor(behind)).abs().sum())

    assert learned(corrected(recorder, *shown)) < 0.5 * learned(corrected(recorder))


def test_what_is_rehearsed_stands_beside_what_is_taught_and_does_not_thin_it_out(recorder: Recorder) -> None:
    corrected = replace(recorder.batch()[0], score=-1.0)
    rehearsal = recorder.sample((4, 5, 6, 7), (20, 21, 22), turn="rehearsal", score=0.0, hints=(HINT,))
    rehearsal = replace(rehearsal, is_promoted=True, rehearses=(HINT.text,))
    bare = replace(rehearsal, turn="bare", hints=(), rehearses=())  # held to the base model alone
    for method in (MethodSettings(), MethodSettings(mean=Mean.SEQUENCE)):
        [alone] = shares(lessons([corrected], method), method)
        weighed = shares(lessons([corrected, rehearsal], method), method)
        assert weighed[0] == alone
        per_token = 1.0 / len(rehearsal.response)
        assert (weighed[1].policy, weighed[1].distill) == (0.0, pytest.approx(per_token))
        assert weighed[1].kl == pytest.approx(method.kl_beta * per_token)
        assert shares(lessons([corrected, bare], method), method)[0].distill == alone.distill
