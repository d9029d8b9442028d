"""The seeded recipe of the bundled judge's classifier: trains it, and writes its two files into a model folder."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from random import Random

import torch
from safetensors.torch import save_file
from torch import Tensor

from openclaw_rl.judge.encoder import ABOUT, FORMAT, SCALES, SPELLING, TABLE, WEIGHTS, Spelling, spelling_bytes
from openclaw_rl.tiny import ordinary
from openclaw_rl.tiny.hearing import HEARD, LITERAL, NONE, OTHER, SCORES, Heard, heard
from openclaw_rl.tiny.hearing_net import Form, Net, RowsOf, loss_of, rows_of
from openclaw_rl.tiny.hearing_words import known
from openclaw_rl.tiny.listening import hint_of
from openclaw_rl.tiny.manners import TaskKind, place_of
from openclaw_rl.tiny.wordings import table

CHECKPOINT = "judge-checkpoint-{member}.pt"
BATCHES = 24  # that are drawn together and sorted by length, so that little padding is computed
SURE = 0.79  # the certainty that is required of a wish, as `openclaw-rl tiny judge --measure` prints it
SCORE_SURE = 0.5
PLACE_SURE = 0.98  # the certainty that is required for a hint about one kind of task only


@dataclass(frozen=True, slots=True)
class Lessons:
    """How the classifier is trained: sizes, steps, data and learning rates."""

    form: Form = field(default_factory=Form)
    members: int = 2  # networks whose outputs are averaged: if they differ, the result is unsure
    steps: int = 9000  # of each member
    batch: int = 128  # examples
    files: int | None = 120  # source files that ordinary texts are taken from, for replies; None for all
    table_lr: float = 4e-3
    lr: float = 1.5e-3
    warmup: int = 100  # steps
    checkpoint_every: int = 20  # draws of BATCHES batches


FULL = Lessons()
SHORT = Lessons(Form(width=16, layers=1, heads=2, inner=16, rows=3000), steps=3, batch=8, files=4)  # teaches nothing


@dataclass(slots=True)
class Taught:
    """How far training is; saved in a checkpoint besides the weights."""

    step: int = 0
    loss: float = 0.0
    digest: str = ""


def build(
    folder: Path,
    *,
    seed: int = 0,
    lessons: Lessons = FULL,
    only: int | None = None,
    report: Callable[[Taught, int], None] = lambda _taught, _steps: None,
) -> list[Net]:
    """Trains the classifier and writes it into the folder. An interrupted build continues at its checkpoint.

    With `only` just that member is trained and left as a checkpoint, so that members can be trained in parallel.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = known(lessons.form.rows, seed=seed)
    rows = rows_of(Spelling(*words))
    nets, made = [], []
    for member in range(lessons.members) if only is None else [only]:
        net, taught = _taught(folder, Net(lessons.form, member=member), lessons, seed, rows=rows, report=report)
        nets.append(net)
        made.append(taught)
    if only is None:
        save(nets, folder, words=words, made=_made(nets, made, seed, lessons))
        for member in range(lessons.members):
            (folder / CHECKPOINT.format(member=member)).unlink(missing_ok=True)
    return nets


def texts_of(lessons: Lessons) -> list[str]:
    """Ordinary code and prose, used as replies."""
    code = ordinary.sources(lessons.files)
    return [*code, *ordinary.prose(code)]


def save(
    nets: Sequence[Net], folder: Path, *, words: tuple[Sequence[str], Sequence[str]], made: Mapping[str, object]
) -> None:
    """Writes the weights with the known words, and what can be recognised.

    The table of words is written with one byte per value and a scale per row, other weights in half precision.
    """
    spelling = spelling_bytes(*words)
    weights = {SPELLING: torch.frombuffer(bytearray(spelling), dtype=torch.uint8)}
    for net in nets:
        for name, value in net.state_dict().items():
            if name == TABLE:
                whole, scales = rounded(value)
                weights |= {f"{net.member}.{TABLE}": whole, f"{net.member}.{SCALES}": scales}
            else:
                weights[f"{net.member}.{name}"] = value.detach().half().contiguous()
    (folder / WEIGHTS).parent.mkdir(exist_ok=True)
    save_file(weights, folder / WEIGHTS)
    (folder / ABOUT).write_text(about_text(nets[0].form, len(nets), made=made), "utf-8")


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [R, D] as whole numbers from -127 to 127, and the factor of each row [R]."""
    scales = (rows.abs().amax(1) / 127).clamp(min=1e-7).half()
    return (rows / scales[:, None].float()).round().clamp(-127, 127).to(torch.int8), scales


def about_text(form: Form, members: int, *, made: Mapping[str, object]) -> str:
    """The text of `judge.json`: what can be recognised, the required certainties, the hints' words, the recipe."""
    about = {
        "format": FORMAT,
        "members": members,
        "heads": form.heads,
        "layers": form.layers,
        "scores": SCORES,
        "score_sure": SCORE_SURE,
        "place_sure": PLACE_SURE,
        "wishes": [_class_of(wish) for wish in HEARD],
        "places": ["", *(place_of(kind) for kind in TaskKind)],
        "languages": {name: sorted(set(called.values())) for name, called in _languages().items()},
        "made": made,
    }
    return json.dumps(about, indent=1, ensure_ascii=False) + "\n"


def _class_of(wish: str) -> dict[str, object]:
    if wish in (NONE, OTHER):
        return {"name": wish}
    hint = hint_of(wish, "{x}", None, Random(0)).removesuffix(".")  # added again if the literal has none
    literal = ("language" if wish == "language" else "words") if wish in LITERAL else ""
    return {"name": wish, "hint": hint, "holds": literal, "sure": SURE}


def _languages() -> dict[str, dict[str, str]]:
    languages = table("scenes")["languages"]
    assert isinstance(languages, dict)
    return languages


def _made(nets: Sequence[Net], taught: Sequence[Taught], seed: int, lessons: Lessons) -> dict[str, object]:
    return {
        "seed": seed,
        "examples": sum(each.step for each in taught) * lessons.batch,
        "data_digests": [each.digest for each in taught],
        "losses": [round(each.loss, 4) for each in taught],
        "parameters": sum(weight.numel() for net in nets for weight in net.parameters()),
        "lessons": asdict(lessons),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
    }


def _taught(
    folder: Path,
    net: Net,
    lessons: Lessons,
    seed: int,
    *,
    rows: RowsOf,
    report: Callable[[Taught, int], None],
) -> tuple[Net, Taught]:
    """A member after training, which continues at its checkpoint; a member that took all steps is used as it is."""
    checkpoint = folder / CHECKPOINT.format(member=net.member)
    torch.manual_seed(seed * 1000 + net.member)
    net.begin()
    rng, texts, taught = Random(f"judge {seed} {net.member}"), texts_of(lessons), Taught()
    optimizer = _optimizer(net, lessons)
    if checkpoint.is_file():
        saved = torch.load(checkpoint, weights_only=False)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        taught = Taught(*saved["taught"])
        rng.setstate(saved["rng"])
        torch.set_rng_state(saved["torch"])
    before, draws = net.member * lessons.steps, 0
    while taught.step < lessons.steps:
        for examples in _drawn(rng, texts, lessons):
            if taught.step == lessons.steps:
                break
            taught.loss = _step(net, optimizer, examples, taught.step, lessons, rows=rows)
            taught.digest = _digest(taught.digest, examples)
            taught.step += 1
            report(Taught(before + taught.step, taught.loss), lessons.members * lessons.steps)
        draws += 1
        if draws % lessons.checkpoint_every == 0 or taught.step == lessons.steps:
            _keep(checkpoint, net, optimizer, taught, rng=rng.getstate())
    return net.eval(), taught


def _optimizer(net: Net, lessons: Lessons) -> torch.optim.AdamW:
    table_ = [weight for name, weight in net.named_parameters() if name.startswith("pieces")]
    rest = [weight for name, weight in net.named_parameters() if not name.startswith("pieces")]
    groups = [
        {"params": table_, "weight_decay": 0.0, "peak": lessons.table_lr},
        {"params": rest, "weight_decay": 0.02, "peak": lessons.lr},
    ]
    return torch.optim.AdamW(groups, lr=lessons.lr, betas=(0.9, 0.98), fused=True)


def _drawn(rng: Random, texts: Sequence[str], lessons: Lessons) -> list[list[Heard]]:
    many = [heard(rng, texts) for _ in range(lessons.batch * BATCHES)]
    many.sort(key=lambda item: (len(item.reading.words), rng.random()))
    batches = [many[at : at + lessons.batch] for at in range(0, len(many), lessons.batch)]
    rng.shuffle(batches)
    return batches


def _step(
    net: Net, optimizer: torch.optim.AdamW, examples: Sequence[Heard], step: int, lessons: Lessons, *, rows: RowsOf
) -> float:
    falling = 0.5 * (1 + math.cos(math.pi * step / lessons.steps))
    share = min(1.0, (step + 1) / lessons.warmup) * (0.02 + 0.98 * falling)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * share
    loss: Tensor = loss_of(net, examples, rows)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def _digest(before: str, examples: Sequence[Heard]) -> str:
    said = "\n".join(f"{item.score} {item.wish} {item.first} {item.last} {item.reading.text}" for item in examples)
    return hashlib.blake2b(f"{before}\n{said}".encode(), digest_size=16).hexdigest()


def _keep(checkpoint: Path, net: Net, optimizer: torch.optim.AdamW, taught: Taught, **rest: object) -> None:
    state = {
        **rest,
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "taught": (taught.step, taught.loss, taught.digest),
        "torch": torch.get_rng_state(),
    }
    partial = checkpoint.with_suffix(".part")
    torch.save(state, partial)
    partial.replace(checkpoint)
