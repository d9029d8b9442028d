"""Loading a model for serving: weights in fresh memory, linears and norms in fast forms, the engine's attention.

A model is served only if the engine computes what the model itself computes; that is checked on random ids at load.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from openclaw_rl.engines.local.adapters import AdapterPass
from openclaw_rl.engines.local.attention import NAME, OTHER_MODEL, AttentionPass, AttentionProbe, RowPiece, attend, plan
from openclaw_rl.engines.local.cache import Block, Cache, Geometry
from openclaw_rl.engines.local.layers import Linears, replace_norms
from openclaw_rl.engines.local.lean import lean_forward
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.errors import ConfigError, ModelError, first_line
from openclaw_rl.weights.forms import lower
from openclaw_rl.weights.parts import WeightPart, parts_of
from openclaw_rl.weights.shared import count_of, hold_once, is_linear

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

log = logging.getLogger(__name__)

SMALL = 100_000_000  # parameters below which bfloat16 is slower than float32 on a CPU
ATTENTIONS = {"full_attention", "sliding_attention"}
PROBE_TOKENS = 48
OWN_CODE = "use a model that transformers supports without extra code: code that comes with a model is never run"
SLACK = {torch.float32: 1e-3, torch.bfloat16: 0.12, torch.float16: 0.03}  # as a share of the logits' spread


class Forward(Protocol):
    """A model as the engine runs it."""

    def __call__(self, ids: Tensor, positions: Tensor, kept: Tensor, now: AttentionPass) -> Tensor:
        """Logits [kept, V] of one pass over ids and positions [tokens]."""


@dataclass(frozen=True, slots=True)
class ModuleForward:
    """The model through its own modules: any that transformers runs with the engine's attention."""

    model: nn.Module

    def __call__(self, ids: Tensor, positions: Tensor, kept: Tensor, now: AttentionPass) -> Tensor:
        """Logits [kept, V] of one pass over ids and positions [tokens]."""
        out: Tensor = self.model(
            input_ids=ids[None], position_ids=positions[None], use_cache=False, logits_to_keep=kept, openclaw_pass=now
        ).logits
        return out[0]


@dataclass(slots=True)
class ServedModel:
    """A model ready to serve, and its facts."""

    logits: Forward
    linears: Linears
    name: str
    architecture: str
    parameters: int
    vocab_size: int
    context_length: int
    eos_ids: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    layers: dict[int, Geometry]
    is_plain: bool  # whether torch's kernels, and our own, compute its attention
    probe: Tensor  # ids [1, n]
    reference: Tensor  # the model's own log-probabilities for them, [n, V]
    base: dict[str, WeightPart]  # the weights by the model's own names, as they are read; on a GPU alone


def load_model(settings: EngineSettings, adapters: AdapterPass, *, shared: Path | None = None) -> Iterator[ServedModel]:
    """The forms in which `settings.model` can be served, the fastest first; use the first that passes the check.

    A file in the folder `shared`, if given, shares its weights with other processes. Raises ModelError or ConfigError.
    """
    device = _device(settings.device)
    if device.type == "cuda":
        if device.index is not None:
            torch.cuda.set_device(device)  # Triton launches its kernels on the current one
        torch.backends.cuda.enable_cudnn_sdp(False)  # it plans again for every length: four fifths of a step's time
    config = _config(settings.model)
    dtype = _dtype(settings.dtype, config, device)
    model = _weights(settings.model, config, dtype)
    lower(model, model.get_output_embeddings(), settings.weights, dtype=dtype, device=device)
    model = model.to(device).requires_grad_(False)
    count = count_of(model)
    text = config.get_text_config()
    facts = text.to_dict()
    own = torch.Generator().manual_seed(0)
    size = PROBE_TOKENS + min(whole_number(facts, "sliding_window", 0), 256)
    probe = torch.randint(0, text.vocab_size, (1, size), generator=own).to(device)
    reference, seen = _probe(model, probe, text.num_hidden_layers)
    base = parts_of(model) if device.type == "cuda" else {}
    hold_once(model, shared)  # mapped from its own files, a model decodes six times slower in bfloat16
    may_copy = 2 * count * dtype.itemsize < free_bytes(device) // 4

    def served(logits: Forward, linears: Linears) -> ServedModel:
        return ServedModel(
            logits=logits,
            linears=linears,
            name=Path(settings.model).name,
            architecture=type(model).__name__,
            parameters=count,
            vocab_size=text.vocab_size,
            context_length=whole_number(facts, "max_position_embeddings", 2048),
            eos_ids=_eos_ids(model, text),
            dtype=dtype,
            device=device,
            layers=seen.layers,
            is_plain=all(look.is_plain for look in seen.looks.values()),
            probe=probe,
            reference=reference,
            base=base,
        )

    lean = lean_forward(model, seen, adapters, may_copy=may_copy)
    torch.cuda.empty_cache()  # leaves the freed memory to the cache, and to a trainer on the same device
    if lean is not None:
        yield served(*lean)
    replace_norms(model)
    yield served(ModuleForward(model), _replace_linears(model, adapters, may_copy=may_copy))


def whole_number(config: dict[str, object], key: str, default: int) -> int:
    """An integer in a model's configuration, or `default` if it has none."""
    value = config.get(key)
    return value if isinstance(value, int) else default


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"engine.device is {name!r}", fix="use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("engine.device is cuda, and torch sees no GPU here", fix="use device = auto or cpu")
    return device


def _config(model: str) -> PreTrainedConfig:
    from transformers import AutoConfig

    folder = Path(model).expanduser()
    looks_like_path = model.startswith(("/", ".", "~")) or model.count("/") != 1
    if not model or (looks_like_path and not folder.is_dir()):
        raise ModelError(f"there is no model folder {model!r}", fix="give the path of a Hugging Face model folder")
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelError(f"{model} holds no config.json", fix="give the folder that holds config.json and the weights")
    try:
        return AutoConfig.from_pretrained(str(folder) if folder.is_dir() else model, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        if "custom code" in str(error):
            raise ModelError(
                f"{model} needs Python code from its own folder, which is never run", fix=OWN_CODE
            ) from error
        raise ModelError(
            f"the configuration of {model!r} cannot be read: {first_line(error)}",
            fix="check the path, or download the model first",
        ) from error


def _dtype(name: str, config: PreTrainedConfig, device: torch.device) -> torch.dtype:
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            # a configuration may name an attention on the hub, which is code
            empty = AutoModelForCausalLM.from_config(config, attn_implementation="eager", trust_remote_code=False)
    except ValueError as error:
        raise ModelError(
            f"{config.model_type} is not a causal language model: {first_line(error)}",
            fix="give a model that generates text",
        ) from error
    count = sum(parameter.numel() for parameter in empty.parameters())
    return torch.float32 if count < SMALL and device.type == "cpu" else torch.bfloat16


def _weights(model: str, config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    kinds = set(config.get_text_config().to_dict().get("layer_types") or ()) - ATTENTIONS
    if kinds:
        raise ModelError(f"{model} has layers of kind {', '.join(sorted(kinds))}", fix=OTHER_MODEL)
    folder = Path(model).expanduser()
    if folder.is_dir() and not any(folder.glob("*.safetensors")) and any(folder.glob("*.bin")):
        raise ModelError(
            f"the weights in {model} are pickled, and reading a pickle can run code",
            fix="save the model again with transformers' save_pretrained, which writes safetensors",
        )
    try:
        loaded, report = AutoModelForCausalLM.from_pretrained(
            str(folder) if folder.is_dir() else model,
            config=config,
            dtype=dtype,
            attn_implementation="eager",
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(
            f"the weights of {model} cannot be loaded: {first_line(error)}", fix="copy or download the model again"
        ) from error
    lacking = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if lacking:
        raise ModelError(
            f"{model} lacks {len(lacking)} weights, {lacking[0]} for one", fix="copy or download the model again"
        )
    whole: PreTrainedModel = loaded.eval()
    return whole


@torch.inference_mode()
def _probe(model: PreTrainedModel, probe: Tensor, depth: int) -> tuple[Tensor, AttentionProbe]:
    """The model's own log-probabilities for the probe, and the recorded attention of its layers."""
    from transformers import AttentionInterface

    reference = torch.log_softmax(model(input_ids=probe, use_cache=False).logits[0].float(), -1)
    AttentionInterface.register(NAME, attend)
    try:
        model.set_attn_implementation(NAME)
        seen = AttentionProbe()
        model(input_ids=probe, use_cache=False, openclaw_pass=seen)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"the engine cannot reach this model's attention: {first_line(error)}", fix=OTHER_MODEL
        ) from error
    if sorted(seen.layers) != list(range(depth)):
        raise ModelError(
            f"{depth - len(seen.layers)} of the model's {depth} layers use an attention that the "
            "engine does not support",
            fix=OTHER_MODEL,
        )
    return reference, seen


@torch.inference_mode()
def _replace_linears(model: nn.Module, adapters: AdapterPass, *, may_copy: bool) -> Linears:
    linears = Linears(adapters, may_copy=may_copy)
    for name, module in list(model.named_modules()):
        if is_linear(module):
            model.set_submodule(name, linears.make(name, {name: module}))
    return linears


def _eos_ids(model: PreTrainedModel, text: PreTrainedConfig) -> tuple[int, ...]:
    for source in (model.generation_config, text):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return tuple(ids) if isinstance(ids, list) else (int(ids),)
    return ()


def free_bytes(device: torch.device) -> int:
    """Free memory of the device, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@torch.inference_mode()
def check_form(served: ServedModel, cache: Cache, name: str) -> None:
    """Checks that the engine computes what the model computes.

    Reads the probe in two pieces and a row, as serving does, and compares, before anything is served. Raises ModelError
    if the log-probabilities are not the model's own.
    """
    ids = served.probe[0]
    size = len(ids)
    block = Block(0, min(cache.tokens, 1 << (size - 1).bit_length()) if size > 256 else 256)
    worst = 0.0
    for start, stop, is_row in ((0, size // 3, False), (size // 3, size - 1, False), (size - 1, size, True)):
        spots = torch.arange(start, stop, device=served.device)
        now = plan(
            cache,
            [(block, start)] if is_row else [],
            [] if is_row else [RowPiece(block, start, stop)],
            served.dtype,
        )
        kept = torch.arange(stop - start, device=served.device)
        logp = torch.log_softmax(served.logits(ids[start:stop], spots, kept, now).float(), -1)
        worst = max(worst, float((logp - served.reference[start:stop]).abs().mean()))
    spread = float(served.reference.std())
    log.debug("check form=%s off_by=%.3g spread=%.3g", type(served.logits).__name__, worst, spread)
    if not worst <= SLACK[served.dtype] * spread + 1e-5:
        raise ModelError(
            f"the engine computes other log-probabilities for {name} than the model itself (off by {worst:.2g})",
            fix=OTHER_MODEL,
        )


@torch.inference_mode()
def piece_seconds(served: ServedModel, cache: Cache, count: int) -> float:
    """The seconds that a pass takes which reads so many tokens of one prompt, and nothing else."""
    ids = served.probe[0]
    ids = ids.repeat(-(-count // len(ids)))[:count]
    spots, first = torch.arange(count, device=served.device), torch.zeros(1, dtype=torch.long, device=served.device)
    block = Block(0, min(cache.tokens, max(256, 1 << (count - 1).bit_length())))
    begin = time.perf_counter()
    logits = served.logits(ids, spots, first, plan(cache, [], [RowPiece(block, 0, count)], served.dtype))
    float(logits[0, 0])  # on a GPU: when it is computed, not when it is asked for
    return time.perf_counter() - begin
