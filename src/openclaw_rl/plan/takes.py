"""The memory that each role takes on a device, item by item, with the formula of each number.

The sizes of weights, LoRA weights, optimiser, keys and values are exact; activations depend on what a layer keeps of
a token. The constants marked as measured come from synthetic models on a CPU (`make bench-plan` compares on others).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from typing import Literal

from openclaw_rl.plan.shape import BLOCK, ModelShape

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
Bits = Literal["auto", "8bit", "4bit"]
CHUNK = 1024  # tokens of prompts that the engine reads in one pass, at most
READ_AT_ONCE = 8  # times max_tokens_per_pass that the trainer reads if nothing is kept for a gradient
CHEAP = 1 << 20  # trainers.batch: comparisons of a pass up to which other prompts are read along
LOGITS = 1 << 20  # trainer.logits_per_chunk
LOGIT_COPIES = 6  # logits, their logarithms, the teacher's, and the gradients of these
DRAW_COPIES = 4  # of each row's logits in the engine, in float32
LORA_POINT = 5  # numbers of a LoRA weight: gradient; weight, gradient and moment to go back to; weight before checks
LORA_HELD = 2  # of the trained weights: themselves and one moment
UNIT = 256  # tokens of the cache's smallest block; blocks are powers of two
KEPT_BY_MALLOC = 3  # times a pass's activations that the engine keeps on a CPU: measured 1 to 4, most after a long past
# Of a process without a model, measured: on a CPU, and on a GPU (an H200: 846 MiB of the engine, 832 of the trainer).
LIBRARIES = {"engine": 450 << 20, "trainer": 600 << 20}
CUDA_PROCESS = 840 << 20
PROCESS = "process"
# Of a process's memory, what torch's allocator keeps and cannot use: measured. A step's items are those of its fullest
# moment, which leaves room for it.
CUDA_SLACK = {"engine": 0.08, "trainer": 0.0}


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One number of bytes, what it is for, and how it was computed."""

    name: str
    size: int
    how: str


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """A process, or a part of one, and what it takes."""

    name: str
    items: tuple[MemoryItem, ...]

    @property
    def size(self) -> int:
        """Bytes of all items."""
        return sum(item.size for item in self.items)


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The settings that memory depends on, by their names in the configuration."""

    is_gpu: bool
    dtype: str = "bfloat16"  # engine.dtype and trainer.dtype
    weights: Bits = "auto"  # engine.weights
    users: int = 4  # conversations that are answered at the same time
    context: int = 8192  # tokens of each
    reply: int = 512  # tokens of a reply that is learned from
    samples: int = 4  # replies of one step
    rank: int = 32  # trainer.rank
    versions: int = 4  # adapters loaded at the same time
    max_tokens_per_pass: int = 2048
    recompute_layers: bool = False
    scopes: int = 2  # trainer.scopes_in_memory

    @property
    def number(self) -> int:
        """Bytes of a number."""
        return BYTES[self.dtype]


def policy(shape: ModelShape, settings: MemorySettings, *, name: str = "policy") -> ProcessMemory:
    """The engine: it answers, scores for the gate and, without a separate judge, judges."""
    numbers = settings.number
    context = min(settings.context, shape.context)
    held = block_of(context) if settings.is_gpu else context  # on a CPU a page is there once it is written
    rows, times = min(CHUNK, settings.users * settings.context), 1 if settings.is_gpu else KEPT_BY_MALLOC
    items = [
        *_weights(shape, settings, copies=1),  # on a CPU a second layout is kept where it was timed much faster
        _adapters(shape, settings),
        MemoryItem(
            "keys and values",
            settings.users * held * shape.kv_numbers * numbers,
            f"{settings.users} users x {held} tokens{' (a block of the cache)' * settings.is_gpu} x {shape.kv_numbers} "
            f"numbers x {numbers} bytes",
        ),
        MemoryItem(
            "activations",
            rows * engine_width(shape) * numbers * times,
            f"{rows} tokens in a pass x {engine_width(shape)} numbers alive in a layer x {numbers} bytes"
            f"{'' if settings.is_gpu else f' x {times} (what the C library keeps)'}",
        ),
        *_piece_mask(shape, settings),
        MemoryItem(
            "logits",
            settings.users * shape.vocabulary * 4 * DRAW_COPIES,
            f"{settings.users} rows x {shape.vocabulary} x 4 bytes x {DRAW_COPIES} (logits, logarithms, sorting)",
        ),
        *_read_back(shape, settings),
    ]
    return ProcessMemory(name, tuple(_with_device(items, settings, "engine")))


def trainer(shape: ModelShape, settings: MemorySettings, *, borrows: bool = False) -> ProcessMemory:
    """The trainer: base weights once for policy and teacher, LoRA with its optimiser, and one step's activations.

    With `borrows` it reads the base weights in the memory of the engine, on the same GPU (`weights.lending`).
    """
    numbers, lora = settings.number, shape.lora(settings.rank)
    before = min(settings.context, shape.context)
    scopes = 0 if settings.is_gpu else settings.scopes
    own = _weights(shape, settings, copies=_trainer_copies(settings), has_own_head=_trainer_copies(settings) > 1)
    items = [
        *([MemoryItem("base weights", 0, "the engine's are read, on the same GPU")] if borrows else own),
        MemoryItem(
            "LoRA and optimiser",
            lora * 4 * LORA_HELD,
            f"{lora} weights of rank {settings.rank} x 4 bytes x {LORA_HELD} (weight, moment)",
        ),
        MemoryItem(
            "scopes in memory",
            lora * 4 * scopes,
            f"{lora} x 4 bytes x {scopes} scopes (a GPU's wait in main memory)",
        ),
        MemoryItem(
            "prompts as keys and values",
            settings.samples * before * shape.kv_numbers * numbers,
            f"{settings.samples} samples x {before} tokens x {shape.kv_numbers} numbers x {numbers} bytes",
        ),
        _step(shape, settings),
        *_read_back(shape, settings),
    ]
    return ProcessMemory("trainer", tuple(_with_device(items, settings, "trainer")))


def _step(shape: ModelShape, settings: MemorySettings) -> MemoryItem:
    """What a step needs at its fullest: reading everything once, or the backward pass and the saved point."""
    numbers, before = settings.number, min(settings.context, shape.context)
    read = max(before, min(READ_AT_ONCE * settings.max_tokens_per_pass, settings.samples * before))
    reading = read * trainer_width(shape) * numbers
    learned = settings.reply * _replies_at_once(settings, before)
    kept = kept_width(shape, is_again=settings.recompute_layers)
    rows = min(learned, max(16, LOGITS // shape.vocabulary))
    lora = shape.lora(settings.rank)
    logits = rows * shape.vocabulary * 4 * LOGIT_COPIES
    layers = 2 if settings.recompute_layers else shape.layers + 1  # the last is the gradient of one
    own, group = min(learned, settings.reply), shape.heads // shape.kv_heads
    keys = min(2 * shape.kv_heads * shape.head_dim + group * own, 2 * shape.heads * shape.head_dim + own)
    attended = before * keys * layers * numbers
    learning = learned * shape.layers * kept * numbers + attended + logits + lora * 4 * LORA_POINT
    return MemoryItem(
        "a step",
        max(reading, learning),
        f"the larger of reading ({read} tokens x {trainer_width(shape)} numbers alive in a layer x {numbers} bytes) "
        f"and learning ({learned} reply tokens x {shape.layers} layers x {kept} numbers x {numbers} bytes, "
        f"{before} prompt tokens x {keys} numbers (keys, values and the mask) x {layers} layers "
        f"x {numbers} bytes, {rows} rows x {shape.vocabulary} logits x 4 bytes x {LOGIT_COPIES}, and {lora} LoRA "
        f"weights x 4 bytes x {LORA_POINT}: gradient, and the points to go back to)",
    )


def teacher(shape: ModelShape, settings: MemorySettings) -> ProcessMemory:
    """A separate teacher, in the trainer's process: its weights, and what it keeps of a text that it reads."""
    read = min(READ_AT_ONCE * settings.max_tokens_per_pass, settings.context)
    width = trainer_width(shape)
    reading = MemoryItem(
        "reading", read * width * settings.number, f"{read} tokens x {width} numbers x {settings.number} bytes"
    )
    return ProcessMemory("teacher", (*_weights(shape, settings, copies=1), reading))


def without_process(role: ProcessMemory) -> ProcessMemory:
    """The role without its share for a process without a model."""
    return ProcessMemory(role.name, tuple(item for item in role.items if item.name != PROCESS))


def block_of(tokens: int) -> int:
    """The block of the engine's cache for this many tokens."""
    size = UNIT
    while size < tokens:
        size *= 2
    return size


def engine_width(shape: ModelShape) -> int:
    """Numbers of a token that are alive at once in a layer of the engine's pass."""
    attention = (3 * shape.heads + 2 * shape.kv_heads) * shape.head_dim
    return 4 * shape.hidden + max(attention, 3 * shape.between)


def trainer_width(shape: ModelShape) -> int:
    """The same for the trainer's, if nothing is kept."""
    return 6 * shape.hidden + max(4 * shape.heads * shape.head_dim, 6 * shape.between)


def kept_width(shape: ModelShape, *, is_again: bool) -> int:
    """Numbers that a layer keeps of a token for its gradient; with `is_again` only its input."""
    if is_again:
        return int(2.2 * shape.hidden)  # measured on a GPU, as are 30 for a model of Qwen3-4B's shape, here 30.4
    attention = (4 * shape.heads + 2 * shape.kv_heads) * shape.head_dim
    return 8 * shape.hidden + attention + 4 * shape.between


def _weights(
    shape: ModelShape, settings: MemorySettings, *, copies: int, has_own_head: bool | None = None
) -> Iterator[MemoryItem]:
    numbers = settings.number
    low = 0 if settings.weights == "auto" else shape.lowered
    whole = shape.linear - low
    if low:
        bits = 8 if settings.weights == "8bit" else 4
        rows = sum(one.count * one.outputs for one in shape.matrices if not one.is_expert and one.inputs % BLOCK == 0)
        scales = 4 * (rows if bits == 8 else low // BLOCK)
        what = "a row" if bits == 8 else "64 weights"
        yield MemoryItem(
            f"base weights in {bits} bits", low * bits // 8 + scales, f"{low} x {bits}/8 bytes, and 4 bytes for {what}"
        )
    is_own = not settings.is_gpu if has_own_head is None else has_own_head
    head = shape.head or (shape.embedding if is_own else 0)
    size = (whole + head) * copies + shape.embedding + shape.small
    copied = f" x {copies} (two layouts)" if copies > 1 else ""
    tied = "" if shape.head or not is_own else " (laid out again although the embedding is tied)"
    yield MemoryItem(
        "base weights" if not low else "weights in all bits",
        size * numbers,
        f"(linear {whole} + head {head}{tied}){copied} + embedding {shape.embedding} + norms {shape.small}, "
        f"x {numbers} bytes",
    )


def _trainer_copies(settings: MemorySettings) -> int:
    """On a CPU float32 weights are laid out once for the forward and once for the backward pass."""
    return 2 if not settings.is_gpu and settings.dtype == "float32" else 1


def _adapters(shape: ModelShape, settings: MemorySettings) -> MemoryItem:
    """The engine's stacks: q, k and v share one, gate and up too, so their upper halves are as wide as all of them."""
    slots = 2
    while slots < settings.versions:
        slots *= 2
    sums = {one.name: (one.count, one.inputs, one.outputs) for one in shape.matrices if not one.is_expert}
    numbers = 0
    for names in (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",)):
        parts = [sums[name] for name in names if name in sums]
        if parts:
            numbers += parts[0][0] * len(parts) * (parts[0][1] + sum(outputs for _, _, outputs in parts))
    total = slots * settings.rank * numbers if settings.versions else 0
    return MemoryItem(
        "adapters",
        total * settings.number,
        f"{slots} slots x rank {settings.rank} x {numbers} numbers in and out x {settings.number} bytes",
    )


def _replies_at_once(settings: MemorySettings, before: int) -> int:
    """How many replies to different prompts are learned from in one pass: as `trainers.batch` puts them together."""
    reply = min(settings.reply, settings.max_tokens_per_pass)
    most = min(settings.samples, settings.max_tokens_per_pass // reply)
    return max(1, min(most, isqrt(CHEAP // (reply * (reply + before)))))


def _piece_mask(shape: ModelShape, settings: MemorySettings) -> Iterator[MemoryItem]:
    """On a GPU the later pieces of a prompt have a mask, repeated for the heads that share a key head."""
    if settings.is_gpu:
        tokens, copies = min(CHUNK, settings.context), shape.heads // shape.kv_heads + 2
        yield MemoryItem(
            "masks",
            tokens * settings.context * copies * settings.number,
            f"{tokens} tokens of a piece x {settings.context} before them x {copies} copies x {settings.number} bytes",
        )


def _read_back(shape: ModelShape, settings: MemorySettings) -> Iterator[MemoryItem]:
    if settings.weights != "auto":
        size = 2 * shape.widest
        yield MemoryItem(
            "a layer read back", size * settings.number, f"2 x {shape.widest} weights x {settings.number} bytes"
        )


def _with_device(items: list[MemoryItem], settings: MemorySettings, part: str) -> Iterator[MemoryItem]:
    yield from items
    if not settings.is_gpu:
        yield MemoryItem(PROCESS, LIBRARIES[part], f"a process of the {part} without a model: measured")
    else:
        total, slack = sum(item.size for item in items), CUDA_SLACK[part]
        yield MemoryItem(PROCESS, CUDA_PROCESS, f"a process of the {part} without a model, CUDA's context: measured")
        if slack:
            yield MemoryItem("allocator", int(slack * total), f"{slack:.0%} of all but the process: measured")
