"""The sizes of a model, read from its config.json alone: nothing is loaded, and no library is needed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.errors import ModelError

BLOCK = 64  # inputs of a layer that can be stored in few bits are a multiple of it; see weights/forms.py
NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
TIED_UNLESS_SAID = {"gemma", "gemma2", "gemma3", "gemma3_text"}
NORMED_HEADS = {"qwen3", "qwen3_moe", "gemma3", "gemma3_text"}
BIASED_QKV = {"qwen2", "qwen2_moe"}
Table = dict[str, object]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A linear layer of every model layer: its number in the model, and its sizes."""

    name: str
    count: int
    inputs: int
    outputs: int
    is_expert: bool = False

    @property
    def weights(self) -> int:
        """The weights of all of them."""
        return self.count * self.inputs * self.outputs


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes that determine a model's memory and speed."""

    name: str
    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    is_tied: bool
    experts: int
    experts_per_token: int
    matrices: tuple[Matrix, ...]
    small: int  # weights of norms, biases and routers

    @property
    def embedding(self) -> int:
        """Weights of the token embedding."""
        return self.vocabulary * self.hidden

    @property
    def linear(self) -> int:
        """Weights of all linear layers except the head, including experts."""
        return sum(one.weights for one in self.matrices)

    @property
    def expert(self) -> int:
        """Weights of experts."""
        return sum(one.weights for one in self.matrices if one.is_expert)

    @property
    def lowered(self) -> int:
        """Weights that 8 or 4 bits apply to: linear layers that are neither experts nor of an uneven width."""
        return sum(one.weights for one in self.matrices if not one.is_expert and one.inputs % BLOCK == 0)

    @property
    def head(self) -> int:
        """Weights of a separate output head; 0 if it is the embedding."""
        return 0 if self.is_tied else self.embedding

    @property
    def total(self) -> int:
        """All weights."""
        return self.embedding + self.head + self.linear + self.small

    @property
    def active(self) -> int:
        """Weights used for a token: all, but of the experts only the chosen ones; the head once."""
        used = self.expert * self.experts_per_token // self.experts if self.experts else 0
        return self.linear - self.expert + used + self.embedding + self.small

    @property
    def widest(self) -> int:
        """Weights of the largest single layer."""
        return max(one.inputs * one.outputs for one in self.matrices)

    @property
    def between(self) -> int:
        """Numbers between the two halves of a layer's MLP, for one token."""
        return max(
            one.outputs * (max(1, self.experts_per_token) if one.is_expert else 1)
            for one in self.matrices
            if one.name.endswith("up_proj")
        )

    @property
    def kv_numbers(self) -> int:
        """Numbers in the keys and values of a token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def lora(self, rank: int) -> int:
        """LoRA weights of this rank for all linear layers except the head and experts."""
        return sum(one.count * rank * (one.inputs + one.outputs) for one in self.matrices if not one.is_expert)


def read_shape(path: Path, *, name: str = "") -> ModelShape:
    """The sizes of the model in a folder, or of a config.json. Raises ModelError."""
    file = path / "config.json" if path.is_dir() else path
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}", fix="give a model folder or its config.json") from error
    table = found.get("text_config", found) if isinstance(found, dict) else {}
    if not isinstance(table, dict) or any(not isinstance(table.get(key), int) for key in NEEDED):
        lacking = ", ".join(key for key in NEEDED if not isinstance(table, dict) or not isinstance(table.get(key), int))
        raise ModelError(f"{file} does not say {lacking}", fix="give the config.json of a causal language model")
    if "kv_lora_rank" in table or "ssm_cfg" in table or "intermediate_size" not in table:
        raise ModelError(
            f"{file} describes {table.get('model_type')!r}, whose attention or layers the plan does not know",
            fix="plan is for models with plain attention, such as Llama, Mistral, Qwen, Gemma and Mixtral",
        )
    return _shape(table, name or (path.name if path.is_dir() else path.parent.name))


def _shape(table: Table, name: str) -> ModelShape:
    hidden, layers, heads = (_whole(table, key) for key in NEEDED[:3])
    kv_heads, head_dim = _whole(table, "num_key_value_heads", heads), _whole(table, "head_dim", hidden // heads)
    experts = _whole(table, "num_experts", _whole(table, "num_local_experts", 0))
    queries, keys = heads * head_dim, kv_heads * head_dim
    family = str(table.get("model_type", ""))
    own = [
        Matrix("q_proj", layers, hidden, queries),
        Matrix("k_proj", layers, hidden, keys),
        Matrix("v_proj", layers, hidden, keys),
        Matrix("o_proj", layers, queries, hidden),
        *_mlps(table, hidden, layers, experts),
    ]
    norms = layers * (4 if family in {"gemma2", "gemma3", "gemma3_text"} else 2) * hidden + hidden
    norms += layers * 2 * head_dim if family in NORMED_HEADS else 0
    norms += layers * (queries + 2 * keys) if family in BIASED_QKV or table.get("attention_bias") is True else 0
    norms += layers * hidden if table.get("attention_bias") is True and family not in BIASED_QKV else 0
    shared = 1 if _whole(table, "shared_expert_intermediate_size") else 0  # its gate is one row more
    norms += _sparse(table, layers, experts) * hidden * (experts + shared)
    tied = table.get("tie_word_embeddings")
    return ModelShape(
        name=name,
        family=family,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=_whole(table, "vocab_size"),
        context=_whole(table, "max_position_embeddings", 2048),
        is_tied=tied if isinstance(tied, bool) else family in TIED_UNLESS_SAID,
        experts=experts,
        experts_per_token=_whole(table, "num_experts_per_tok", 0),
        matrices=tuple(own),
        small=norms,
    )


def _mlps(table: Table, hidden: int, layers: int, experts: int) -> list[Matrix]:
    """The gated MLPs: dense ones, experts, and the shared expert that some families have too."""
    sparse = _sparse(table, layers, experts)
    sizes = [(layers - sparse, "", _whole(table, "intermediate_size"), False)]
    if experts:
        own = _whole(table, "moe_intermediate_size", _whole(table, "intermediate_size"))
        sizes.append((sparse * experts, "experts.", own, True))
        sizes.append((sparse, "shared_expert.", _whole(table, "shared_expert_intermediate_size", 0), False))
    found: list[Matrix] = []
    for count, prefix, size, is_expert in sizes:
        if count and size:
            found += [Matrix(f"{prefix}{name}", count, hidden, size, is_expert) for name in ("gate_proj", "up_proj")]
            found.append(Matrix(f"{prefix}down_proj", count, size, hidden, is_expert))
    return found


def _sparse(table: Table, layers: int, experts: int) -> int:
    """The number of layers with experts."""
    if not experts:
        return 0
    every, dense = _whole(table, "decoder_sparse_step", 1), table.get("mlp_only_layers")
    apart = set(dense) if isinstance(dense, list) else set()
    return sum((index + 1) % every == 0 and index not in apart for index in range(layers))


def _whole(table: Table, key: str, default: int = 0) -> int:
    value = table.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
