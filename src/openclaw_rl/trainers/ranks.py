"""The processes of one trainer, which take a step together with torch.distributed, and how they divide the model.

Each reads a part of the batch; gradients and measured distances are summed, so all have the same weights and decide
alike. The first one starts the others on its machine, or a launcher such as torchrun starts them all. Only the first
communicates with the trainer's owner, and it passes calls on to the others.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn import Parameter
from transformers import PreTrainedModel

from openclaw_rl.core import pipe
from openclaw_rl.errors import ConfigError
from openclaw_rl.trainers.frames import PLACE, TrainerFailure, place_in, place_of
from openclaw_rl.trainers.settings import TrainerSettings

if TYPE_CHECKING:
    from openclaw_rl.trainers.model import Speaker

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # as torchrun sets them
IDLE = timedelta(days=365)  # a rank waits for the next step without limit
LOOK_S = 1.0  # between two checks whether the process that started this rank still runs
T = TypeVar("T")
ROOMY = 0.25  # of a GPU's memory: a base model up to this size stays whole on each rank, which needs no exchange
NORM_EPS = 1e-6  # as torch's own


class Ranks:
    """Process `number` of `count`. A single one computes exactly as without ranks."""

    def __init__(self, number: int = 0, count: int = 1) -> None:
        self.number = number
        self.count = count
        self._words = distributed.new_group(backend="gloo") if count > 1 else None  # for everything but tensors

    @property
    def is_first(self) -> bool:
        """Whether this rank writes versions and answers."""
        return self.number == 0

    def summed(self, values: Sequence[float]) -> list[float]:
        """The sums over all ranks, the same on each."""
        if self.count == 1:
            return list(values)
        found = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(found, group=self._words)
        return [float(value) for value in found]

    def any(self, claim: bool) -> bool:
        """Whether the claim is true on at least one rank."""
        return self.summed([float(claim)])[0] > 0

    def gathered(self, own: Sequence[T]) -> list[T]:
        """The items of all ranks, concatenated."""
        if self.count == 1:
            return list(own)
        found: list[Sequence[T]] = [()] * self.count
        distributed.all_gather_object(found, own, group=self._words)
        return [one for part in found for one in part]

    def shared(self, message: object) -> object:
        """The first rank's message; the others wait for it, and their own is ignored."""
        if self.count == 1:
            return message
        held = [message]
        distributed.broadcast_object_list(held, src=0, group=self._words)
        return held[0]

    def evenly(self, work: Sequence[T]) -> Iterator[T | None]:
        """The pieces of work, and then None while another rank has some left."""
        most = len(work)
        if self.count > 1:
            longest = torch.tensor(most)
            distributed.all_reduce(longest, distributed.ReduceOp.MAX, group=self._words)
            most = int(longest)
        yield from work
        yield from [None] * (most - len(work))

    def add_gradients(self, parameters: Iterable[Parameter]) -> None:
        """Leaves in each parameter the sum of its gradients over all ranks; None if no rank has one."""
        held = list(parameters)
        if self.count == 1 or not held:
            return
        has = self.summed([float(one.grad is not None) for one in held])
        used = [one for one, count in zip(held, has, strict=True) if count]
        parts = [torch.zeros_like(one) if one.grad is None else one.grad for one in used]
        if not parts:
            return
        flat = torch.cat([part.reshape(-1) for part in parts])
        distributed.all_reduce(flat)
        for one, part in zip(used, torch.split(flat, [part.numel() for part in parts]), strict=True):
            one.grad = part.view_as(one).clone()


ALONE = Ranks()


def use_device(settings: TrainerSettings, ranks: Ranks) -> None:
    """Assigns each rank of a machine its own GPU. Raises ConfigError if there are fewer GPUs."""
    if ranks.count == 1 or settings.device == "cpu" or not torch.cuda.is_available():
        return
    number = int(os.environ.get("LOCAL_RANK", ranks.number))
    there = torch.cuda.device_count()
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.count))
    if here > there:
        raise ConfigError(
            f"trainer.ranks asks for {here} GPUs on this machine, and there are {there}",
            fix=f"set trainer.ranks to {there}, or trainer.device to cpu",
        )
    torch.cuda.set_device(number)


def joined(settings: TrainerSettings | None, failed: Callable[[TrainerFailure], None]) -> Ranks:
    """This process as one of the ranks, by its environment; the first, which has settings, starts the others.

    `failed` is called, from a thread, once one of those is gone. Raises ConfigError if a launcher started another
    number than is set.
    """
    if PLACE in os.environ:
        number, count, file = place_in(os.environ[PLACE])
        if number == 0:
            for other in range(1, count):
                _start(other, {PLACE: place_of(other, count, file)}, failed)
        return meet(number, count, file)
    if not all(name in os.environ for name in LAUNCHED):
        return ALONE
    count = int(os.environ["WORLD_SIZE"])
    if settings is not None and settings.ranks != count:
        raise ConfigError(
            f"trainer.ranks is {settings.ranks}, and trainer.launcher started {count}",
            fix="let both name the same number",
        )
    threading.Thread(target=_leave_with_starter, daemon=True).start()
    return meet(int(os.environ["RANK"]), count, None)


def _start(number: int, place: Mapping[str, str], failed: Callable[[TrainerFailure], None]) -> None:
    """Starts another rank, which exits once this process is gone, since its stdin closes."""
    back, out = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "openclaw_rl.trainers.worker"],
        stdin=subprocess.PIPE,
        stdout=out,
        env=os.environ | place,
    )

    os.close(out)

    def watch() -> None:
        with os.fdopen(back, "rb") as answers:
            said = pipe.read(answers)
        if isinstance(said, TrainerFailure):
            failed(said)
            return
        code = child.wait()
        how = "it was killed, as happens when memory runs out" if code == -signal.SIGKILL else f"exit code {code}"
        failed(TrainerFailure(f"rank {number} of the trainer ended: {how}", is_memory=code == -signal.SIGKILL))

    threading.Thread(target=watch, daemon=True).start()


def meet(number: int, count: int, file: Path | None) -> Ranks:
    """Waits until all ranks are there: on this machine through a file, else at the launcher's address."""
    if file is not None and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all are on this machine: nobody else can connect
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if file is None:
        distributed.init_process_group(backend, timeout=IDLE)
    else:
        distributed.init_process_group(
            backend, init_method=f"file://{file}", rank=number, world_size=count, timeout=IDLE
        )
    return Ranks(number, count) if count > 1 else ALONE


def _leave_with_starter() -> None:
    starter = os.getppid()
    while os.getppid() == starter:
        time.sleep(LOOK_S)
    os._exit(0)


def wants_shards(model: PreTrainedModel, settings: TrainerSettings, ranks: Ranks, device: torch.device) -> bool:
    """Whether this model's layers will be divided; the same on every rank."""
    if ranks.count == 1 or settings.shard == "never" or settings.weights in ("8bit", "4bit"):
        return False  # weights in few bits are small enough to stay whole
    if settings.shard == "always" or settings.parameters == "full":
        return True
    if device.type != "cuda":
        return False
    room = torch.cuda.get_device_properties(device).total_memory
    return ranks.any(model.num_parameters() * model.dtype.itemsize > ROOMY * room)


def divided(model: PreTrainedModel, ranks: Ranks, device: torch.device, *, keep: Iterable[Parameter] = ()) -> Ranks:
    """Divides a model's layers among the ranks with FSDP2, in place, except those in `keep`.

    Each layer is gathered only while it is computed. Ranks then compute each pass together: one with nothing left to
    read computes a single token, so that the others can proceed. Embeddings, the output head and LoRA weights stay
    whole on each rank, and their gradients are summed. Raises ConfigError if no layers can be divided.
    """
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
        layer.to(device)  # one at a time: the whole model is never on one GPU
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
    """The passes to compute, and None for one that only serves the other ranks."""
    if model.shared_by is None:
        yield from work
    else:
        yield from model.shared_by.evenly(work)


def is_divided(tensor: Tensor) -> bool:
    """Whether this rank has only a part of it."""
    return isinstance(tensor, DTensor)


def whole(tensor: Tensor) -> Tensor:
    """The complete tensor, of which this rank may have a part. All ranks call this together."""
    found: Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return found


def on_first(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """Each complete tensor, in the first rank's main memory; nothing on the others, which take part."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        together = whole(tensor)
        if ranks.is_first:
            found[name] = together.cpu()
    return found


def like(held: Tensor, tensor: Tensor) -> Tensor:
    """This rank's part of a complete tensor, divided as `held` is; a copy, on its device."""
    if isinstance(tensor, DTensor) or not isinstance(held, DTensor):
        return tensor.to(held.device, copy=True)
    there = tensor.to(held.device)
    return distribute_tensor(there, held.device_mesh, held.placements, src_data_rank=None).clone()


def clip(parameters: Sequence[Parameter], most: float, ranks: Ranks) -> float:
    """Clips the complete gradient to this norm, and returns the norm it had."""
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
