"""`openclaw-rl plan`: which role runs on which GPU, its memory, and what does not fit, before anything starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openclaw_rl.core.message import Json

if TYPE_CHECKING:
    from openclaw_rl.plan.placing import Device, Placing, PlanQuestion
    from openclaw_rl.plan.shape import ModelShape
    from openclaw_rl.plan.simulation import Card, Forecast
    from openclaw_rl.plan.takes import Bits, MemorySettings

app = typer.Typer()
GIB = 1 << 30
SMALL = 100_000_000  # weights below which the server takes float32 on a CPU
COMPUTED = "computed from the model's configuration, not measured on this machine"


@app.command()
def plan(
    *,
    model: Annotated[str, typer.Option("--model", help="A folder, a config.json, a hub name, or `bundled`.")],
    gpus: Annotated[int, typer.Option("--gpus", help="How many GPUs there are; 0 plans for the CPU.")] = 1,
    memory: Annotated[float, typer.Option("--memory", help="GiB of each GPU, or of the machine without one.")] = 24.0,
    users: Annotated[int, typer.Option("--users", help="Conversations that are answered at the same time.")] = 4,
    context: Annotated[int, typer.Option("--context", help="Tokens of each; 0 takes 8,192 or the model's own.")] = 0,
    prompt: Annotated[int, typer.Option("--prompt", help="For the speeds: new tokens of a turn.")] = 1000,
    reply: Annotated[int, typer.Option("--reply", help="For the speeds: tokens of an answer.")] = 512,
    weights: Annotated[str, typer.Option("--weights", help="engine.weights: auto, 8bit or 4bit.")] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="bfloat16, float32, or auto as the server chooses.")] = "auto",
    rank: Annotated[int, typer.Option("--rank", help="trainer.rank.")] = 32,
    judge: Annotated[str, typer.Option("--judge", help="A separate judge, as --model; empty: none.")] = "",
    teacher: Annotated[str, typer.Option("--teacher", help="A separate teacher, as --model; empty: none.")] = "",
    card: Annotated[str, typer.Option("--card", help="For the speeds: h100, a100, rtx4090 and so on, or cpu.")] = "",
    bandwidth: Annotated[float, typer.Option("--bandwidth", help="Its bandwidth, GB a second; 0: the card's.")] = 0.0,
    flops: Annotated[float, typer.Option("--flops", help="Its speed, TFLOP a second; 0: the card's.")] = 0.0,
    explain: Annotated[bool, typer.Option("--explain", help="Show how each number was computed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
) -> None:
    """Say what is put on which GPU, what it needs and what will not fit. Exits with 1 if something does not fit.

    Nothing is loaded: the numbers follow from the model's config.json. docs/plan.md has the formulas, and their errors
    where these could be measured.
    """
    from openclaw_rl.plan.placing import PlanQuestion, placed
    from openclaw_rl.plan.simulation import Habits, forecast

    shape = _shape(model)
    settings = _memory_settings(shape, gpus=gpus, users=users, context=context, weights=weights, dtype=dtype, rank=rank)
    own_judge, own_teacher = (_shape(name) if name else None for name in (judge, teacher))
    asked = PlanQuestion(shape, settings, gpus, int(memory * GIB), own_judge, own_teacher)
    found = placed(asked)
    is_shared = len(found.devices) == 1
    habits = Habits(prompt=prompt, reply=reply)
    expected = forecast(shape, settings, _card(card, gpus, bandwidth, flops), habits, is_shared=is_shared)
    if as_json:
        print(json.dumps(as_table(asked, found, expected)))
    else:
        print("\n".join(lines(asked, found, expected, explain=explain)))
    if not found.fits:
        raise typer.Exit(1)


def as_table(asked: PlanQuestion, found: Placing, expected: Forecast) -> dict[str, Json]:
    """The whole plan, in bytes; every item with its formula."""
    devices: list[Json] = [
        {
            "device": one.name,
            "bytes": one.size,
            "taken": one.taken,
            "fits": one.fits,
            "roles": [
                {"role": role.name, "bytes": role.size, "items": [asdict(item) for item in role.items]}
                for role in one.roles
            ],
        }
        for one in found.devices
    ]
    return {
        "model": asked.model.name,
        "weights": asked.model.total,
        "active_weights": asked.model.active,
        "basis": COMPUTED,
        "fits": found.fits,
        "devices": devices,
        "settings": dict(found.settings),
        "changes": list(found.changes),
        "forecast": asdict(expected),
    }


def lines(asked: PlanQuestion, found: Placing, expected: Forecast, *, explain: bool) -> Iterator[str]:
    """The plan as text for people."""
    shape, settings = asked.model, asked.settings
    experts = f", {shape.active / 1e9:.2f} billion for each token" if shape.experts else ""
    yield f"{shape.name}: {shape.total / 1e9:.3g} billion weights{experts}"
    yield f"{settings.users} users of {settings.context} tokens each, {settings.dtype}"
    yield f"All numbers are {COMPUTED}."
    for device in found.devices:
        yield ""
        yield from _device_lines(device, explain=explain)
    yield ""
    yield from (
        f"does not fit: {change}" if not index else f"  or {change}" for index, change in enumerate(found.changes)
    )
    if found.fits:
        yield "It fits. Settings for it:"
        yield from (f"  {name} = {value}" for name, value in found.settings)
    yield ""
    yield from _forecast_lines(expected, asked.settings.users)


def _device_lines(device: Device, *, explain: bool) -> Iterator[str]:
    room = "" if device.fits else f": {(device.taken - device.size) / GIB:.1f} GiB too much"
    yield f"{device.name}: {device.taken / GIB:.2f} of {device.size / GIB:.2f} GiB{room}"
    if not device.roles:
        yield "  nothing: a further replica of the policy needs engine.kind = vllm (docs/engines.md)"
    for role in device.roles:
        yield f"  {role.name}: {role.size / GIB:.2f} GiB"
        for item in role.items:
            if item.size:
                yield f"    {item.size / GIB:8.3f}  {item.name}" + (f" = {item.how}" if explain else "")


def _forecast_lines(expected: Forecast, users: int) -> Iterator[str]:
    yield f"Expected on {expected.card} (computed with large margins of error; docs/plan.md has the formulas):"
    yield f"  {expected.tokens_a_second_each:.0f} tokens a second for each of {users} users,"
    yield f"  {expected.tokens_a_second_most:.0f} for all together; an answer takes {expected.answer_s:.1f} s"
    if expected.load > 1:
        sample_s = expected.step_s / expected.samples_a_step
        yield f"  learning falls behind: a correction takes the trainer {sample_s:.1f} s and the engine"
        yield f"  {expected.asking_s:.1f} s, and {expected.load:.1f} come in that time"
        return
    yield f"  a step of {expected.samples_a_step:.1f} corrections takes {expected.step_s:.1f} s,"
    yield f"  one every {expected.seconds_between_steps:.0f} s; a sample is {expected.staleness:.1f} versions old."
    yield f"  A correction is served after {expected.served_s:.0f} s; its demonstrations and gate take"
    yield f"  {expected.asking_s:.1f} s of these"


def _memory_settings(
    shape: ModelShape, *, gpus: int, users: int, context: int, weights: str, dtype: str, rank: int
) -> MemorySettings:
    from openclaw_rl.errors import ConfigError
    from openclaw_rl.plan.takes import MemorySettings

    bits: dict[str, Bits] = {"auto": "auto", "8bit": "8bit", "4bit": "4bit"}
    if weights not in bits:
        raise ConfigError(f"--weights is {weights!r}", fix=f"use one of {', '.join(bits)}")
    if dtype not in ("auto", "float32", "bfloat16"):
        raise ConfigError(f"--dtype is {dtype!r}", fix="use one of auto, float32, bfloat16")
    if dtype == "auto":
        dtype = "float32" if not gpus and shape.total < SMALL else "bfloat16"
    return MemorySettings(
        is_gpu=gpus > 0,
        dtype=dtype,
        weights=bits[weights],
        users=users,
        context=context or min(8192, shape.context),
        rank=rank,
    )


def _shape(name: str) -> ModelShape:
    """The sizes of a model; for one on the hub only its config.json is fetched. Raises ModelError."""
    from openclaw_rl.errors import ModelError, first_line
    from openclaw_rl.home.models import local_folder
    from openclaw_rl.plan.shape import read_shape

    path = Path(name).expanduser()
    if path.is_file():
        return read_shape(path)
    folder = local_folder(name)
    if folder is not None:
        return read_shape(folder, name=name)
    from huggingface_hub import hf_hub_download

    try:
        return read_shape(Path(hf_hub_download(name, "config.json")), name=name)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the config.json of {name} cannot be fetched: {first_line(error)}",
            fix="download it and give its path; nothing else of the model is needed",
        ) from error


def _card(name: str, gpus: int, bandwidth: float, flops: float) -> Card:
    from openclaw_rl.errors import ConfigError
    from openclaw_rl.plan.simulation import CARDS, Card

    key = (name or ("rtx4090" if gpus else "cpu")).lower().replace(" ", "").replace("-", "")
    if key not in CARDS:
        raise ConfigError(
            f"{name!r} is not a card that is known here",
            fix=f"use one of {', '.join(CARDS)}, or give --bandwidth and --flops",
        )
    known = CARDS[key]
    own = key if not bandwidth and not flops else "the given device"
    return Card(own, bandwidth * 1e9 or known.bandwidth, flops * 1e12 or known.flops)
