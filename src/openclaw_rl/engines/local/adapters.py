"""Adapters of several versions, live at once: stacked side by side, each row seeing its own version's columns.

    y = x W^T + ((x A) * mask) B,   A [in, slots * rank], B [slots * rank, out], scale folded into B

A row of zeros in the mask is the base model. Smaller ranks are padded with zeros, which change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.local.adapter_files import AdapterWeights
from openclaw_rl.errors import AdapterError, EngineError

BASE_SLOT = -1


@dataclass(slots=True)
class Stack:
    """One linear's adapters. A slot's columns are zero where its adapter leaves this linear alone."""

    down: Tensor  # [in, slots * width]
    up: Tensor  # [slots * width, out]
    width: int  # columns a slot takes: the rank, times the linears that are computed as one


@dataclass(slots=True)
class AdapterPass:
    """Which slots this forward uses; shared by all linears, set before each pass."""

    is_active: bool = False
    first: int = 0
    last: int = 0
    mask: Tensor | None = None  # [tokens, last - first, 1]; None where one version has all rows
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
    """A linear as it is computed, and how many of the model's own it stands for."""

    in_features: int
    out_features: int
    parts: int


@dataclass(slots=True)
class Adapters:
    """The slots. `stacks` are handed to the linears by whoever owns both."""

    parts: dict[str, LinearSlice]
    shapes: dict[str, LinearShape]
    most: int
    dtype: torch.dtype
    device: torch.device
    now: AdapterPass = field(default_factory=AdapterPass)
    rank: int = 0
    slots: int = 0
    stacks: dict[str, Stack] = field(default_factory=dict)
    _held: dict[int, _Held] = field(default_factory=dict)
    _seen: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def linears(self) -> dict[str, tuple[int, int]]:
        """What an adapter may adapt: the model's own linears, (in, out) by name."""
        return {
            name: (self.shapes[part.owner].in_features, part.stop - part.start) for name, part in self.parts.items()
        }

    def versions(self) -> list[PolicyVersion]:
        """What can be asked for, beside the base."""
        return [held.version for held in self._held.values() if not held.is_leaving]

    def slot_of(self, version: PolicyVersion) -> int | None:
        """The slot of a version that can be asked for; None where it is not loaded."""
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
        """One request fewer; the version, where it went with it."""
        if slot == BASE_SLOT:
            return None
        self._held[slot].users -= 1
        return self._forget_unused(slot)

    def unload(self, version: PolicyVersion) -> PolicyVersion | None:
        """No new requests on the version; returns it where nothing ran on it and it is gone already."""
        slot = self.slot_of(version)
        if slot is None or slot == BASE_SLOT:
            return None
        self._held[slot].is_leaving = True
        return self._forget_unused(slot)

    def install(self, weights: AdapterWeights, version: PolicyVersion, digest: str) -> None:
        """Copies checked weights into a free slot. Raises AdapterError or EngineError, and then nothing has changed."""
        for held in self._held.values():
            if held.version == version:
                if held.digest != digest:
                    raise AdapterError(
                        f"version {version} is being served with other weights",
                        fix="give changed weights a new version number",
                    )
                held.is_leaving = False  # asked for again before its last request ended: a roll back
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
            columns = torch.arange(now.first, now.last, device=self.device)
            now.mask = (own[:, None] == columns).to(self.dtype)[:, :, None]
            now.kept_mask = now.mask[kept]

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
        """Widens the stacks for a higher rank, one more slot, or a linear that had no adapter yet."""
        rank = max(self.rank, weights.rank)
        # room for two at least, then twice as many: widening copies, between two steps
        slots = self.slots if slot < self.slots else min(self.most, max(2, 2 * self.slots))
        for name in set(self.stacks) | {self.parts[name].owner for name in weights.linears}:
            old = self.stacks.get(name)
            if old is None or (rank, slots) != (self.rank, self.slots):
                self.stacks[name] = self._widened(old, self.shapes[name], rank, slots)
                self._seen = None
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
