"""A synthetic world's model with freshly initialised weights, in the world's architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openclaw_rl.tiny.train import TinyShape
from openclaw_rl.tiny.worlds.world import Architecture, World

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

WINDOW = 512  # tokens, of Gemma's sliding layers
EXPERTS, AT_ONCE = 4, 2  # of a mixture, and how many of them process a token


def new_model(world: World, shape: TinyShape, tokenizer: Tokenizer, seed: int) -> PreTrainedModel:
    """A model of this shape with freshly initialised weights.

    Its configuration names the token that ends a reply, unless the template's `names_end` is False.
    """
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    torch.manual_seed(seed)
    named = world.template.names_end
    end = tokenizer.token_to_id(world.template.closes) if named else None
    pad = tokenizer.token_to_id(world.template.special[0]) if named else None
    common: dict[str, Any] = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": pad,
    }
    model: PreTrainedModel = AutoModelForCausalLM.from_config(_config(world.architecture, shape, common))
    model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=pad)
    return model


def _config(architecture: Architecture, shape: TinyShape, common: dict[str, Any]) -> Any:
    from transformers import Gemma3TextConfig, LlamaConfig, Olmo2Config, Phi3Config, Qwen3Config, Qwen3MoeConfig

    if architecture is Architecture.QWEN3:
        return Qwen3Config(intermediate_size=shape.inner, **common)
    if architecture is Architecture.LLAMA:
        return LlamaConfig(intermediate_size=shape.inner, **common)
    if architecture is Architecture.PHI3:
        return Phi3Config(intermediate_size=shape.inner, **common)
    if architecture is Architecture.OLMO2:
        return Olmo2Config(intermediate_size=shape.inner, **common)
    if architecture is Architecture.GEMMA3:
        kinds = ["full_attention" if index % 2 else "sliding_attention" for index in range(shape.layers)]
        scale = {"query_pre_attn_scalar": shape.head_dim, "sliding_window": WINDOW, "layer_types": kinds}
        return Gemma3TextConfig(intermediate_size=shape.inner, **scale, **common)
    experts = {"num_experts": EXPERTS, "num_experts_per_tok": AT_ONCE, "norm_topk_prob": True}
    return Qwen3MoeConfig(intermediate_size=shape.inner, moe_intermediate_size=shape.inner, **experts, **common)
