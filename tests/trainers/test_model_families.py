"""Models of many families: the trainer computes what the model computes, adapts what reads text, and the engine
serves what it wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from trainer_models import Recorder, policy_logp, settings_of
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Gemma3Config,
    Gemma3TextConfig,
    PreTrainedConfig,
    SiglipVisionConfig,
)

from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.local.adapters import read_adapter
from openclaw_rl.engines.local.build import open_core
from openclaw_rl.engines.local.wire import Submit
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.errors import ModelError
from openclaw_rl.trainers.head import TRIED, check_same, read_text
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Method, MethodSettings
from openclaw_rl.weights.shared import is_linear

ONE = PolicyVersion("shared", 1)
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
NO_HEAD_DIM = {key: value for key, value in SMALL.items() if key != "head_dim"}
PER_LAYER = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64, "num_kv_shared_layers": 0}
BOTH = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}
GLOBAL = {"global_head_dim": 8, "num_global_key_value_heads": 2}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
EXPERTS = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
# What is unusual of each: fused linears, calls by position, norms after the layers, a part of the layers called by
# itself, parameters for each layer, shared names of linears and lists, latent attention, layers without attention.
FAMILIES: dict[str, dict[str, object]] = {
    "phi3": SMALL,
    "gpt_neox": SMALL,
    "olmo2": SMALL,
    "opt": SMALL | {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "cohere2": SMALL | BOTH,
    "smollm3": SMALL,
    "gemma4_text": SMALL | BOTH | PER_LAYER | GLOBAL,
    "gemma3n_text": SMALL | BOTH | PER_LAYER | {"laurel_rank": 4},
    "deepseek_v3": NO_HEAD_DIM | LATENT | EXPERTS | {"num_key_value_heads": 4},
    "qwen3_5_text": SMALL | LINEAR,
}
NOT_SERVED = {"qwen3_5_text"}


def saved(config: PreTrainedConfig, folder: Path) -> Path:
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.15)
    model.float().save_pretrained(folder)
    return folder


def tiny(family: str, folder: Path) -> Path:
    return saved(AutoConfig.for_model(family, **FAMILIES[family]), folder)


def seeing(folder: Path) -> Path:
    """A model that also reads pictures, as the larger ones of Gemma 3 do."""
    text = Gemma3TextConfig(**SMALL, **BOTH)
    eye = SiglipVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8
    )
    return saved(Gemma3Config(text_config=text, vision_config=eye, image_token_id=60, boi_token_index=61), folder)


def trained(folder: Path) -> LoraTrainer:
    """After three steps on votes, of which the first starts where the model itself is."""
    trainer = LoraTrainer.open(folder, settings_of(MethodSettings(name=Method.BINARY)))
    batch = Recorder(folder).batch()
    report = trainer.step(batch)
    assert report.took_step
    assert report.metrics["train_rollout_logp_gap"] < 1e-5
    for _ in range(2):
        assert trainer.step(batch).took_step
    return trainer


def served_as_trained(folder: Path, trainer: LoraTrainer) -> None:
    """The engine samples by the adapter with the log-probabilities that the trainer gives to what was sampled."""
    core = open_core(EngineSettings(model=str(folder), device="cpu", cache_tokens=1024))
    adapter = trainer.export(folder / "one", ONE)
    core.install(read_adapter(adapter, core.adapters.linears()), adapter.version, adapter.digest)
    prompt = (4, 5, 6, 7)
    core.submit(Submit(1, prompt, Sampling(max_tokens=8), ONE, seed=1))
    tokens: list[int] = []
    logp: list[float] = []
    while core.has_work:
        step = core.step()
        tokens += step.tokens
        logp += step.logp
    recorder = Recorder(folder)
    sample = recorder.sample(prompt, tuple(tokens))
    assert policy_logp(trainer, sample).tolist() == pytest.approx(logp, abs=1e-5)
    assert max(abs(a - b) for a, b in zip(sample.logp, logp, strict=True)) > 1e-4  # the adapter does something


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_is_trained_and_served_whatever_its_family(family: str, tmp_path: Path) -> None:
    folder = tiny(family, tmp_path / family)
    trainer = trained(folder)
    if family not in NOT_SERVED:
        served_as_trained(folder, trainer)


def test_only_what_reads_text_is_adapted(tmp_path: Path) -> None:
    folder = seeing(tmp_path / "seeing")
    trainer = trained(folder)
    assert trainer.model.loras
    assert all(path.startswith("model.language_model.layers.") for path in trainer.model.loras)
    # an eye's layers have the same last names, so those that are adapted are named in full
    assert all(target.startswith("model.language_model.layers.") for target in trainer.model.targets())
    # none keeps a form that computes no gradient: experts that this text did not reach may be reached by the next
    assert not any(is_linear(module) for module in trainer.model._body.modules())
    served_as_trained(folder, trainer)


def test_a_model_without_linear_layers_is_refused(tmp_path: Path) -> None:
    config = AutoConfig.for_model("gpt2", vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    with pytest.raises(ModelError, match="GPT2LMHeadModel has no linear layers"):
        LoraTrainer.open(saved(config, tmp_path / "gpt2"), settings_of())


def test_a_model_whose_head_is_not_understood_is_refused_before_anything_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny("phi3", tmp_path / "phi3")

    def other(head: Callable[[nn.Module], nn.Module]) -> str:
        monkeypatch.setattr("openclaw_rl.trainers.model.head_of", head)
        with pytest.raises(ModelError, match="phi3 cannot be trained here") as caught:
            LoraTrainer.open(folder, settings_of())
        return str(caught.value)

    assert "differ by" in other(lambda model: model)  # takes hidden states for embeddings
    assert "inputs_embeds" in other(lambda _: nn.Linear(32, 64))


def test_what_is_read_is_the_models_own(tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny("phi3", tmp_path / "phi3"))
    text = read_text(model, "phi3")
    assert torch.equal(text.logits, model(input_ids=torch.tensor([TRIED])).logits[0])
    assert sorted({path.rpartition(".")[2] for path in text.reached}) == [
        "down_proj", "gate_up_proj", "lm_head", "o_proj", "qkv_proj"
    ]  # fmt: skip

    class Reader:
        device = torch.device("cpu")

        def hidden(self, ids: torch.Tensor) -> torch.Tensor:
            return model.base_model(input_ids=ids).last_hidden_state

        def logits(self, rows: torch.Tensor) -> torch.Tensor:
            return model.lm_head(rows) + self.off

        off = 0.0

    check_same(Reader(), text, "phi3")
    Reader.off = 0.1
    with pytest.raises(ModelError, match="logits differ by"):
        check_same(Reader(), text, "phi3")
