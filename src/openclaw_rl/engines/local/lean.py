"""The forward of the most common architecture (Llama, Mistral, Qwen2, Qwen3 and similar), without modules in between.

The same sums in fewer calls: q, k and v are one product, so are gate and up; q and k are normed and rotated together;
a residual is added by the product it follows. The names of its parts identify such a model. It is served in this form
only if its log-probabilities match: any special feature makes the check fail, and then its own modules run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from openclaw_rl.engines.local.adapters import AdapterPass
from openclaw_rl.engines.local.attention import (
    AttentionCall,
    AttentionPass,
    AttentionProbe,
    attend_cached,
)
from openclaw_rl.engines.local.cache import AttentionParams
from openclaw_rl.engines.local.layers import FastLinear, FastNorm, Linears, equal_norm
from openclaw_rl.weights.forms import PackedLinear
from openclaw_rl.weights.shared import is_linear

LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
NORMS = {"q_norm", "k_norm"}
MLP = {"gate_proj", "up_proj", "down_proj", "act_fn"}


@dataclass(slots=True)
class _Layer:
    before: FastNorm
    qkv: FastLinear
    turned: int  # heads of q and k together
    queries: int
    head_dim: int
    heads_norm: FastNorm | None
    look: AttentionParams
    out: FastLinear
    after: FastNorm
    gate_up: FastLinear
    act: Callable[[Tensor], Tensor]
    down: FastLinear


@dataclass(slots=True)
class LeanForward:
    """A model as a list of layers."""

    embed: nn.Module
    rotary: nn.Module
    layers: list[_Layer]
    norm: FastNorm
    head: FastLinear

    def __call__(self, ids: Tensor, positions: Tensor, kept: Tensor, now: AttentionPass) -> Tensor:
        """Logits [kept, V] of one pass over ids and positions [tokens]."""
        hidden: Tensor = self.embed(ids)
        cos, sin = self.rotary(hidden[None], positions[None])
        half = cos.shape[-1] // 2
        cos = cos[0][:, None]
        sin = torch.cat((-sin[0, :, :half], sin[0, :, half:]), -1)[:, None]  # the sign of rotate_half
        for index, layer in enumerate(self.layers):
            hidden = _run(layer, index, hidden, (cos, sin), now)
        return self.head.rows(self.norm.forward(hidden[kept]))


def _run(layer: _Layer, index: int, hidden: Tensor, turn: tuple[Tensor, Tensor], now: AttentionPass) -> Tensor:
    qkv = layer.qkv.rows(layer.before.forward(hidden)).view(hidden.shape[0], -1, layer.head_dim)
    heads = qkv[:, : layer.turned]  # [tokens, heads of q and k, dim]
    if layer.heads_norm is not None:
        heads = layer.heads_norm.forward(heads)
    heads = torch.addcmul(heads * turn[0], heads.roll(layer.head_dim // 2, -1), turn[1])
    call = AttentionCall(index, heads[:, : layer.queries], layer.look)
    seen = attend_cached(now, call, heads[:, layer.queries :], qkv[:, layer.turned :])
    hidden = layer.out.rows(seen.reshape(hidden.shape[0], -1), onto=hidden)
    both = layer.gate_up.rows(layer.after.forward(hidden))
    size = both.shape[1] // 2
    return layer.down.rows(layer.act(both[:, :size]).mul_(both[:, size:]), onto=hidden)


def lean_forward(
    model: nn.Module, seen: AttentionProbe, adapters: AdapterPass, *, may_copy: bool
) -> tuple[LeanForward, Linears] | None:
    """The model in this form and its linears, or None if its parts are not those of this architecture."""
    parts = _children(model)
    trunk = _children(parts.get("model"))
    if set(parts) != {"model", "lm_head"} or set(trunk) != {"embed_tokens", "layers", "norm", "rotary_emb"}:
        return None
    linears = Linears(adapters, may_copy=may_copy)
    layers = []
    for index, layer in enumerate(trunk["layers"].children()):
        made = _layer(layer, index, seen, linears)
        if made is None:
            return None
        layers.append(made)
    norm, head = equal_norm(trunk["norm"]), parts["lm_head"]
    if norm is None or not isinstance(head, nn.Linear | PackedLinear):
        return None
    lean = LeanForward(
        trunk["embed_tokens"], trunk["rotary_emb"], layers, norm, linears.make("lm_head", {"lm_head": head})
    )
    return lean, linears


def _layer(layer: nn.Module, index: int, seen: AttentionProbe, linears: Linears) -> _Layer | None:
    parts = _children(layer)
    attention, mlp = _children(parts.get("self_attn")), _children(parts.get("mlp"))
    if set(parts) != LAYER or set(attention) - NORMS != ATTENTION or set(mlp) != MLP:
        return None
    before, after = equal_norm(parts["input_layernorm"]), equal_norm(parts["post_attention_layernorm"])
    head_dim = seen.layers[index].key_dim
    if before is None or after is None or seen.layers[index].value_dim != head_dim:
        return None
    found = {key: module for key, module in {**attention, **mlp}.items() if is_linear(module) and key not in NORMS}
    if len(found) != 7:
        return None
    queries = found["q_proj"].out_features // head_dim
    turned = queries + found["k_proj"].out_features // head_dim
    heads_norm = None
    if NORMS & set(attention):
        q_norm, k_norm = equal_norm(attention["q_norm"]), equal_norm(attention["k_norm"])
        if q_norm is None or k_norm is None or q_norm.shape != (head_dim,) or q_norm.eps != k_norm.eps:
            return None
        weights = [q_norm.weight.expand(queries, -1), k_norm.weight.expand(turned - queries, -1)]
        heads_norm = FastNorm(torch.cat(weights).clone(), q_norm.eps)
    own, other = f"model.layers.{index}.self_attn", f"model.layers.{index}.mlp"
    return _Layer(
        before=before,
        qkv=linears.make(f"{own}.qkv", {f"{own}.{key}": found[key] for key in ("q_proj", "k_proj", "v_proj")}),
        turned=turned,
        queries=queries,
        head_dim=head_dim,
        heads_norm=heads_norm,
        look=seen.looks[index],
        out=linears.make(f"{own}.o_proj", {f"{own}.o_proj": found["o_proj"]}),
        after=after,
        gate_up=linears.make(f"{other}.gate_up", {f"{other}.{key}": found[key] for key in ("gate_proj", "up_proj")}),
        act=mlp["act_fn"].forward,
        down=linears.make(f"{other}.down_proj", {f"{other}.down_proj": found["down_proj"]}),
    )


def _children(module: nn.Module | None) -> dict[str, nn.Module]:
    return {} if module is None else dict(module.named_children())
