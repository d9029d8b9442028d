"""One family of bench-families: a tiny model is made, served, trained, and served again with what was learned."""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.common import Figures
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines.local.adapters import read_adapter
from openclaw_rl.engines.local.build import open_core
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.wire import Submit
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.errors import ModelError
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Method, MethodSettings, TrainerSettings

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

LAYERS = 4
MOST = 20_000_000  # weights
LEARNED = PolicyVersion("shared", 1)
PROMPT, REPLY = tuple(range(4, 44)), (10, 11, 12, 13, 14, 15)
# By every name that some family has for them; a configuration takes those that it knows.
SIZES: dict[str, object] = {
    "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 2048,
    "n_embd": 64, "n_layer": LAYERS, "n_head": 4, "n_positions": 2048, "n_inner": 96, "ffn_dim": 96,
    "word_embed_proj_dim": 64, "sliding_window": 16, "initializer_range": 0.1,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "moe_intermediate_size": 32, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
    "shared_expert_intermediate_size": 32, "first_k_dense_replace": 1,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "full_attention_interval": 2, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_expand": 1,
    "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 160, "num_kv_shared_layers": 0, "laurel_rank": 8,
    "global_head_dim": 16, "num_global_key_value_heads": 2,
}  # fmt: skip
KINDS_OF_LAYERS = ("layer_types", "layers_block_type", "layer_type_list", "mlp_layer_types", "no_rope_layers")
EYE: dict[str, object] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 16, "image_size": 32, "patch_size": 8,
}  # fmt: skip
MARKS = ("image_token_id", "image_token_index", "boi_token_id", "eoi_token_id", "boi_token_index", "eoi_token_index",
         "audio_token_id", "boa_token_id", "eoa_token_id", "video_token_id")  # fmt: skip


def main() -> None:
    """Prints one line of JSON for a family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", help="transformers' name of a model type")
    parser.add_argument("folder", type=Path, help="an empty folder, for the model")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        make(args.family, args.folder)
    except Exception as problem:  # whatever a configuration that was made small by its names may raise
        print(json.dumps({"result": "not made small", "why": first_line(problem)}))
        return
    print(json.dumps(measured(args.folder)))


def make(family: str, folder: Path) -> None:
    """A model with random weights that reads a text. Raises whatever its family does if it cannot."""
    from transformers import AutoConfig, AutoModelForCausalLM

    whole = AutoConfig.for_model(family)
    text = whole.get_text_config()
    config = small(text)
    if text is not whole:
        config = _with_senses(whole, config)
    with torch.device("meta"):
        count = sum(one.numel() for one in AutoModelForCausalLM.from_config(config).parameters())
    if count > MOST:
        raise ValueError(f"its smallest configuration has {count} weights")
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.15)  # far from uniform, so that an error shows
            elif name.endswith("bias"):
                parameter.normal_(std=0.1)
        model = model.float().eval()
        model(input_ids=torch.tensor([PROMPT]), use_cache=False)
    model.save_pretrained(folder)


def small(config: PreTrainedConfig) -> PreTrainedConfig:
    """The family's configuration with a few small layers, of each kind that its usual one has."""
    known = set(config.to_dict()) | set(type(config).attribute_map)
    sizes = {key: value for key, value in SIZES.items() if key in known}
    if "kv_lora_rank" in known:  # latent attention: as many key heads as heads, and widths of its own
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
        sizes.pop("head_dim", None)
    for key in KINDS_OF_LAYERS:
        kinds = config.to_dict().get(key)
        if isinstance(kinds, list) and kinds:
            sizes[key] = (list(dict.fromkeys(kinds)) * LAYERS)[:LAYERS]
    return type(config)(**sizes)


def _with_senses(whole: PreTrainedConfig, text: PreTrainedConfig) -> PreTrainedConfig:
    """A model that reads text beside pictures or sounds."""
    more: dict[str, object] = {key: 150 for key in MARKS if key in whole.to_dict()}
    for key in ("vision_config", "audio_config"):
        if (sense := getattr(whole, key, None)) is not None:
            more[key] = type(sense)(**{name: size for name, size in EYE.items() if name in sense.to_dict()})
    return type(whole)(text_config=text, **more)


def measured(folder: Path) -> Figures:
    """Served, trained, served with what was learned: the largest gaps in nats, or why not."""
    core, why = None, {}
    try:
        core = open_core(EngineSettings(model=str(folder), device="cpu", cache_tokens=2048))
    except ModelError as problem:
        why["engine"] = first_line(problem)
    try:
        trainer = LoraTrainer.open(folder, TrainerSettings(rank=4, alpha=8.0, method=MethodSettings(Method.BINARY)))
    except ModelError as problem:
        why["trainer"] = first_line(problem)
        return {"result": "served, not trained" if core else "refused", "why": why}
    sample = voted(folder)
    gap = trainer.step([sample]).metrics["train_rollout_logp_gap"]
    for _ in range(2):
        trainer.step([sample])
    found: Figures = {"trainer_gap": gap, "why": why}
    if core is None:
        return found | {"result": "trained, not served here"}
    adapter = trainer.export(folder / "one", LEARNED)
    core.install(read_adapter(adapter, core.adapters.linears()), adapter.version, adapter.digest)
    tokens, logp = answered(core)
    with torch.no_grad():
        own = trainer.model.logits(trainer.model.hidden(torch.tensor([[*PROMPT, *tokens]]))[0])
    found["engine_gap"] = _largest(own, tokens, logp)
    found["peft_gap"] = _largest(_by_peft(folder, folder / "one", tokens), tokens, logp)
    return found | {"result": "served and trained"}


def voted(folder: Path) -> Sample:
    """A reply that was liked, with the base model's log-probabilities by transformers."""
    logp = _by_peft(folder, None, REPLY).log_softmax(-1)[len(PROMPT) - 1 : -1]
    return Sample(
        turn="turn",
        session="session",
        user="user",
        prompt=PROMPT,
        response=REPLY,
        logp=tuple(logp.gather(-1, torch.tensor(REPLY)[:, None])[:, 0].tolist()),
        mask=(True,) * len(REPLY),
        version=BASE,
        score=1.0,
    )


def answered(core: Core) -> tuple[list[int], list[float]]:
    """Tokens that the engine samples with the adapter, and their log-probabilities."""
    core.submit(Submit(1, PROMPT, Sampling(max_tokens=12), LEARNED, seed=1))
    tokens: list[int] = []
    logp: list[float] = []
    while core.has_work:
        step = core.step()
        tokens += step.tokens
        logp += step.logp
    return tokens, logp


def _by_peft(folder: Path, adapter: Path | None, tokens: tuple[int, ...] | list[int]) -> Tensor:
    """Logits [T, V] of prompt and tokens by transformers and peft."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if adapter is not None:
        model = PeftModel.from_pretrained(model, str(adapter))
    with torch.no_grad():
        logits: Tensor = model(input_ids=torch.tensor([[*PROMPT, *tokens]]), use_cache=False).logits[0].float()
    return logits


def _largest(logits: Tensor, tokens: list[int], logp: list[float]) -> float:
    every = logits.log_softmax(-1)[len(PROMPT) - 1 : -1]
    return max(abs(float(every[at, token]) - logp[at]) for at, token in enumerate(tokens))


def first_line(problem: BaseException) -> str:
    """What went wrong, for one line of a table."""
    lines = str(problem).splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"[:240]


if __name__ == "__main__":
    main()
