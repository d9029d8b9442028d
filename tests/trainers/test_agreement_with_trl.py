"""Where the formulas coincide, our losses and gradients are those of TRL, on one model, batch and seed.

Where they differ is said in docs/methods.md. Needs the extra `bench`; behind `make test-peers`.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from trainer_models import Recorder, settings_of

from openclaw_rl.algo.methods.topk import Divergence, bin_divergence, with_tail
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Method, MethodSettings

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
FIRST_MOMENT = 0.9  # AdamW's beta 1, by which a gradient is read out of the moments
ALPHA = {Divergence.FORWARD: 0.0, Divergence.REVERSE: 1.0, Divergence.JSD: 0.5}
PROMPT, REPLY = 4, 5  # all of one length, so that TRL needs no padding


def _samples(recorder: Recorder) -> list[Sample]:
    """Four turns, drawn from the base model's vocabulary, two praised and two blamed, each with a hint."""
    torch.manual_seed(3)
    made = []
    for index in range(4):
        prompt, reply = (tuple(torch.randint(1, 60, (size,)).tolist()) for size in (PROMPT, REPLY))
        hint = HintPrompt("say it otherwise", (*prompt, 40 + index, 41 + index))
        made.append(
            recorder.sample(prompt, reply, turn=f"turn {index}", score=1.0 if index % 2 else -1.0, hints=(hint,))
        )
    return made


def _trained(trainer_model: Path, folder: Path, method: MethodSettings, samples: list[Sample]) -> LoraTrainer:
    """A trainer whose adapter already does something, so that ratios are not 1 and no gradient is 0.

    It makes one plain update a step, so that the step's gradient can be read out of its moments.
    """
    trainer = LoraTrainer.open(
        trainer_model, settings_of(method, lr=3e-3, grad_clip=1e9, beta1=FIRST_MOMENT, still_norm=0.0, updates=1)
    )
    for _ in range(3):
        assert trainer.step(samples).took_step
    trainer.export(folder, PolicyVersion("shared", 1))
    return trainer


def _gradients(trainer: LoraTrainer, samples: list[Sample]) -> tuple[float, dict[str, Tensor]]:
    """One step's loss and the gradient of every LoRA weight, by its name in the adapter's file."""
    before = trainer.optimizer_state()
    report = trainer.step(samples)
    assert report.took_step
    after = trainer.optimizer_state()
    found = {
        name.removesuffix(".exp_avg"): (moment - FIRST_MOMENT * before[name]) / (1 - FIRST_MOMENT)
        for name, moment in after.items()
        if name.endswith(".exp_avg")
    }
    return report.metrics["loss"], found


def _peft(trainer_model: Path, adapter: Path) -> nn.Module:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(trainer_model, dtype=torch.float32)
    model: nn.Module = PeftModel.from_pretrained(base, str(adapter), is_trainable=True)
    return model.eval()


def _peft_gradients(model: nn.Module) -> dict[str, Tensor]:
    return {
        name.replace(".default", ""): weight.grad
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


def _same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    largest = max(float(gradient.abs().max()) for gradient in theirs.values())
    assert largest > 1e-3
    for name, gradient in ours.items():
        assert_close(gradient, theirs[name], rtol=0, atol=2e-6 * max(1.0, largest), msg=lambda told, at=name: at + told)


def _logits(model: nn.Module, prompts: list[tuple[int, ...]], replies: list[tuple[int, ...]]) -> Tensor:
    """Of the replies' tokens, [B, T, V]; all prompts of one length."""
    ids = torch.tensor([prompt + reply for prompt, reply in zip(prompts, replies, strict=True)])
    logits: Tensor = model(input_ids=ids).logits
    return logits[:, len(prompts[0]) - 1 : -1]


def test_the_binary_loss_and_its_gradient_are_grpos(trainer_model: Path, recorder: Recorder, tmp_path: Path) -> None:
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    method = MethodSettings(name=Method.BINARY, kl_beta=0.05, tis_clip=0.0)
    samples = _samples(recorder)
    trainer = _trained(trainer_model, tmp_path / "adapter", method, samples)
    model = _peft(trainer_model, tmp_path / "adapter")
    loss, ours = _gradients(trainer, samples)
    words = {f"t{number}": number for number in range(64)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="t0")), eos_token="t1", pad_token="t0"
    )
    config = GRPOConfig(
        output_dir=str(tmp_path / "trl"),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=REPLY,
        epsilon=0.2,
        epsilon_high=0.28,
        beta=0.05,
        use_bias_correction_kl=False,
        loss_type="bnpo",  # every token of the batch weighs the same
        gradient_checkpointing=False,
        report_to=[],
        disable_tqdm=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = GRPOTrainer(
            model=model,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": "t5"}] * 4),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            processing_class=tokenizer,
        )
    peer.current_gradient_accumulation_steps = 1
    prompts, replies = [one.prompt for one in samples], [one.response for one in samples]
    with torch.no_grad(), model.disable_adapter():
        base = _logits(model, prompts, replies).log_softmax(-1)
    ids = torch.tensor(replies)
    inputs = {
        "prompt_ids": torch.tensor(prompts),
        "prompt_mask": torch.ones(4, PROMPT, dtype=torch.long),
        "completion_ids": ids,
        "completion_mask": torch.ones_like(ids),
        "advantages": torch.tensor([one.score for one in samples]),
        "old_per_token_logps": torch.tensor([one.logp for one in samples]),
        "ref_per_token_logps": base.gather(-1, ids.unsqueeze(-1)).squeeze(-1),
    }
    model.zero_grad()
    theirs = peer._compute_loss(model, inputs)
    theirs.backward()
    assert loss == pytest.approx(float(theirs.detach()), abs=1e-6)
    _same(ours, _peft_gradients(model))


@pytest.mark.parametrize("kind", list(Divergence))
def test_distillation_over_the_whole_vocabulary_is_sdpos_and_gkds(
    trainer_model: Path, recorder: Recorder, tmp_path: Path, kind: Divergence
) -> None:
    from trl.experimental.gkd import GKDTrainer
    from trl.experimental.sdpo.loss_utils import compute_full_logit_self_distillation_loss

    method = MethodSettings(name=Method.TOPK, kl_beta=0.0, top_k=64, divergence=kind.value)
    samples = [replace(one, score=None) for one in _samples(recorder)]
    trainer = _trained(trainer_model, tmp_path / "adapter", method, samples)
    model = _peft(trainer_model, tmp_path / "adapter")
    loss, ours = _gradients(trainer, samples)
    replies = [one.response for one in samples]
    with torch.no_grad(), model.disable_adapter():
        teacher = _logits(model, [one.hints[0].tokens for one in samples], replies)
    model.zero_grad()
    student = _logits(model, [one.prompt for one in samples], replies)
    theirs = compute_full_logit_self_distillation_loss(student, teacher, distillation_alpha=ALPHA[kind]).mean()
    theirs.backward()
    assert loss == pytest.approx(float(theirs.detach()), abs=1e-6)
    _same(ours, _peft_gradients(model))
    gkd = GKDTrainer.generalized_jsd_loss(student, teacher, beta=ALPHA[kind], reduction="sum") / (4 * REPLY)
    assert float(gkd.detach()) == pytest.approx(float(theirs.detach()), abs=1e-6)


@pytest.mark.parametrize("kind", list(Divergence))
def test_a_few_tokens_and_a_tail_are_sdpos_on_the_same_support(kind: Divergence) -> None:
    from trl.experimental.sdpo.loss_utils import compute_topk_self_distillation_loss

    torch.manual_seed(1)
    student, teacher = (2.0 * torch.randn(3, 7, 64) for _ in range(2))
    ours, theirs = (student.clone().requires_grad_() for _ in range(2))
    logp = ours.log_softmax(-1)
    support = logp.detach().topk(8).indices
    teacher_bins = with_tail(teacher.log_softmax(-1).gather(-1, support))
    found = bin_divergence(with_tail(logp.gather(-1, support)), teacher_bins, kind=kind)
    peer = compute_topk_self_distillation_loss(
        theirs, teacher, distillation_topk=8, distillation_alpha=ALPHA[kind], distillation_add_tail=True
    )
    assert_close(found, peer, rtol=0, atol=2e-6)
    found.sum().backward()
    peer.sum().backward()
    assert ours.grad is not None and theirs.grad is not None
    assert_close(ours.grad, theirs.grad, rtol=0, atol=2e-6)
