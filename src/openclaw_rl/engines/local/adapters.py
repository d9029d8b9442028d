"""Adapters of several versions, live at once: stacked side by side; each row uses its own version's columns.

    y = x W^T + ((x A) * mask) B,   A [in, slots * rank], B [slots * rank, out], scale folded into B

A row of zeros in the mask is the base model. Smaller ranks are padded with zeros, which change nothing.
An adapter is read in PEFT's format, and refused if the result would differ from PEFT's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, Adapter, digest_of_folder
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import AdapterError, EngineError

PREFIX = "base_model.model."
PICKLED = "adapter_model.bin"  # what older versions of peft wrote; never opened
PLAIN = {
    "target_parameters": None,  # weights of experts, which are not linear layers
    "bias": "none",
    "fan_in_fan_out": False,
    "use_dora": False,
    "lora_bias": False,
    "modules_to_save": None,
    "rank_pattern": None,
    "alpha_pattern": None,
    "layer_replication": None,
    "trainable_token_indices": None,
}
BASE_SLOT = -1


@dataclass(slots=True)
class Stack:
    """One linear's adapters. A slot's columns are zero if its adapter does not change this linear."""

    down: Tensor  # [in, slots * width]
    up: Tensor  # [slots * width, out]
    width: int  # columns a slot takes: the rank, times the linears that are computed as one


@dataclass(slots=True)
class AdapterPass:
    """Which slots this forward uses; shared by all linears, set before each pass."""

    is_active: bool = False
    first: int = 0
    last: int = 0
    mask: Tensor | None = None  # [tokens, last - first, 1]; None if one version has all rows
    kept_mask: Tensor | None = None  # the same for the tokens whose logits are kept

    def add(self, out: Tensor, flat: Tensor, stack: Stack) -> Tensor:
        """`out` with the adapters' share added in place."""
        columns = slice(self.first * stack.width, self.last * stack.width)
        share = torch.mm(flat, stack.down[:, columns])
        if self.mask is not None and self.kept_mask is not None:
            mask = self.mask if share.shape[0] == self.mask.shape[0] else self.kept_mask
            share.view(share.shape[0], -1, stack.width).mul_(mask)
        return out.addmm_(share, stack.up[columns])


@dataclass(slots=True)
class _Held:
    version: PolicyVersion
    digest: str
    users: int = 0
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class LinearSlice:
    """One of the model's linears: the outputs `start` up to `stop` of the linear `owner` that computes it."""

    owner: str
    index: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LinearShape:
    """A linear as it is computed, and how many of the model's own it replaces."""

    in_features: int
    out_features: int
    parts: int


@dataclass(slots=True)
class Adapters:
    """The slots. `Core.install` gives their `stacks` to the linears."""

    parts: dict[str, LinearSlice]
    shapes: dict[str, LinearShape]
    most: int
    dtype: torch.dtype
    device: torch.device
    now: AdapterPass = field(default_factory=AdapterPass)
    rank: int = 0
    slots: int = 0
    layout: int = 0  # rises when stacks move to other memory
    stacks: dict[str, Stack] = field(default_factory=dict)
    _held: dict[int, _Held] = field(default_factory=dict)
    _seen: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def linears(self) -> dict[str, tuple[int, int]]:
        """What an adapter may adapt: the model's own linears, (in, out) by name."""
        return {
            name: (self.shapes[part.owner].in_features, part.stop - part.start) for name, part in self.parts.items()
        }

    def versions(self) -> list[PolicyVersion]:
        """The versions that can be requested, besides the base."""
        return [held.version for held in self._held.values() if not held.is_leaving]

    def slot_of(self, version: PolicyVersion) -> int | None:
        """The slot of a version that can be requested; None if it is not loaded."""
        if version.is_base:
            return BASE_SLOT
        for slot, held in self._held.items():
            if held.version == version and not held.is_leaving:
                return slot
        return None

    def use(self, slot: int) -> None:
        """One more request runs on the slot."""
        if slot != BASE_SLOT:
            self._held[slot].users += 1

    def leave(self, slot: int) -> PolicyVersion | None:
        """One request fewer; returns the version if that unloaded it."""
        if slot == BASE_SLOT:
            return None
        self._held[slot].users -= 1
        return self._forget_unused(slot)

    def unload(self, version: PolicyVersion) -> PolicyVersion | None:
        """No new requests on the version; returns it if nothing ran on it, so that it is unloaded already."""
        slot = self.slot_of(version)
        if slot is None or slot == BASE_SLOT:
            return None
        self._held[slot].is_leaving = True
        return self._forget_unused(slot)

    def install(self, weights: AdapterWeights, version: PolicyVersion, digest: str) -> None:
        """Copies checked weights into a free slot. If it raises AdapterError or EngineError, nothing has changed."""
        for held in self._held.values():
            if held.version == version:
                if held.digest != digest:
                    raise AdapterError(
                        f"version {version} is being served with other weights",
                        fix="give changed weights a new version number",
                    )
                held.is_leaving = False  # loaded again before its last request ended: a roll back
                return
        slot = next((slot for slot in range(self.most) if slot not in self._held), None)
        if slot is None:
            raise EngineError(
                f"{self.most} adapters are loaded, which is all that engine.max_versions allows",
                fix="unload one, or raise engine.max_versions",
            )
        self._make_room(weights, slot)
        self._held[slot] = _Held(version, digest)
        for name, (down, up) in weights.linears.items():
            part = self.parts[name]
            stack = self.stacks[part.owner]
            first = slot * stack.width + part.index * self.rank
            columns = slice(first, first + weights.rank)
            stack.down[:, columns].copy_(down.t())
            stack.up[columns, part.start : part.stop].copy_(up.t() * weights.scale)

    def choose(self, slots: list[int], counts: list[int], kept: Tensor) -> None:
        """Sets the pass up for runs of tokens: `counts[i]` tokens on `slots[i]`; `kept` indexes those with logits."""
        key = (tuple(slots), tuple(counts))
        if key == self._seen and not any(count > 1 for count in counts):
            return
        self._seen = key
        now = self.now
        live = sorted(set(slots) - {BASE_SLOT})
        now.is_active = bool(live)
        if not live:
            return
        now.first, now.last = live[0], live[-1] + 1
        now.mask = now.kept_mask = None
        if len(set(slots)) > 1:
            own = torch.tensor(slots, device=self.device).repeat_interleave(torch.tensor(counts, device=self.device))
            now.mask = self._mask(own)
            now.kept_mask = now.mask[kept]

    def choose_on_device(self, slots: Tensor, first: int, last: int, *, is_mixed: bool) -> None:
        """Sets a pass up for rows of one token, whose slots [rows] lie on the device, from `first` up to `last`.

        A recorded pass reads them again each time. Without `is_mixed` all rows have the same slot.
        """
        self._seen = None
        now = self.now
        now.is_active, now.first, now.last = last > first, first, last
        now.mask = now.kept_mask = None
        if now.is_active and is_mixed:
            now.mask = now.kept_mask = self._mask(slots)

    def _mask(self, slots: Tensor) -> Tensor:
        """Which of the pass's columns each token's slot is, [tokens, last - first, 1]."""
        columns = torch.arange(self.now.first, self.now.last, device=self.device)
        return (slots[:, None] == columns).to(self.dtype)[:, :, None]

    def _forget_unused(self, slot: int) -> PolicyVersion | None:
        held = self._held[slot]
        if not held.is_leaving or held.users:
            return None
        del self._held[slot]
        for stack in self.stacks.values():
            columns = slice(slot * stack.width, (slot + 1) * stack.width)
            stack.down[:, columns] = 0
            stack.up[columns] = 0
        return held.version

    def _make_room(self, weights: AdapterWeights, slot: int) -> None:
        """Widens the stacks for a higher rank, another slot, or a linear that had no adapter yet."""
        rank = max(self.rank, weights.rank)
        # room for at least two, then twice as many: widening copies the stacks between two steps
        slots = self.slots if slot < self.slots else min(self.most, max(2, 2 * self.slots))
        for name in set(self.stacks) | {self.parts[name].owner for name in weights.linears}:
            old = self.stacks.get(name)
            if old is None or (rank, slots) != (self.rank, self.slots):
                self.stacks[name] = self._widened(old, self.shapes[name], rank, slots)
                self._seen = None
                self.layout += 1
        self.rank, self.slots = rank, slots

    def _widened(self, old: Stack | None, shape: LinearShape, rank: int, slots: int) -> Stack:
        width = shape.parts * rank
        new = Stack(
            torch.zeros(shape.in_features, slots * width, dtype=self.dtype, device=self.device),
            torch.zeros(slots * width, shape.out_features, dtype=self.dtype, device=self.device),
            width,
        )
        for slot in range(self.slots if old is not None else 0):
            for part in range(shape.parts):
                assert old is not None
                have = slice(slot * old.width + part * self.rank, slot * old.width + (part + 1) * self.rank)
                first = slot * width + part * rank
                new.down[:, first : first + self.rank] = old.down[:, have]
                new.up[first : first + self.rank] = old.up[have]
        return new


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """Checked weights: by linear, the pair (down [rank, in], up [out, rank]); the share is scale * up(down(x))."""

    linears: dict[str, tuple[Tensor, Tensor]]
    rank: int
    scale: float


def read_adapter(adapter: Adapter, linears: Mapping[str, tuple[int, int]]) -> AdapterWeights:
    """The adapter's weights, fit for linears given as name -> (in, out). Raises AdapterError.

    Reads, hashes and checks the files; runs in a thread, concurrently with the steps.
    """
    config = _read_config(adapter)
    try:
        tensors = load_safetensors((adapter.folder / WEIGHTS).read_bytes())
    except (OSError, SafetensorError) as error:
        raise _bad(adapter, f"{WEIGHTS} cannot be read ({error})") from error
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float):
        raise _bad(adapter, f"{CONFIG} has r {rank!r} and lora_alpha {alpha!r}")
    pairs = _pairs(adapter, tensors, linears, rank)
    _check_targets(adapter, config, set(pairs), set(linears))
    scale = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
    return AdapterWeights(pairs, rank, float(scale))


def _bad(adapter: Adapter, problem: str) -> AdapterError:
    return AdapterError(
        f"adapter {adapter.version} in {adapter.folder}: {problem}",
        fix="export it again from the trainer, or roll back to an earlier version",
    )


def _read_config(adapter: Adapter) -> dict[str, object]:
    if not (adapter.folder / WEIGHTS).exists() and (adapter.folder / PICKLED).exists():
        raise AdapterError(
            f"adapter {adapter.version} in {adapter.folder} is a pickle ({PICKLED}), and reading a pickle can run code",
            fix=f"save it again with peft's save_pretrained, which writes {WEIGHTS}",
        )
    try:
        digest = digest_of_folder(adapter.folder)
        config = json.loads((adapter.folder / CONFIG).read_text())
    except (OSError, ValueError) as error:
        raise _bad(adapter, f"its files cannot be read ({error})") from error
    if digest != adapter.digest:
        raise _bad(adapter, f"its digest is {digest[:12]}..., not {adapter.digest[:12]}...: the files were changed")
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise AdapterError(
            f"adapter {adapter.version} in {adapter.folder} is not a LoRA adapter", fix="export it as LoRA"
        )
    for key, plain in PLAIN.items():
        value = config.get(key, plain)
        if value != plain and value not in ({}, []):
            raise AdapterError(
                f"adapter {adapter.version} has {key} = {value!r}, which the local engine does not compute",
                fix=f"train it with {key} left at {plain!r}",
            )
    return config


def _pairs(
    adapter: Adapter, tensors: Mapping[str, Tensor], linears: Mapping[str, tuple[int, int]], rank: int
) -> dict[str, tuple[Tensor, Tensor]]:
    downs: dict[str, Tensor] = {}
    ups: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        if key.endswith(".base_layer.weight"):
            continue  # peft writes the frozen weight of an adapted lm_head into the adapter's file
        name, dot, _ = key.removeprefix(PREFIX).partition(".lora_")
        if key.endswith(".lora_A.weight") and dot:
            downs[name] = tensor
        elif key.endswith(".lora_B.weight") and dot:
            ups[name] = tensor
        else:
            raise _bad(adapter, f"it contains {key}, which is not a LoRA weight of a linear layer")
    if not downs or downs.keys() != ups.keys():
        raise _bad(adapter, "some linears have only half of a LoRA pair")
    for name, down in downs.items():
        if name not in linears:
            raise _bad(adapter, f"it adapts {name}, which is not a linear layer of this model")
        want = (rank, linears[name][0]), (linears[name][1], rank)
        have = tuple(down.shape), tuple(ups[name].shape)
        if have != want:
            raise _bad(adapter, f"{name} has shapes {have}, this model needs {want}")
    # all at once: reading runs concurrently with the steps, which need the interpreter back
    if not torch.isfinite(torch.cat([tensor.float().flatten() for tensor in (*downs.values(), *ups.values())])).all():
        raise _bad(adapter, "it contains numbers that are not finite")
    return {name: (downs[name].float(), ups[name].float()) for name in downs}


def _check_targets(adapter: Adapter, config: Mapping[str, object], have: set[str], linears: set[str]) -> None:
    """Every linear that the configuration names must have weights: a part of an adapter is a different adapter."""
    if config.get("layers_to_transform") is not None or config.get("exclude_modules"):
        return
    targets = config.get("target_modules")
    if isinstance(targets, str):
        wanted = {name for name in linears if name != "lm_head"} if targets == "all-linear" else have
    elif isinstance(targets, list):
        wanted = {name for name in linears if any(name == t or name.endswith(f".{t}") for t in targets)}
    else:
        raise _bad(adapter, f"{CONFIG} has target_modules {targets!r}")
    if wanted - have:
        raise _bad(adapter, f"weights for {sorted(wanted - have)[0]} are missing")
