"""A causal language model with LoRA on frozen weights: one copy serves as policy, reference and teacher."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError, ModelError
from openclaw_rl.trainers.checkpoint import lora_config
from openclaw_rl.trainers.head import check_same, head_of, longest_of, read_text
from openclaw_rl.trainers.linear import Frozen, FrozenLoraTerm, Lora
from openclaw_rl.trainers.prompt_caches import PromptCaches
from openclaw_rl.trainers.ranks import ALONE, Ranks, divided, wants_shards
from openclaw_rl.trainers.recompute import Recompute
from openclaw_rl.trainers.settings import TrainerSettings
from openclaw_rl.trainers.trees import Trees
from openclaw_rl.weights.forms import code_library, lower
from openclaw_rl.weights.lending import Loans
from openclaw_rl.weights.mapped_files import cache_folder
from openclaw_rl.weights.shared import count_of, hold_once, is_linear

SMALL = 100_000_000  # parameters; below it float32 on a CPU is cheap, and a step may be large
ALL_LINEAR = "all-linear"
BUILT_IN_ATTENTION = {"eager", "sdpa"}
ROUTERS = {"gate", "router", "shared_expert_gate"}
EXPERTS = {"gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"}  # names of experts' linears


class Speaker(Protocol):
    """A model that reads ids and predicts each next one: a policy, a base model, a teacher."""

    device: torch.device
    vocabulary: int
    trees: Trees | None  # reads sequences as trees of shared prefixes; None for a model that cannot
    caches: PromptCaches | None  # reads prompts once where there are no trees; None for a model that cannot
    shared_by: Ranks | None  # the ranks that compute each pass together, with its layers divided among them

    def hidden(self, ids: Tensor) -> Tensor:
        """The last layer's output: [B, T] ids, padded on the right, in; [B, T, H] out."""

    def logits(self, rows: Tensor) -> Tensor:
        """[n, H] to [n, V] in float32."""


class CausalModel:
    """Hidden states and logits of a policy, of its base model, or of other LoRA weights.

    `loras` are the adapted layers by their path in the model; only their `a` and `b` train.
    """

    def __init__(self, model: PreTrainedModel, settings: TrainerSettings, *, name: str, ranks: Ranks = ALONE) -> None:
        self.name = name
        self.vocabulary: int = model.config.get_text_config().vocab_size
        self.longest: int = longest_of(model)
        self.parameters: int = count_of(model)
        self.device = device_of(settings)
        is_divided = wants_shards(model, settings, ranks, self.device)
        text = read_text(model, name)
        self.loras = _adapted(model, settings, text.reached)
        trained = [one for _, one in self.named()]
        self.shared_by = divided(model, ranks, self.device, keep=trained) if is_divided else None
        self._body = model
        self._trunk: nn.Module = model.base_model
        self._head = head_of(model)
        self._recompute = Recompute(model, always=settings.recompute_layers)
        self.trees = Trees.of(model, self._recompute)
        can_keep = self.trees is None and self.shared_by is None and not settings.recompute_layers
        self.caches = PromptCaches.of(model, self._recompute) if can_keep else None
        check_same(self, text, name)

    def config(self, rank: int, alpha: float) -> dict[str, Json]:
        """PEFT's adapter_config.json for weights of this rank on this model."""
        return lora_config(self.name, self.targets(), rank=rank, alpha=alpha)

    def targets(self) -> list[str]:
        """The adapted layers as PEFT finds them: by their last names, or in full if other parts share the name."""
        leaves = {_leaf(path) for path in self.loras}
        others = {_leaf(path) for path, _ in self._body.named_modules() if path not in self.loras}
        return sorted(leaves if not leaves & others else self.loras)

    def hidden(self, ids: Tensor) -> Tensor:
        """The last layer's output. [B, T] ids, padded on the right, in; [B, T, H] out.

        Padding needs no mask: attention is causal, so no token before it can see it.
        """
        with self._recompute.over(ids.numel()):
            hidden: Tensor = self._trunk(input_ids=ids, use_cache=False).last_hidden_state
        return hidden

    def logits(self, rows: Tensor) -> Tensor:
        """[n, H] to [n, V] in float32, with the scales and caps of the model's own head."""
        logits: Tensor = self._head(inputs_embeds=rows.unsqueeze(0), use_cache=False).logits
        return logits.squeeze(0).float()

    @contextmanager
    def base(self) -> Iterator[Speaker]:
        """The base model: this one with the adapter off."""
        with self.without_adapter():
            yield self

    @property
    def teacher(self) -> Speaker:
        """The model whose head turns a base teacher's hidden states into logits: all share the head."""
        return self

    @contextmanager
    def without_adapter(self) -> Iterator[None]:
        """Is the base model within the context."""
        for layer in self.loras.values():
            layer.is_on = False
        try:
            yield
        finally:
            for layer in self.loras.values():
                layer.is_on = True

    @contextmanager
    def speaking_as(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """Uses these LoRA weights within the context, as returned by `weights`."""
        own = self.weights()
        self.set_weights(weights)
        try:
            yield
        finally:
            self.set_weights(own)

    @contextmanager
    def speaking_through(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """Uses only these LoRA weights within the context, of any rank, in the form of `stand_on`."""
        own, under = self.weights(), {path: layer.under for path, layer in self.loras.items()}
        self.stand_on(weights)
        self.set_weights({name: torch.zeros_like(one) for name, one in own.items()})
        try:
            yield
        finally:
            for path, layer in self.loras.items():
                layer.under = under[path]
            self.set_weights(own)

    def weights(self) -> dict[str, Tensor]:
        """A copy of the LoRA weights, by PEFT's names."""
        return {name: parameter.detach().clone() for name, parameter in self.named()}

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Sets LoRA weights of the same names and shapes."""
        with torch.no_grad():
            for name, parameter in self.named():
                parameter.copy_(weights[name])

    def named(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The trained parameters by PEFT's names, always in the same order."""
        for path, layer in self.loras.items():
            a, b = names_of(path)
            yield a, layer.a
            yield b, layer.b

    def stand_on(self, weights: Mapping[str, Tensor]) -> None:
        """Bases the trained weights on these frozen LoRA weights, of any rank and by PEFT's names, from now on.

        Their B is on the scale of the trained ones; without any, the trained ones are based on the base model.
        """
        for path, layer in self.loras.items():
            a, b = (weights.get(name) for name in names_of(path))
            layer.under = None
            if a is not None and b is not None:
                device, dtype = self.device, self._body.dtype
                layer.under = FrozenLoraTerm(a.to(device, dtype), (b.to(device) * layer.scale).to(dtype))

    def start_anew(self, seed: int) -> None:
        """Fresh LoRA weights: A as PEFT draws it, from this seed only; B zero, so nothing is added yet."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for layer in self.loras.values():
                drawn = torch.empty(layer.a.shape)
                nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator)
                layer.a.copy_(drawn)
                layer.b.zero_()


def names_of(path: str) -> tuple[str, str]:
    """PEFT's names for the two LoRA matrices of the layer at this path."""
    return f"base_model.model.{path}.lora_A.weight", f"base_model.model.{path}.lora_B.weight"


def load(folder: Path, settings: TrainerSettings, ranks: Ranks = ALONE, *, loans: Loans | None = None) -> CausalModel:
    """The model of a folder that `save_pretrained` wrote, with LoRA. Raises ModelError, ConfigError."""
    return CausalModel(load_frozen(folder, settings, ranks, loans=loans), settings, name=folder.name, ranks=ranks)


def _refuse_fetched_attention(folder: Path) -> None:
    """Raises ModelError if the configuration names an attention that would be fetched by its name and run."""
    try:
        found = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return  # the next reader reports what is missing
    keys = ("attn_implementation", "_attn_implementation") if isinstance(found, dict) else ()
    if foreign := [found[key] for key in keys if found.get(key) is not None and found[key] not in BUILT_IN_ATTENTION]:
        raise ModelError(
            f"{folder} asks for a custom attention implementation ({foreign[0]}), which is never run",
            fix="remove attn_implementation from its config.json",
        )


def load_frozen(
    folder: Path, settings: TrainerSettings, ranks: Ranks = ALONE, *, loans: Loans | None = None
) -> PreTrainedModel:
    """The frozen model of a folder; on the CPU if ranks will divide it. Raises ModelError, ConfigError.

    With `loans`, weights that the engine has on the same GPU are read there.
    """
    device = device_of(settings)
    _refuse_fetched_attention(folder)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype="auto",
            local_files_only=True,
            trust_remote_code=False,  # and no question: code in the folder never runs
            use_safetensors=True,  # a pickle is code too
        )
    except (OSError, ValueError, KeyError, RuntimeError) as problem:
        first = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise ModelError(f"{folder} holds no causal language model ({first})") from problem
    dtype = torch.float32 if settings.parameters == "full" else _dtype(settings.dtype, model.num_parameters(), device)
    model.eval().requires_grad_(False)
    is_own = settings.parameters == "full"  # such weights train
    if wants_shards(model, settings, ranks, device):
        device, is_own = torch.device("cpu"), True
    lower(model, model.get_output_embeddings(), settings.weights, dtype=dtype, device=device)
    is_lent = loans is not None and not is_own and _borrowed(model, loans, device, dtype)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(device, dtype, copy=is_own)
    model = model.to(
        device
    )  # buffers keep their precision: rotary frequencies in bfloat16 rotate distant tokens wrongly
    model.tie_weights()
    if not is_own and not is_lent:
        hold_once(model, cache_folder())  # mapped from the model's own files, weights are six times slower
    whole: PreTrainedModel = model
    return whole


def _borrowed(model: nn.Module, loans: Loans, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the model reads weights of another process from now on. The rest stays where it is."""
    if not loans.reach(device):
        return False
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype=dtype)
    return loans.borrow(model, device) > 0


def learning_rate(settings: TrainerSettings, parameters: int) -> float:
    """The rate that was set, or the one for a model of this size; full training has a smaller one than LoRA."""
    if settings.lr is not None:
        return settings.lr
    if settings.parameters == "full":
        return 1e-4 if parameters < SMALL else 1e-5
    return 1e-2 if parameters < SMALL else 2e-4


def _adapted(model: PreTrainedModel, settings: TrainerSettings, reached: Set[str]) -> dict[str, Lora]:
    """Replaces every linear layer: those in `targets` that a text reaches by adapted ones, others by frozen ones."""
    head = model.get_output_embeddings()
    names = None if settings.targets == ALL_LINEAR else {name.strip() for name in settings.targets.split(",")}
    scale = settings.alpha / settings.rank
    found: dict[str, Lora] = {}
    linears = {path: module for path, module in model.named_modules() if is_linear(module)}
    wanted = _shared(model, reached) if names is None else {path for path in reached if _leaf(path) in names}
    for path, linear in linears.items():
        owner, _, leaf = path.rpartition(".")
        replacement: nn.Module
        if linear is head or path not in wanted:
            replacement = Frozen(linear)
        else:
            found[path] = Lora(linear, rank=settings.rank, scale=scale)
            replacement = found[path]
        model.get_submodule(owner).add_module(leaf, replacement)
    if not found and names is None:
        raise ModelError(f"{type(model).__name__} has no linear layers for LoRA to adapt", fix="choose another model")
    if not found:
        raise ConfigError(f"no linear layer is named {settings.targets}", fix="leave trainer.targets out")
    return found


def _shared(model: PreTrainedModel, linears: Set[str]) -> set[str]:
    """The linears that every token uses: all but the experts, of which a token uses a few, and their router.

    In a mixture of experts, peft treats some names as experts' wherever they are: those are left out too.
    """
    found = {path for path in linears if "experts" not in path.split(".") and _leaf(path) not in ROUTERS}
    if not any("experts" in name.split(".") for name, _ in model.named_parameters()):
        return found
    if find_spec("bitsandbytes") is not None:
        code_library()  # peft imports it, and on its own it may fetch code: see there
    from peft import LoraConfig
    from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers

    config = LoraConfig(target_modules=sorted({_leaf(path) for path in found} | EXPERTS))
    convert_peft_config_for_transformers(config, model, None)
    return {path for path in found if _leaf(path) in set(config.target_modules or ())}


def _leaf(path: str) -> str:
    return path.rpartition(".")[2]


def device_of(settings: TrainerSettings) -> torch.device:
    """The trainer's device. Raises ConfigError."""
    name = settings.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"trainer.device is {name}, and there is no CUDA device here", fix="write cpu or auto")
    try:
        found = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"trainer.device is {name}", fix="write cpu, cuda or auto") from None
    return torch.device("cuda", torch.cuda.current_device()) if name == "cuda" else found


def _dtype(name: str, parameters: int, device: torch.device) -> torch.dtype:
    if name == "auto":
        is_small = parameters < SMALL and device.type == "cpu"
        return torch.float32 if is_small else torch.bfloat16
    return torch.float32 if name == "float32" else torch.bfloat16
