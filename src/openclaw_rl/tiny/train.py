"""Trains the bundled model from scratch: batches of whole dialogues, Muon for matrices, AdamW for the rest."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from openclaw_rl.tiny.corpus import CorpusSample

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor
    from torch.optim import Optimizer
    from transformers import PreTrainedModel, Qwen3ForCausalLM

GRAIN = 128


@dataclass(frozen=True, slots=True)
class TinyShape:
    """The model's size."""

    vocabulary: int = 4096
    hidden: int = 192
    layers: int = 4
    inner: int = 512
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast the model learns."""

    steps: int = 3400
    easy_share: float = 0.25  # of the steps, at the beginning, on easy samples
    step_tokens: int = 4096  # tokens of one step, at least; padding is not counted
    micro_tokens: int = 2048  # tokens of one pass, padding included; a longer sample has a pass of its own
    max_length: int = 14_336  # tokens; longer samples are left out
    counted_length: int = 1024  # a longer sample counts as this many tokens of its step
    warmup: int = 60  # steps
    matrix_lr: float = 0.02
    other_lr: float = 4e-3
    final_share: float = 0.02  # of the learning rates, at the last step
    shifted: float = 0.3  # share of samples whose positions begin later than 0
    max_shift: int = 30_000  # they begin before this position
    checkpoint_every: int = 200  # steps
    grain: int = GRAIN  # widths of passes are multiples of this


@dataclass(frozen=True, slots=True)
class Encoded:
    """A sample's token ids, and which of them the model is trained to predict."""

    ids: tuple[int, ...]
    learned: tuple[bool, ...]


@dataclass(slots=True)
class Progress:
    """How far training is; saved with every checkpoint."""

    step: int = 0
    tokens: int = 0
    loss: float = math.nan  # nats per learned token, running mean
    digest: str = ""  # of all ids trained on so far


def new_model(shape: TinyShape, seed: int, eos: int, pad: int) -> Qwen3ForCausalLM:
    """A model of this shape with freshly initialised weights."""
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        intermediate_size=shape.inner,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=pad,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=eos, pad_token_id=pad)
    return model


def encode(tokenizer: Tokenizer, sample: CorpusSample) -> Encoded:
    """The sample's token ids. Each piece is encoded separately."""
    ids: list[int] = []
    learned: list[bool] = []
    for text, learn in sample.pieces:
        found: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        ids += found
        learned += [learn] * len(found)
    return Encoded(tuple(ids), tuple(learned))


def train(
    model: PreTrainedModel,
    draw: Callable[[bool], Encoded],
    rng: Random,
    schedule: Schedule,
    *,
    checkpoint: Path | None = None,
    threads: int = 2,
    report: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Trains the model in place, from the checkpoint if there is one, and returns the final progress.

    `draw(easy)` makes the next sample, an easy one in the first steps. `rng` is the generator that it draws from: its
    state is saved with the checkpoint, so that a resumed run gets the samples it would have had without the break.
    """
    import torch

    optimizers = _optimizers(model, schedule)
    progress = Progress()
    if checkpoint is not None and checkpoint.is_file():
        progress = _resume(checkpoint, model, optimizers, rng)
    torch.set_num_threads(1)  # each pass below has one thread
    model.train()
    with ThreadPoolExecutor(threads) as workers:
        while progress.step < schedule.steps:
            samples = _pool(draw, schedule, easy=progress.step < schedule.easy_share * schedule.steps)
            _step(model, optimizers, samples, rng, schedule, progress=progress, workers=workers)
            report(progress)
            is_due = progress.step % schedule.checkpoint_every == 0 or progress.step == schedule.steps
            if checkpoint is not None and is_due:
                state = {"model": model.state_dict(), "optimizers": [item.state_dict() for item in optimizers]}
                torch.save({**state, "rng": rng.getstate(), "progress": progress}, checkpoint)
    torch.set_num_threads(threads)
    model.eval()
    return progress


def _step(
    model: PreTrainedModel,
    optimizers: list[Optimizer],
    samples: list[Encoded],
    rng: Random,
    schedule: Schedule,
    *,
    progress: Progress,
    workers: ThreadPoolExecutor,
) -> None:
    """One optimiser step over the samples."""
    import torch

    rate = _rate(progress.step, schedule)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * rate
    loss = _backward(model, samples, rng, schedule, workers)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    _note(progress, samples, loss)


def _optimizers(model: PreTrainedModel, schedule: Schedule) -> list[Optimizer]:
    import torch

    matrices = [weight for name, weight in model.named_parameters() if weight.ndim == 2 and "embed" not in name]
    others = [weight for name, weight in model.named_parameters() if weight.ndim != 2 or "embed" in name]
    muon = torch.optim.Muon(matrices, lr=schedule.matrix_lr, momentum=0.95, weight_decay=0.01)
    adam = torch.optim.AdamW(others, lr=schedule.other_lr, betas=(0.9, 0.98), weight_decay=0.0)
    for optimizer in (muon, adam):
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return [muon, adam]


def _resume(checkpoint: Path, model: PreTrainedModel, optimizers: list[Optimizer], rng: Random) -> Progress:
    import torch

    saved = torch.load(checkpoint, weights_only=False)
    model.load_state_dict(saved["model"])
    for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
        optimizer.load_state_dict(state)
    rng.setstate(saved["rng"])
    progress: Progress = saved["progress"]
    return progress


def _pool(draw: Callable[[bool], Encoded], schedule: Schedule, *, easy: bool) -> list[Encoded]:
    """The samples of one step, sorted by length, so that passes need little padding."""
    pool: list[Encoded] = []
    while sum(min(len(item.ids), schedule.counted_length) for item in pool) < schedule.step_tokens:
        item = draw(easy)
        if len(item.ids) <= schedule.max_length:
            pool.append(item)
    return sorted(pool, key=lambda item: len(item.ids))


def _backward(
    model: PreTrainedModel, samples: list[Encoded], rng: Random, schedule: Schedule, workers: ThreadPoolExecutor
) -> float:
    """Adds the gradients of the mean loss over all learned tokens of the step; returns that loss, in nats per token.

    Passes run in parallel, one thread each. On two cores that are also used by others this is about twice as fast as
    two threads within each operation, which wait for each other. The gradients of the passes are added up in a fixed
    order, so the sum is the same every time.
    """
    import torch

    weights = list(model.parameters())
    learned = sum(sum(item.learned[1:]) for item in samples)

    def one(batch: tuple[Tensor, Tensor, Tensor]) -> tuple[float, tuple[Tensor, ...]]:
        ids, positions, targets = batch
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = model.model(input_ids=ids, position_ids=positions).last_hidden_state
            logits = model.lm_head(hidden[:, :-1][targets >= 0])
        loss = torch.nn.functional.cross_entropy(logits.float(), targets[targets >= 0], reduction="sum") / learned
        return loss.item(), torch.autograd.grad(loss, weights)

    total = 0.0
    batches = [_tensors(rows, rng, schedule) for rows in _passes(samples, schedule)]
    for loss, gradients in workers.map(one, reversed(batches)):  # the longest first
        total += loss
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
    return total


def _passes(samples: list[Encoded], schedule: Schedule) -> Iterator[list[Encoded]]:
    rows: list[Encoded] = []
    for item in samples:  # in order of length, so the newest row is the widest
        if rows and _width(item, schedule.grain) * (len(rows) + 1) > schedule.micro_tokens:
            yield rows
            rows = []
        rows.append(item)
    yield rows


def _tensors(rows: list[Encoded], rng: Random, schedule: Schedule) -> tuple[Tensor, Tensor, Tensor]:
    """Ids [B, T], positions [B, T], and the next id to predict at all but the last place [B, T - 1], -1 for none.

    Rows are padded at the end: with a causal mask no token of the sample attends to the padding.
    """
    import torch

    width = max(_width(row, schedule.grain) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    targets = torch.full((len(rows), width - 1), -1)
    shifts = torch.zeros(len(rows), 1, dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)] = torch.tensor(row.ids)
        following = [token if learn else -1 for token, learn in zip(row.ids[1:], row.learned[1:], strict=True)]
        targets[index, : len(following)] = torch.tensor(following)
        if rng.random() < schedule.shifted:
            shifts[index] = rng.randrange(schedule.max_shift)
    return ids, torch.arange(width)[None, :] + shifts, targets


def _width(row: Encoded, grain: int) -> int:
    """A row's length with its padding, in tokens: the next multiple of `grain`.

    bf16 matrix kernels are compiled for each new shape. With widths of any size that took more than half of the time
    (4,500 tokens a second on two cores, against 11,900 with widths in steps of 128).
    """
    return -(-len(row.ids) // grain) * grain


def _rate(step: int, schedule: Schedule) -> float:
    """The factor of the learning rates at a step: linear warm-up to 1, then a cosine down to `final_share`."""
    if step < schedule.warmup:
        return (step + 1) / schedule.warmup
    done = (step - schedule.warmup) / max(1, schedule.steps - schedule.warmup)
    return schedule.final_share + (1 - schedule.final_share) * 0.5 * (1 + math.cos(math.pi * done))


def _note(progress: Progress, samples: list[Encoded], loss: float) -> None:
    read = b"".join(b"".join(token.to_bytes(2, "big") for token in item.ids) for item in samples)
    progress.digest = hashlib.blake2b(progress.digest.encode() + read, digest_size=16).hexdigest()
    progress.step += 1
    progress.tokens += sum(len(item.ids) for item in samples)
    progress.loss = loss if math.isnan(progress.loss) else 0.97 * progress.loss + 0.03 * loss
