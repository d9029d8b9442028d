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
from openclaw_rl.errors import AdapterError

BASE_SLOT = -1


@dataclass(slots=True)
class Stack:
    """One linear's adapters. A slot's columns are zero where its adapter leaves this linear alone."""

    down: Tensor  # [in, slots * rank]
    up: Tensor  # [slots * rank, out]


@dataclass(slots=True)
class AdapterPass:
    """Which columns this forward uses; shared by all linears, set before each pass."""

    is_active: bool = False
    first: int = 0
    last: int = 0
    mask: Tensor | None = None  # [tokens, last - first]; None where one version has all rows
    kept_mask: Tensor | None = None  # the same for the tokens whose logits are kept

    def add(self, out: Tensor, flat: Tensor, stack: Stack) -> Tensor:
        """`out` with the adapters' share added in place."""
        share = torch.mm(flat, stack.down[:, self.first : self.last])
        if self.mask is not None and self.kept_mask is not None:
            share.mul_(self.mask if share.shape[0] == self.mask.shape[0] else self.kept_mask)
        return out.addmm_(share, stack.up[self.first : self.last])


@dataclass(slots=True)
class _Held:
    version: PolicyVersion
    digest: str
    users: int = 0
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What an adapter of a linear must fit."""

    in_features: int
    out_features: int


@dataclass(slots=True)
class Adapters:
    """The slots. `stacks` are handed to the linears by whoever owns both."""

    shapes: dict[str, Shape]
    most: int
    dtype: torch.dtype
    device: torch.device
    now: AdapterPass = field(default_factory=AdapterPass)
    rank: int = 0
    slots: int = 0
    stacks: dict[str, Stack] = field(default_factory=dict)
    _held: dict[int, _Held] = field(default_factory=dict)
    _seen: tuple[tuple[int, ...], tuple[int, ...]] | None = None

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
        """Copies checked weights into a free slot. Raises AdapterError, and then nothing has changed."""
        for held in self._held.values():
            if held.version == version and not held.is_leaving:
                if held.digest == digest:
                    return
                raise AdapterError(
                    f"version {version} is being served with other weights",
                    fix="give changed weights a new version number",
                )
        slot = next((slot for slot in range(self.most) if slot not in self._held), None)
        if slot is None:
            raise AdapterError(
                f"{self.most} adapters are live, which is all that engine.max_versions allows",
                fix="unload one, or raise engine.max_versions",
            )
        self._make_room(weights, slot)
        self._held[slot] = _Held(version, digest)
        columns = slice(slot * self.rank, slot * self.rank + weights.rank)
        for name, (down, up) in weights.linears.items():
            self.stacks[name].down[:, columns].copy_(down.t())
            self.stacks[name].up[columns].copy_(up.t() * weights.scale)

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
        now.first, now.last = live[0] * self.rank, (live[-1] + 1) * self.rank
        now.mask = now.kept_mask = None
        if len(set(slots)) > 1:
            own = torch.tensor(slots, device=self.device).repeat_interleave(torch.tensor(counts, device=self.device))
            columns = torch.arange(now.first, now.last, device=self.device) // self.rank
            now.mask = (own[:, None] == columns).to(self.dtype)
            now.kept_mask = now.mask[kept]

    def _forget_unused(self, slot: int) -> PolicyVersion | None:
        held = self._held[slot]
        if not held.is_leaving or held.users:
            return None
        del self._held[slot]
        columns = slice(slot * self.rank, (slot + 1) * self.rank)
        for stack in self.stacks.values():
            stack.down[:, columns] = 0
            stack.up[columns] = 0
        return held.version

    def _make_room(self, weights: AdapterWeights, slot: int) -> None:
        """Widens the stacks for a higher rank, one more slot, or a linear that had no adapter yet."""
        rank = max(self.rank, weights.rank)
        slots = max(self.slots, slot + 1)
        names = set(self.stacks) | set(weights.linears)
        for name in names:
            old = self.stacks.get(name)
            if old is not None and (rank, slots) == (self.rank, self.slots):
                continue
            shape = self.shapes[name]
            down = torch.zeros(shape.in_features, slots * rank, dtype=self.dtype, device=self.device)
            up = torch.zeros(slots * rank, shape.out_features, dtype=self.dtype, device=self.device)
            if old is not None:
                for index in range(self.slots):
                    have = slice(index * self.rank, (index + 1) * self.rank)
                    want = slice(index * rank, index * rank + self.rank)
                    down[:, want] = old.down[:, have]
                    up[want] = old.up[have]
            self.stacks[name] = Stack(down, up)
        if (rank, slots) != (self.rank, self.slots):
            self._seen = None
        self.rank, self.slots = rank, slots
