"""Several updates toward a teacher within one step: when there are more than one, when they end, how far they go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from trainer_models import Recorder, Rows, policy_logp, settings_of

from openclaw_rl.algo.loss import kl_bounded, kl_k3, kl_weighed
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.trainers.descent import Descent, DescentResult, GradientStats, MatrixAdam, settled, walked
from openclaw_rl.trainers.lessons import TermWeights, lessons, shares
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.objective import LossSums, Objective, Targets
from openclaw_rl.trainers.settings import Method, MethodSettings, TrainerSettings

TOPK = MethodSettings(name=Method.TOPK, kl_beta=0.0)
ONE = PolicyVersion("shared", 1)


def told(method: MethodSettings = TOPK, **more: object) -> TrainerSettings:
    return replace(settings_of(method), **more)  # type: ignore[arg-type]


def test_several_updates_bring_the_policy_nearer_to_the_teacher_than_one(
    trainer_model: Path, recorder: Recorder
) -> None:
    left = {}
    for updates in (1, 20):
        trainer = LoraTrainer.open(trainer_model, told(updates=updates, enough=0.0))
        report = trainer.step(recorder.batch())
        assert report.metrics["updates"] == updates
        again = trainer.step(recorder.batch())
        left[updates] = again.metrics["loss_distill"]
    assert left[20] < 0.5 * left[1]


def test_a_step_ends_early_once_little_is_left(trainer_model: Path, recorder: Recorder) -> None:
    trainer = LoraTrainer.open(trainer_model, told(updates=50, enough=0.3))
    report = trainer.step(recorder.batch())
    assert 1 < report.metrics["updates"] < 50
    assert report.metrics["loss_distill_last"] <= 0.3 * report.metrics["loss_distill"]


@pytest.mark.parametrize("name", [Method.BINARY, Method.OPD, Method.COMBINE, Method.HYBRID])
def test_a_score_or_an_advantage_is_followed_once(trainer_model: Path, recorder: Recorder, name: Method) -> None:
    trainer = LoraTrainer.open(trainer_model, told(MethodSettings(name=name), updates=6))
    assert trainer.step(recorder.batch()).metrics["updates"] == 1


def test_where_little_is_to_be_learned_the_weights_hardly_move(trainer_model: Path, recorder: Recorder) -> None:
    """Plain AdamW moves every weight by its whole rate, however small the gradient: that is noise to all else."""
    hinted = recorder.batch()[0]
    little = replace(hinted, hints=(replace(hinted.hints[0], tokens=hinted.prompt),))  # the teacher knows no more
    moved = {}
    for still in (0.0, 1.0):
        trainer = LoraTrainer.open(trainer_model, told(MethodSettings(name=Method.TOPK), still_norm=still, updates=1))
        trainer.step([hinted])
        before = trainer.model.weights()
        trainer.step([little])
        after = trainer.model.weights()
        moved[still] = float(sum((after[name] - one).norm() ** 2 for name, one in before.items()) ** 0.5)
    assert moved[1.0] < 0.5 * moved[0.0]


def test_a_step_of_several_updates_is_the_same_again_from_where_it_was_exported(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    trainer = LoraTrainer.open(trainer_model, told(updates=3, enough=0.0))
    trainer.step(recorder.batch())
    trainer.export(tmp_path / "one", ONE)
    trainer.step(recorder.batch())
    other = LoraTrainer.open(trainer_model, told(updates=3, enough=0.0))
    other.restore(tmp_path / "one")
    other.step(recorder.batch())
    assert all(torch.equal(one, other.model.weights()[name]) for name, one in trainer.model.weights().items())


@pytest.mark.parametrize("rate", [1e-2, 0.3, 3.0])
def test_at_any_rate_a_step_ends_nearer_to_the_teacher_than_it_began(
    trainer_model: Path, recorder: Recorder, rate: float
) -> None:
    trainer = LoraTrainer.open(trainer_model, told(updates=12, enough=0.0, lr=rate, prompts="exact"))
    report = trainer.step(recorder.batch())
    assert report.took_step
    assert report.metrics["loss_distill_last"] < report.metrics["loss_distill"]
    assert report.metrics["updates_undone"] > 0 or rate < 0.1
    again = trainer.step(recorder.batch()).metrics["loss_distill"]  # and the weights are those of that distance
    assert again == pytest.approx(report.metrics["loss_distill_last"], rel=1e-3)


def test_a_reply_that_a_step_of_several_updates_leaves_behind_does_not_hold_it() -> None:
    """An earlier reply in a style that its user unlearns in this step: one token may be 12 nats less likely."""
    policy = torch.tensor([[-12.0, 0.0, -12.0]])
    targets = Targets(torch.tensor([0]), torch.zeros(1), TermWeights(0.0, 0.0, 1.0), logp_ref=torch.tensor([-0.1]))
    pulls = []
    for form in (kl_weighed, kl_bounded, kl_k3):
        objective = Objective(Rows(), MethodSettings(), 1024, Rows())
        found = replace(targets, divergence=form)
        pulls.append(float(objective.gradient(policy, found, LossSums(), is_own=False).norm()))
    assert pulls[0] < 1e-3 and 1.0 < pulls[1] < 10.0 and pulls[2] > 1e5


@pytest.mark.parametrize(("updates", "forms"), [(1, [kl_k3, kl_k3]), (5, [kl_bounded, kl_weighed])])
def test_in_a_step_of_several_updates_the_anchor_cannot_pull_without_bound(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, updates: int, forms: list[object]
) -> None:
    seen: list[Targets] = []
    own = Objective.gradient

    def noted(self: Objective, hidden: Tensor, targets: Targets, tally: LossSums, *, is_own: bool) -> Tensor:
        seen.append(targets)
        return own(self, hidden, targets, tally, is_own=is_own)

    monkeypatch.setattr(Objective, "gradient", noted)
    hinted, praised, _ = recorder.batch()
    LoraTrainer.open(trainer_model, told(updates=updates)).step([hinted, praised])
    first = {tuple(one.ids.tolist()): one.divergence for one in seen}
    assert [first[hinted.response], first[praised.response]] == forms


@pytest.mark.parametrize(("said_at", "is_taught", "far"), [(-0.2, True, 1), (-1.0, True, 0), (-0.2, False, 0)])
def test_a_token_is_far_that_its_teacher_said_and_the_policy_hardly_would(
    said_at: float, is_taught: bool, far: int
) -> None:
    policy = torch.tensor([[-1.5, 0.0]])  # of the token that was said: -1.7
    own, shares, tally = torch.tensor([0]), TermWeights(0.0, 0.0, 1.0), LossSums()
    targets = Targets(own, torch.tensor([said_at]), shares, logp_ref=torch.zeros(1), is_taught=is_taught)
    Objective(Rows(), MethodSettings(), 1024, Rows()).gradient(policy, targets, tally, is_own=False)
    assert (tally.far_tokens, tally.taught_tokens) == (far, int(is_taught))


def test_a_trainer_takes_a_gentle_step(trainer_model: Path, recorder: Recorder) -> None:
    moved = []
    for gentleness in (0, 3):
        trainer = LoraTrainer.open(trainer_model, told(updates=1, enough=0.0, lr=1e-3))
        before = trainer.model.weights()
        assert trainer.step(recorder.batch(), gentleness=gentleness).took_step
        moved.append(max(float((one - before[name]).abs().max()) for name, one in trainer.model.weights().items()))
    assert moved[1] == pytest.approx(0.027 * moved[0], rel=1e-2)


def test_a_rate_that_settles_takes_smaller_updates_and_goes_on_so_from_a_version(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    # after one update, the second takes lr * 1 / 2: from equal weights and moments it moves every weight half as far
    blamed = recorder.batch()[2]
    scored = MethodSettings(name=Method.BINARY, kl_beta=0.0)
    steady, settling = (LoraTrainer.open(trainer_model, told(scored, settle_after=after)) for after in (0, 1))
    moved = []
    for trainer in (steady, settling):
        trainer.step([blamed])
        first = trainer.export(tmp_path / str(trainer is settling), ONE)
        trainer.restore(first.folder)  # the count of updates is the version's
        before = trainer.model.weights()
        trainer.step([blamed])
        after = trainer.model.weights()
        moved.append(({name: before[name] for name in before}, {name: after[name] - before[name] for name in before}))
    assert all(torch.equal(moved[0][0][name], moved[1][0][name]) for name in moved[0][0])
    for name, whole in moved[0][1].items():
        torch.testing.assert_close(moved[1][1][name], whole / 2, rtol=1e-3, atol=1e-7)
    assert any(bool(whole.abs().max() > 1e-5) for whole in moved[0][1].values())


@pytest.mark.parametrize(
    ("update", "after", "factor"), [(1, 0, 1.0), (99, 0, 1.0), (4, 4, 1.0), (5, 4, 0.8), (99, 4, 0.1)]
)
def test_the_rate_falls_only_after_the_given_updates(update: int, after: int, factor: float) -> None:
    assert settled(update, after) == pytest.approx(factor, abs=1e-12)


def test_an_update_that_is_undone_leaves_no_trace() -> None:
    """Weights, moments and count are those of an optimiser that took the smaller update, without earlier directions."""
    taken, plain = (torch.nn.Parameter(torch.tensor([3.0, -2.0])) for _ in range(2))
    optimizer, other = (torch.optim.AdamW([one], lr=1.0) for one in (taken, plain))
    descent = Descent(optimizer, {"w": taken}, can_undo=True)
    for distance, is_kept, rate in [(9.0, True, None), (12.0, False, 0.5), (8.0, True, None), (8.5, False, 0.325)]:
        taken.grad = 2 * taken.detach() + (0.0 if is_kept else 100.0)  # a gradient of where it is not to stay
        assert descent.arrived(distance) is is_kept
        if rate is not None:
            other.param_groups[0]["lr"] = rate  # half of 1, and then half of what had grown to 0.65
            plain.grad = 2 * plain.detach()
            for held in other.state.values():
                held["exp_avg"].zero_()
            other.step()
        descent.update()
        if rate is not None:
            assert torch.equal(taken, plain)
            assert all(torch.equal(value, optimizer.state[taken][kind]) for kind, value in other.state[plain].items())
    assert descent.undone == 2


def test_a_direction_that_leads_away_is_forgotten() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    descent = Descent(torch.optim.AdamW([weight], lr=1e-3, weight_decay=0.0), {"w": weight}, can_undo=True)
    weight.grad = torch.full((1,), -100.0)  # an earlier gradient, which points the other way
    assert descent.arrived(2.0)
    descent.update()
    while weight.item() >= 1.0 and not descent.is_over:
        weight.grad = 2 * weight.detach()
        descent.arrived(weight.item() ** 2)
        descent.update()
    assert weight.item() < 1.0


def test_a_matrix_moves_in_the_direction_of_its_own_gradient() -> None:
    """Adam's formulas with the mean square of a matrix's gradient in place of each weight's own square."""
    large, small = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
    settings = TrainerSettings(lr=0.1, beta1=0.5, beta2=0.9, still_norm=0.0, weight_decay=0.0)
    optimizer = MatrixAdam([large, small], settings)
    large.grad, small.grad = torch.tensor([30.0, -40.0]), torch.tensor([0.0, 1e-3])
    optimizer.step()  # g / sqrt(mean g^2): sqrt((900 + 1600) / 2) = 35.355, sqrt(1e-6 / 2) = 7.071e-4
    torch.testing.assert_close(large.detach(), torch.tensor([-0.084853, 0.113137]), rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(small.detach(), torch.tensor([0.0, -0.141421]), rtol=1e-4, atol=1e-7)
    large.grad = torch.tensor([0.0, 10.0])
    optimizer.step()
    # m = (7.5, -5), m' = m / 0.75; v = 0.9 * 125 + 0.1 * 50 = 117.5, v' = v / 0.19 = 618.42, whose root is 24.868
    torch.testing.assert_close(large.detach(), torch.tensor([-0.125065, 0.139945]), rtol=1e-4, atol=1e-7)


def test_a_matrix_without_a_gradient_stays_until_it_has_one() -> None:
    weight, unused = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = MatrixAdam([weight, unused], TrainerSettings(lr=0.1, still_norm=0.0))
    for gradient in (torch.zeros(2), torch.tensor([0.0, 1e-6])):
        weight.grad = gradient
        optimizer.step()
    assert unused.tolist() == [1.0, 1.0] and weight[0].item() == 1.0
    assert 0.8 < weight[1].item() < 0.95  # about the whole rate


def test_a_small_first_gradient_makes_all_of_a_steps_rates_smaller() -> None:
    moved = []
    for still in (0.0, 5.0):
        weight = torch.nn.Parameter(torch.zeros(2))
        optimizer = MatrixAdam([weight], TrainerSettings(lr=0.1, still_norm=still))
        for gradient in ([0.3, 0.4], [30.0, 40.0]):  # a tenth of the norm that is asked for, and then plenty
            weight.grad = torch.tensor(gradient)
            optimizer.step()
        moved.append(weight.detach())
    torch.testing.assert_close(moved[1], moved[0] / 10, rtol=1e-5, atol=1e-9)


def test_a_step_of_several_updates_leaves_nothing_of_its_gradients(trainer_model: Path, recorder: Recorder) -> None:
    """The next one begins anew: what a forgotten turn taught is not in it, and a version has no moments to keep."""
    trainer = LoraTrainer.open(trainer_model, told(updates=3, enough=0.0))
    assert trainer.step(recorder.batch()).metrics["updates"] == 3
    assert trainer.optimizer_state() == {}


def test_a_rate_that_settles_does_not_count_updates_toward_a_teacher(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    """AdamW's moments and their count are those of steps of one update, whatever was taught between them."""
    blamed, moved = recorder.batch()[2], []
    scored = MethodSettings(name=Method.BINARY, kl_beta=0.0)
    scores = LoraTrainer.open(trainer_model, told(scored))
    scores.step([blamed])
    first = scores.export(tmp_path / "first", ONE)
    teacher = LoraTrainer.open(trainer_model, told(updates=4, enough=0.0))
    teacher.restore(first.folder)
    assert teacher.step(recorder.batch()).metrics["updates"] == 4
    second = teacher.export(tmp_path / "second", PolicyVersion("shared", 2))
    for after in (0, 1):  # the second update with AdamW has the whole rate, or lr * 1 / 2
        trainer = LoraTrainer.open(trainer_model, told(scored, settle_after=after))
        trainer.restore(second.folder)
        before = trainer.model.weights()
        trainer.step([blamed])
        moved.append({name: one - before[name] for name, one in trainer.model.weights().items()})
    assert any(bool(whole.abs().max() > 1e-5) for whole in moved[0].values())
    for name, whole in moved[0].items():
        torch.testing.assert_close(moved[1][name], whole / 2, rtol=1e-3, atol=1e-7)


def _steps_to(distances: Sequence[float], *, enough: float = 0.03, far: int = 0) -> tuple[DescentResult, list[float]]:
    """A step that meets these distances one after the other, and the rates of its updates."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    left, rates = list(distances), []
    optimizer.register_step_pre_hook(lambda one, *_: rates.append(one.param_groups[0]["lr"]))

    def measured() -> GradientStats:
        weight.grad = torch.zeros(1)
        return GradientStats(LossSums(distill=left.pop(0), far_tokens=far, taught_tokens=200), 1.0, [])

    descent = Descent(optimizer, {"w": weight}, can_undo=True)
    return walked(descent, measured, lambda: left[0], most=40, enough=enough), rates


def test_the_rate_grows_faster_until_an_update_is_undone() -> None:
    _, rates = _steps_to([9.0, 8.0, 7.0, 7.5, 6.0, 5.0, 4.0, 0.1, 0.1])
    assert rates[:7] == pytest.approx([1.0, 1.5, 2.25, 1.125, 1.125 * 1.3, 1.125 * 1.3**2, 1.125 * 1.3**3])


def test_the_rate_grows_to_twenty_times_the_first_at_most() -> None:
    _, rates = _steps_to([100.0 - update for update in range(31)] + [0.1, 0.1])
    assert rates[-1] == max(rates) == 20.0


def test_the_rate_stays_where_an_update_halved_the_distance() -> None:
    _, rates = _steps_to([9.0, 4.4, 2.1, 1.2, 1.3, 0.5, 0.4, 0.1, 0.1])
    assert rates[:7] == pytest.approx([1.0, 1.0, 1.0, 1.5, 0.75, 0.75, 0.75 * 1.3])


def test_a_step_ends_where_little_is_left_and_several_updates_hardly_lower_it() -> None:
    slow = [1.0, 0.5, 0.05, 0.048, 0.046, 0.044, 0.042, 0.04, 0.02, 0.002, 0.002]
    near, _ = _steps_to(slow, enough=0.003)  # 0.04 is more than three quarters of 0.05, five updates before
    assert (near.updates, near.distance) == (8, 0.02)  # one update was due
    on_the_way, _ = _steps_to(slow, enough=0.003, far=3)  # a kind is not learned yet: updates soon lower it quickly
    assert (on_the_way.updates, on_the_way.distance) == (10, 0.002)
    single, _ = _steps_to(slow, enough=0.003, far=2)  # one token in a hundred may be what lessons do not agree on
    assert (single.updates, single.distance) == (8, 0.02)
    quick, _ = _steps_to([*slow[:7], 0.03, 0.02, 0.01, 0.002, 0.002], enough=0.003)
    assert (quick.updates, quick.distance) == (11, 0.002)
    far, _ = _steps_to([10.0, *(20 * one for one in slow[2:9]), 0.02, 0.02], enough=0.003)
    assert (far.updates, far.distance) == (9, 0.02)  # as slow, and much is left


def test_where_no_update_helps_none_is_taken_and_the_weights_stay(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = LoraTrainer.open(trainer_model, told(updates=3, enough=0.0, lr=1e9))
    before = trainer.model.weights()
    report = trainer.step(recorder.batch())
    assert not report.took_step and "came nearer" in report.why
    assert all(torch.equal(one, before[name]) for name, one in trainer.model.weights().items())


def test_what_is_not_finite_at_first_leaves_no_version_behind(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = LoraTrainer.open(trainer_model, told(updates=3, enough=0.0))
    monkeypatch.setattr(LoraTrainer, "_accumulate", lambda *given: ["hinted"])
    report = trainer.step(recorder.batch())
    assert not report.took_step and "finite" in report.why
    assert ("hinted", "not_finite") in report.dropped
    monkeypatch.undo()
    assert torch.allclose(policy_logp(trainer, recorder.batch()[0]), torch.tensor(recorder.batch()[0].logp), atol=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"updates": 0}, {"enough": 1.0}, {"enough": -0.1}, {"still_norm": -1.0}, {"settle_after": -1}]
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"updates|enough|settle"):
        TrainerSettings(**wrong)  # type: ignore[arg-type]


def test_the_anchor_does_not_hold_where_the_hint_says_otherwise(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = LoraTrainer.open(trainer_model, told(MethodSettings(name=Method.TOPK, kl_beta=1.0)))
    sample = recorder.batch()[0]
    hinted = torch.tensor(recorder.logp(sample.hints[0].tokens, sample.response))
    moved = (hinted - torch.tensor(sample.logp)).abs()
    bound = float(moved.sort().values[1:3].mean())  # a random model changes its mind by little: half of it is over this
    monkeypatch.setattr("openclaw_rl.trainers.objective.HINTED_NATS", bound)
    taught = lessons([sample], trainer._method)
    (target,) = trainer._targets(taught, shares(taught, trainer._method), form=None, is_once=False)
    assert target.anchored is not None
    assert torch.equal(target.anchored == 0.0, moved >= bound)
    assert int(target.anchored.sum()) == 2
    praised = lessons([replace(sample, hints=(), score=1.0)], trainer._method)
    (scored,) = trainer._targets(praised, shares(praised, trainer._method), form=None, is_once=False)
    assert scored.anchored is None
