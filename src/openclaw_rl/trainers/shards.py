"""A model's layers divided among the ranks by FSDP2: each layer is put together while it is computed, and nowhere else.

Ranks then compute each pass together: one that has nothing left to read computes a single token, so that the others
find it there. Embeddings, the output head and LoRA weights stay whole on each rank, and their gradients are summed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn import Parameter
from transformers import PreTrainedModel

from openclaw_rl.errors import ConfigError
from openclaw_rl.trainers.ranks import Ranks
from openclaw_rl.trainers.settings import TrainerSettings

if TYPE_CHECKING:
    from openclaw_rl.trainers.model import Speaker

ROOMY = 0.25  # of a GPU's memory: a base model that takes no more is whole on each rank, which needs no exchange
NORM_EPS = 1e-6  # as torch's own

T = TypeVar("T")


def wants_shards(model: PreTrainedModel, settings: TrainerSettings, ranks: Ranks, device: torch.device) -> bool:
    """Whether this model's layers are to be divided; the same on every rank."""
    if ranks.count == 1 or settings.shard == "never" or settings.weights in ("8bit", "4bit"):
        return False  # weights in few bits are small enough to stay whole
    if settings.shard == "always" or settings.parameters == "full":
        return True
    if device.type != "cuda":
        return False
    room = torch.cuda.get_device_properties(device).total_memory
    return ranks.any(model.num_parameters() * model.dtype.itemsize > ROOMY * room)


def divided(model: PreTrainedModel, ranks: Ranks, device: torch.device, *, keep: Iterable[Parameter] = ()) -> Ranks:
    """Divides the layers, in place, but for what `keep` names. Raises ConfigError where no layers can be divided."""
    names = {*(model._no_split_modules or ())}
    layers = [module for module in model.modules() if type(module).__name__ in names]
    if not layers:
        raise ConfigError(
            f"the layers of {type(model).__name__} cannot be divided among ranks", fix="set trainer.shard to never"
        )
    inside = {id(parameter) for layer in layers for parameter in layer.parameters()}
    whole = {*keep, *(one for one in model.parameters() if id(one) not in inside)}
    mesh = init_device_mesh(device.type, (ranks.count,))
    for layer in layers:
        layer.to(device)  # one at a time: no GPU ever holds the whole model
        fully_shard(layer, mesh=mesh, ignored_params=whole)
    model.to(device)
    trunk: nn.Module = model.base_model
    fully_shard(trunk, mesh=mesh, ignored_params=whole)
    for module in trunk.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # a sum: each token's weight is that in the whole batch
            module.set_force_sum_reduction_for_comms(True)
    return ranks


def in_step(model: Speaker, work: Sequence[T]) -> Iterator[T | None]:
    """The passes to take, and None for one that is taken for the other ranks' sake alone."""
    if model.shared_by is None:
        yield from work
    else:
        yield from model.shared_by.evenly(work)


def is_divided(tensor: Tensor) -> bool:
    """Whether this rank holds a part of it alone."""
    return isinstance(tensor, DTensor)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, of which this rank may hold a part. All ranks ask at once."""
    found: Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return found


def on_first(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """All of each tensor, in the first rank's main memory; nothing on the others, which take part, one at a time."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        together = whole(tensor)
        if ranks.is_first:
            found[name] = together.cpu()
    return found


def like(held: Tensor, tensor: Tensor) -> Tensor:
    """What of a whole tensor this rank holds, divided as `held` is; a copy, on its device."""
    if isinstance(tensor, DTensor) or not isinstance(held, DTensor):
        return tensor.to(held.device, copy=True)
    there = tensor.to(held.device)
    return distribute_tensor(there, held.device_mesh, held.placements, src_data_rank=None).clone()


def clip(parameters: Sequence[Parameter], most: float, ranks: Ranks) -> float:
    """Cuts the whole gradient to this norm, and returns the norm it had."""
    parts = [one for one in parameters if isinstance(one, DTensor)]
    if not parts:
        return float(torch.nn.utils.clip_grad_norm_(parameters, most))
    squares = [0.0, 0.0]
    for one in parameters:
        if one.grad is not None:
            squares[isinstance(one, DTensor)] += float(_local(one.grad).double().square().sum())
    norm = math.sqrt(squares[0] + ranks.summed([squares[1]])[0])
    factor = min(1.0, most / (norm + NORM_EPS))
    for one in parameters:
        if one.grad is not None:
            one.grad.mul_(factor)
    return norm


def _local(tensor: Tensor) -> Tensor:
    found: Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return found
