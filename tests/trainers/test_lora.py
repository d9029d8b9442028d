from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trainer_models import Recorder, policy_logp, save_model, settings_of
from transformers import AutoModelForCausalLM

from openclaw_rl.algo.method import HintSelection
from openclaw_rl.core.sample import HintPrompt, Outcome, Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import AdapterError, ConfigError, ModelError
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Distill, Mean, Method, MethodSettings, TeacherKind

ONE = PolicyVersion("shared", 1)
TWO = PolicyVersion("shared", 2)


def of(name: Method, **more: object) -> MethodSettings:
    return replace(MethodSettings(name=name), **more)  # type: ignore[arg-type]


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_praise_makes_a_reply_likelier_and_blame_less_likely(trainer_model: Path, recorder: Recorder) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(of(Method.BINARY)))
    _, praised, blamed = recorder.batch()
    report = trainer.step([praised, blamed])
    assert report.took_step
    assert policy_logp(trainer, praised).sum() > sum(praised.logp) + 0.1
    assert policy_logp(trainer, blamed).sum() < sum(blamed.logp) - 0.1
    # 3 tokens of advantage 1 and 5 of -1 at ratio 1: loss -(3 - 5) / 8
    assert report.metrics["loss_policy"] == pytest.approx(0.25, abs=1e-5)
    assert report.metrics["advantage_abs"] == pytest.approx(1.0, abs=1e-6)


def test_a_hint_moves_each_token_the_way_the_hinted_base_model_leans(trainer_model: Path, recorder: Recorder) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(of(Method.OPD)))
    hinted = recorder.batch()[0]
    lean = torch.tensor(recorder.logp(hinted.hints[0].tokens, hinted.response)) - torch.tensor(hinted.logp)
    assert bool((lean > 0.05).any()) and bool((lean < -0.05).any())
    for _ in range(6):
        trainer.step([hinted])
    moved = policy_logp(trainer, hinted) - torch.tensor(hinted.logp)
    told = lean.abs() > 0.05
    assert torch.equal(moved[told] > 0, lean[told] > 0)


@pytest.mark.parametrize("name", list(Method))
def test_a_method_takes_no_step_over_a_batch_without_its_signal(
    trainer_model: Path, recorder: Recorder, name: Method
) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(of(name)))
    trainer.step(recorder.batch())
    before, moments = trainer.model.weights(), trainer.optimizer_state()
    bare = recorder.sample((5, 6), (7, 8))
    zero = recorder.sample((5, 6), (7, 9), turn="zero", score=0.0)
    promoted = replace(zero, turn="promoted", is_promoted=True, baseline=0.5)
    alike = [replace(recorder.sample((5, 6), (7, at), turn=str(at), score=1.0), group="g") for at in (10, 11)]
    report = trainer.step([bare, zero, promoted, *alike])
    assert not report.took_step
    assert "signal" in report.why
    assert equal(trainer.model.weights(), before)
    assert equal(trainer.optimizer_state(), moments)


def test_hints_are_no_signal_for_binary_and_scores_none_for_opd(trainer_model: Path, recorder: Recorder) -> None:
    hinted, praised, _ = recorder.batch()
    assert not LoraTrainer.open(trainer_model, settings_of(of(Method.BINARY))).step([hinted]).took_step
    assert not LoraTrainer.open(trainer_model, settings_of(of(Method.OPD))).step([praised]).took_step


def test_a_loss_that_is_not_finite_drops_the_step_and_names_the_turn(trainer_model: Path, recorder: Recorder) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(of(Method.COMBINE)))
    trainer.step(recorder.batch())
    before, moments = trainer.model.weights(), trainer.optimizer_state()
    hinted, praised, blamed = recorder.batch()
    # exp(logp - (-1000)) is infinite
    broken = replace(blamed, logp=(-1000.0,) * len(blamed.logp))
    report = trainer.step([hinted, praised, broken])
    assert not report.took_step
    assert "finite" in report.why
    assert report.dropped == (("blamed", "not_finite"),)
    assert equal(trainer.model.weights(), before)
    assert equal(trainer.optimizer_state(), moments)


@pytest.mark.parametrize("name", list(Method))
def test_equal_state_and_samples_give_equal_bits(trainer_model: Path, recorder: Recorder, name: Method) -> None:
    weights = []
    for _ in range(2):
        trainer = LoraTrainer.open(trainer_model, settings_of(of(name)))
        for _ in range(3):
            assert trainer.step(recorder.batch()).took_step
        weights.append(trainer.model.weights())
    assert equal(*weights)


@pytest.mark.parametrize("teacher", [TeacherKind.BASE, TeacherKind.EMA])
def test_training_goes_on_from_a_version_bit_for_bit(
    trainer_model: Path, recorder: Recorder, tmp_path: Path, teacher: TeacherKind
) -> None:
    settings = settings_of(of(Method.HYBRID, teacher=teacher, w_opd=1.0))
    trainer = LoraTrainer.open(trainer_model, settings)
    base = trainer.model.weights()
    trainer.step(recorder.batch())
    first = trainer.export(tmp_path / "1", ONE)
    at_first = trainer.model.weights()
    trainer.step(recorder.batch())
    second = trainer.export(tmp_path / "2", TWO)

    trainer.restore(first.folder)
    assert equal(trainer.model.weights(), at_first)
    trainer.step(recorder.batch())
    assert trainer.export(tmp_path / "again", TWO).digest == second.digest

    other = LoraTrainer.open(trainer_model, settings)
    other.restore(first.folder)
    other.step(recorder.batch())
    assert other.export(tmp_path / "other", TWO).digest == second.digest

    trainer.restore(None)
    assert equal(trainer.model.weights(), base)
    assert trainer.optimizer_state() == {}


def test_the_gap_is_measured_only_against_the_weights_that_sampled(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of())
    hinted = recorder.batch()[0]
    assert trainer.step([hinted]).metrics["train_rollout_logp_gap"] < 1e-5
    trainer.export(tmp_path / "1", ONE)
    assert "train_rollout_logp_gap" not in trainer.step([hinted]).metrics
    trainer.restore(tmp_path / "1")
    own = replace(hinted, version=ONE, logp=tuple(value - 0.5 for value in policy_logp(trainer, hinted).tolist()))
    assert trainer.step([own, hinted]).metrics["train_rollout_logp_gap"] == pytest.approx(0.5, abs=1e-5)


def test_the_anchor_pulls_a_policy_back_to_the_base(trainer_model: Path, recorder: Recorder) -> None:
    divergence = {}
    for beta in (0.0, 3.0):
        trainer = LoraTrainer.open(trainer_model, settings_of(of(Method.BINARY, kl_beta=beta)))
        samples = recorder.batch()[1:]
        for _ in range(10):
            trainer.step(samples)
        difference = torch.cat([torch.tensor(one.logp) - policy_logp(trainer, one) for one in samples])
        divergence[beta] = float((difference.expm1() - difference).mean())
    assert divergence[3.0] < 0.5 * divergence[0.0]


def test_masked_tokens_have_no_part_in_the_loss(trainer_model: Path, recorder: Recorder) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(of(Method.BINARY)))
    praised = replace(recorder.batch()[1], mask=(True, False, False))
    report = trainer.step([praised])
    assert report.metrics["tokens"] == 1.0
    assert report.metrics["loss_policy"] == pytest.approx(-1.0, abs=1e-5)


def test_a_token_that_a_grammar_left_nearly_nothing_of_hardly_moves(trainer_model: Path, recorder: Recorder) -> None:
    sample = recorder.sample((8, 9), (30, 31, 32, 33), score=-1.0)
    of_free = replace(sample, mask=(True, True, False, False))
    moved = []
    for kept in ((), (0.0,) * 4, (-1e9,) * 4):
        trainer = LoraTrainer.open(trainer_model, settings_of(of(Method.BINARY)))
        report = trainer.step([replace(of_free, kept=kept)])
        moved.append(report.metrics["advantage_abs"])
    # blamed by 1 at each token: a share of 1 counts in full, none of it nothing
    assert moved == pytest.approx([1.0, 1.0, 0.0], abs=1e-6)


def test_replies_of_one_group_are_compared_with_each_other(trainer_model: Path, recorder: Recorder) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(of(Method.BINARY)))
    scores = (1.0, -1.0, 1.0, 0.0)
    group = [
        replace(recorder.sample((1, 2), (10 + at, 20), turn=str(at), score=score), group="g")
        for at, score in enumerate(scores)
    ]
    # 0.90, -1.51, 0.90, -0.30: mean absolute 0.905
    assert trainer.step(group).metrics["advantage_abs"] == pytest.approx(0.9045, abs=1e-3)


def test_an_outcome_counts_beside_the_steps_score(trainer_model: Path, recorder: Recorder) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(of(Method.BINARY, step_coefficient=0.5)))
    sample = replace(recorder.batch()[1], outcome=Outcome(1.0, True), score=1.0, baseline=0.25)
    assert trainer.step([sample]).metrics["advantage_abs"] == pytest.approx(1.25, abs=1e-6)


def test_a_sample_longer_than_the_model_reads_is_dropped_and_the_rest_is_trained(
    trainer_model: Path, recorder: Recorder
) -> None:
    hinted = recorder.batch()[0]
    long = replace(hinted, turn="long", prompt=(1,) * 256)
    report = LoraTrainer.open(trainer_model, settings_of()).step([long, hinted])
    assert report.took_step
    assert report.dropped == (("long", "too_long"),)


@pytest.mark.parametrize("selection", list(HintSelection))
@pytest.mark.parametrize("form", list(Distill))
def test_of_several_hints_one_is_learned_from(
    trainer_model: Path, recorder: Recorder, selection: HintSelection, form: Distill
) -> None:
    hinted = recorder.batch()[0]
    hints = (*hinted.hints, HintPrompt("no", (1, 2, 3, 50)))
    method = of(Method.HYBRID, w_opd=1.0, hint_selection=selection, distill=form, top_k=4)
    report = LoraTrainer.open(trainer_model, settings_of(method)).step([replace(hinted, hints=hints)])
    assert report.took_step
    alone = {}
    for hint in hints:
        trainer = LoraTrainer.open(trainer_model, settings_of(method))
        alone[hint.text] = trainer.step([replace(hinted, hints=(hint,))]).metrics["loss"]
    chosen = {HintSelection.LONGEST: "say the other thing", HintSelection.SHORTEST: "no"}
    if selection in chosen:
        assert report.metrics["loss"] == pytest.approx(alone[chosen[selection]], abs=1e-6)
    elif selection is not HintSelection.TOKEN:
        assert min(abs(report.metrics["loss"] - loss) for loss in alone.values()) < 1e-6
        assert len({round(loss, 5) for loss in alone.values()}) == len(hints)


@pytest.mark.parametrize("order", [1, -1])
def test_a_corrected_reply_learns_under_the_hint_behind_which_it_is_least_likely(
    trainer_model: Path, recorder: Recorder, order: int
) -> None:
    hinted = replace(recorder.batch()[0], score=-1.0)
    hints = (*hinted.hints, HintPrompt("no", (1, 2, 3, 50)), HintPrompt("much more", (1, 2, 3, 60, 61)))
    likely = {hint.text: sum(recorder.logp(hint.tokens, hinted.response)) for hint in hints}
    losses = {}
    for hint in hints:
        trainer = LoraTrainer.open(trainer_model, settings_of(of(Method.TOPK)))
        losses[hint.text] = trainer.step([replace(hinted, hints=(hint,))]).metrics["loss"]
    trainer = LoraTrainer.open(trainer_model, settings_of(of(Method.TOPK)))
    report = trainer.step([replace(hinted, hints=hints[::order])])
    assert report.metrics["loss"] == pytest.approx(losses[min(likely, key=lambda text: likely[text])], abs=1e-6)
    assert len({round(loss, 5) for loss in losses.values()}) == len(hints)


def test_the_selected_form_keeps_to_the_hint_of_most_agreement() -> None:
    assert of(Method.TOPK).selection is HintSelection.CONTRARY
    assert of(Method.HYBRID).selection is HintSelection.SEQUENCE
    assert of(Method.TOPK, hint_selection=HintSelection.TOKEN).selection is HintSelection.TOKEN


def test_the_mean_over_sequences_lets_a_short_reply_weigh_as_much_as_a_long_one(
    trainer_model: Path, recorder: Recorder
) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(of(Method.BINARY, mean=Mean.SEQUENCE)))
    report = trainer.step(recorder.batch()[1:])  # -1 and +1, each the mean of its tokens
    assert report.metrics["loss_policy"] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("kind", ["qwen3", "llama", "gemma", "gemma2", "qwen2", "qwen3_moe"])
def test_every_family_steps_and_records_agree_with_plain_transformers(tmp_path: Path, kind: str) -> None:
    folder = save_model(tmp_path / kind, kind)
    own = Recorder(folder)
    trainer = LoraTrainer.open(folder, settings_of(of(Method.HYBRID, w_opd=1.0)))
    report = trainer.step(own.batch())
    assert report.took_step
    assert report.metrics["train_rollout_logp_gap"] < 1e-5
    assert report.metrics["kl"] < 1e-8
    assert trainer.step(own.batch()).metrics["kl"] > 1e-6
    assert not any("expert" in name for name in trainer.model.weights())


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
@pytest.mark.parametrize("kind", ["qwen3", "qwen2", "qwen3_moe"])
def test_peft_reads_an_exported_adapter_and_says_the_same(tmp_path: Path, kind: str) -> None:
    from peft import PeftModel

    folder = save_model(tmp_path / kind, kind)
    own = Recorder(folder)
    trainer = LoraTrainer.open(folder, settings_of(of(Method.COMBINE)))
    trainer.step(own.batch())
    adapter = trainer.export(tmp_path / "adapter", ONE)
    praised = own.batch()[1]
    own.model = PeftModel.from_pretrained(own.model, str(adapter.folder)).eval()
    theirs = torch.tensor(own.logp(praised.prompt, praised.response))
    assert float((theirs - policy_logp(trainer, praised)).abs().max()) < 1e-5
    assert float((theirs - torch.tensor(praised.logp)).abs().max()) > 1e-3


def test_layers_may_be_named(trainer_model: Path) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(targets="q_proj, v_proj"))
    assert {path.rpartition(".")[2] for path in trainer.model.loras} == {"q_proj", "v_proj"}
    with pytest.raises(ConfigError, match="nothing_proj"):
        LoraTrainer.open(trainer_model, settings_of(targets="nothing_proj"))


def test_a_folder_without_a_model_is_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no causal language model"):
        LoraTrainer.open(tmp_path, settings_of())


def _damaged(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "trainer_state.safetensors", "trainer_state.json"])
def test_a_damaged_version_is_refused_and_nothing_has_changed(
    trainer_model: Path, recorder: Recorder, tmp_path: Path, name: str
) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of())
    trainer.step(recorder.batch())
    adapter = trainer.export(tmp_path / "1", ONE)
    trainer.step(recorder.batch())
    before = trainer.model.weights()
    _damaged(adapter.folder, name)
    with pytest.raises(AdapterError, match="no adapter that training can continue from"):
        trainer.restore(adapter.folder)
    assert equal(trainer.model.weights(), before)
    other = LoraTrainer.open(trainer_model, settings_of(rank=2))
    other.export(tmp_path / "2", ONE)
    with pytest.raises(AdapterError, match="rank"):
        trainer.restore(tmp_path / "2")


def test_a_sample_of_another_version_is_weighed_by_a_truncated_ratio(trainer_model: Path, recorder: Recorder) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(of(Method.BINARY, kl_beta=0.0)))
    blamed: Sample = recorder.batch()[2]
    # every token is e^3 times as likely now as when it was sampled: the ratio counts as 2, so the loss is 2
    stale = replace(blamed, version=ONE, logp=tuple(value - 3.0 for value in blamed.logp))
    assert trainer.step([stale]).metrics["loss_policy"] == pytest.approx(2.0, abs=1e-5)


def test_a_folder_of_pickled_weights_is_refused_unread(trainer_model: Path, tmp_path: Path) -> None:
    folder, marker = tmp_path / "pickled", tmp_path / "ran"
    shutil.copytree(trainer_model, folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(f"cos\nsystem\n(S'touch {marker}'\ntR.".encode())
    with pytest.raises(ModelError, match="holds no causal language model"):
        LoraTrainer.open(folder, settings_of())
    assert not marker.exists()


def test_an_attention_that_would_be_fetched_by_its_name_is_refused(trainer_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "foreign"
    shutil.copytree(trainer_model, folder)
    told = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**told, "attn_implementation": "someone/own-kernel"}))
    with pytest.raises(ModelError, match="someone/own-kernel"):
        LoraTrainer.open(folder, settings_of())


def test_weights_in_half_precision_leave_positions_in_full(trainer_model: Path) -> None:
    model = LoraTrainer.open(trainer_model, settings_of(dtype="bfloat16")).model
    alone = AutoModelForCausalLM.from_pretrained(trainer_model, dtype=torch.bfloat16).eval()
    ids = torch.randint(0, model.vocabulary, (1, 240), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model.logits(model.hidden(ids)[0]), alone(input_ids=ids).logits[0].float())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_trainer_on_a_gpu_goes_on_from_what_was_written(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    settings = settings_of(of(Method.BINARY), device="cuda", dtype="float32")
    trainer = LoraTrainer.open(trainer_model, settings)
    trainer.step(recorder.batch())
    written = trainer.export(tmp_path / "1", ONE)
    trainer.step(recorder.batch())
    other = LoraTrainer.open(trainer_model, settings)
    other.restore(written.folder)
    other.step(recorder.batch())
    torch.testing.assert_close(other.model.weights(), trainer.model.weights(), rtol=0, atol=1e-5)
