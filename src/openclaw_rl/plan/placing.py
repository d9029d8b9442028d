"""Which role runs on which GPU, what fits, and what to change if something does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from openclaw_rl.errors import ConfigError
from openclaw_rl.plan.shape import ModelShape
from openclaw_rl.plan.takes import MemorySettings, ProcessMemory, policy, teacher, trainer

GIB = 1 << 30
FREE = 0.97  # of a card's memory: the driver and the screen use the rest


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """The input of a plan."""

    model: ModelShape
    settings: MemorySettings
    gpus: int
    memory: int  # bytes of one GPU, or of the machine if there is none
    judge: ModelShape | None = None
    teacher: ModelShape | None = None

    def __post_init__(self) -> None:
        if self.gpus < 0 or self.memory <= 0:
            raise ConfigError(
                f"{self.gpus} GPUs with {self.memory / GIB:g} GiB each", fix="give --gpus 0 or more, --memory above 0"
            )
        if min(self.settings.users, self.settings.context, self.settings.rank, self.settings.reply) < 1:
            raise ConfigError("users, context, reply and rank are at least 1", fix="give larger numbers")
        if self.settings.context > self.model.context:
            raise ConfigError(
                f"a context of {self.settings.context} tokens is more than the model's {self.model.context}",
                fix=f"give --context {self.model.context} at most",
            )


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or the machine's own memory, and what runs there."""

    name: str
    size: int
    roles: tuple[ProcessMemory, ...]

    @property
    def taken(self) -> int:
        """Bytes of all roles."""
        return sum(role.size for role in self.roles)

    @property
    def fits(self) -> bool:
        """Whether there is room for them."""
        return self.taken <= self.size


@dataclass(frozen=True, slots=True)
class Placing:
    """The devices, the settings for them, and for each device that is too full the remedies."""

    devices: tuple[Device, ...]
    settings: tuple[tuple[str, str], ...]
    changes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether everything does."""
        return all(device.fits for device in self.devices)


def placed(asked: PlanQuestion) -> Placing:
    """Places all roles. The largest role gets the first GPU; each other one the GPU with most free memory."""
    devices = _devices(asked)
    fits = all(device.fits for device in devices)
    if (
        asked.gpus and not fits and not asked.settings.recompute_layers
    ):  # as the trainer does automatically on a full GPU
        asked = replace(asked, settings=replace(asked.settings, recompute_layers=True))
        devices = _devices(asked)
        fits = all(device.fits for device in devices)
    return Placing(devices, tuple(_settings(asked, devices)), () if fits else tuple(_changes(asked)))


def roles(asked: PlanQuestion, *, borrows: bool = False) -> list[ProcessMemory]:
    """Policy, trainer (with a separate teacher in its process), and a separate judge.

    With `borrows`, the trainer reads the policy's base weights.
    """
    found = [policy(asked.model, asked.settings)]
    taking = trainer(asked.model, asked.settings, borrows=borrows)
    if asked.teacher is not None:
        own = teacher(asked.teacher, asked.settings)
        taking = ProcessMemory("trainer and teacher", (*taking.items, *own.items))
    found.append(taking)
    if asked.judge is not None:
        found.append(policy(asked.judge, replace(asked.settings, versions=0), name="judge"))
    return found


def _devices(asked: PlanQuestion) -> tuple[Device, ...]:
    names = [f"cuda:{index}" for index in range(asked.gpus)] or ["cpu"]
    held: dict[str, list[ProcessMemory]] = {name: [] for name in names}
    for role in roles(asked, borrows=asked.gpus == 1):  # with more, the trainer is not where the policy is
        least = min(names, key=lambda name: sum(one.size for one in held[name]))
        held[least].append(role)
    size = int(asked.memory * FREE) if asked.gpus else asked.memory
    return tuple(Device(name, size, tuple(held[name])) for name in names)


def _settings(asked: PlanQuestion, devices: tuple[Device, ...]) -> Iterator[tuple[str, str]]:
    settings = asked.settings
    for device in devices:
        for role in device.roles:
            part = {"policy": "engine", "judge": "judge"}.get(role.name, "trainer")
            yield f"{part}.device", device.name
    yield "engine.dtype", settings.dtype
    yield "trainer.dtype", settings.dtype
    if settings.weights != "auto":
        yield "engine.weights", settings.weights
    cache = next(one for one in policy(asked.model, settings).items if one.name == "keys and values")
    yield "engine.cache_bytes", str(cache.size)
    yield "engine.max_rows", str(max(16, settings.users))
    yield "trainer.rank", str(settings.rank)


def _changes(asked: PlanQuestion) -> Iterator[str]:
    """The changes that would make it fit, first each alone, then together; finally what cannot fit on this machine."""
    alone = list(_tries(asked))
    found = False
    for what, changed in alone:
        devices = _devices(changed)
        if all(device.fits for device in devices):
            found = True
            yield f"{what}: then it fits ({_fullest(devices)})"
    if found:
        return
    least = asked
    for what, changed in alone:  # more GPUs come last
        least = replace(changed, settings=_both(least.settings, changed.settings), gpus=max(least.gpus, changed.gpus))
        devices = _devices(least)
        if all(device.fits for device in devices):
            yield f"all of these together, up to {what}: then it fits ({_fullest(devices)})"
            return
    yield f"even with all of these it does not fit ({_fullest(_devices(least))})"
    yield (
        "a model that no GPU holds whole needs engine.kind = vllm with --tensor-parallel-size in engine.remote.options"
    )


def _tries(asked: PlanQuestion) -> Iterator[tuple[str, PlanQuestion]]:
    settings = asked.settings
    if settings.dtype == "float32":
        yield "bfloat16 (--dtype bfloat16)", replace(asked, settings=replace(settings, dtype="bfloat16"))
    if settings.weights == "auto":
        yield "8 bits (engine.weights = 8bit)", replace(asked, settings=replace(settings, weights="8bit"))
    if settings.weights != "4bit":
        yield "4 bits (engine.weights = 4bit)", replace(asked, settings=replace(settings, weights="4bit"))
    if not settings.recompute_layers:
        again = replace(settings, recompute_layers=True)
        yield "trainer.recompute_layers = true", replace(asked, settings=again)
    if settings.max_tokens_per_pass > 512:
        less = replace(settings, max_tokens_per_pass=512)
        yield "trainer.max_tokens_per_pass = 512", replace(asked, settings=less)
    for share in (2, 4, 8):
        if settings.context // share >= 1024:
            shorter = replace(settings, context=settings.context // share)
            yield f"a context of {settings.context // share} tokens", replace(asked, settings=shorter)
    if settings.users > 1:
        yield (
            f"{settings.users // 2} users at the same time",
            replace(asked, settings=replace(settings, users=settings.users // 2)),
        )
    if asked.gpus:
        yield f"{asked.gpus + 1} GPUs", replace(asked, gpus=asked.gpus + 1)


def _both(first: MemorySettings, second: MemorySettings) -> MemorySettings:
    """The minimum of both in each of the reducible settings."""
    order = ("auto", "8bit", "4bit")
    return replace(
        first,
        dtype="bfloat16" if "bfloat16" in (first.dtype, second.dtype) else first.dtype,
        weights=max(first.weights, second.weights, key=order.index),
        recompute_layers=first.recompute_layers or second.recompute_layers,
        max_tokens_per_pass=min(first.max_tokens_per_pass, second.max_tokens_per_pass),
        context=min(first.context, second.context),
        users=min(first.users, second.users),
    )


def _fullest(devices: tuple[Device, ...]) -> str:
    most = max(devices, key=lambda device: device.taken / device.size)
    return f"{most.name}: {_gib(most.taken)} of {_gib(most.size)}"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
