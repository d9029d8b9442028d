"""The settings of a trainer. Loads no torch: the process that starts a trainer reads this too."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal

from openclaw_rl.algo.method import Distillation, HintSelection, LossMethod, Weights
from openclaw_rl.algo.methods.binary import BINARY
from openclaw_rl.algo.methods.combine import COMBINE
from openclaw_rl.algo.methods.hybrid import HYBRID, SELECTED
from openclaw_rl.algo.methods.opd import OPD
from openclaw_rl.algo.methods.topk import TAIL, TOPK


class Method(StrEnum):
    """The methods; `algo/methods/` has a file for each."""

    BINARY = "binary"
    OPD = "opd"
    COMBINE = "combine"
    HYBRID = "hybrid"
    TOPK = "topk"


METHODS: dict[Method, LossMethod] = {
    Method.BINARY: BINARY,
    Method.OPD: OPD,
    Method.COMBINE: COMBINE,
    Method.HYBRID: HYBRID,
    Method.TOPK: TOPK,
}


class Distill(StrEnum):
    """The form of top-k distillation."""

    SELECTED = "selected"  # as in hybrid
    TAIL = "tail"  # as in topk


FORMS = {Distill.SELECTED: SELECTED, Distill.TAIL: TAIL}


class TeacherKind(StrEnum):
    """The weights that read the hint."""

    BASE = "base"
    EMA = "ema"  # a moving average of the policy
    MODEL = "model"  # another model with the same tokenizer


class Mean(StrEnum):
    """What has equal weight: each token, or each reply."""

    TOKEN = "token"
    SEQUENCE = "sequence"


@dataclass(frozen=True, slots=True)
class MethodSettings:
    """The objective: a sum of masked terms, each with its own denominator."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset(
        {
            "clip", "clip_high", "clip_low", "distill", "divergence", "ema_decay", "hint_selection", "mean",
            "step_coefficient", "subset", "taught_temperature", "tis_clip", "top_k", "w_distill", "w_opd", "w_rl",
            "w_taught",
        }
    )  # fmt: skip

    name: Method = Method.TOPK
    """Which loss terms are used: binary, opd, combine, hybrid or topk (docs/methods.md). Change it when you want the
    published methods, or the scores to teach as well."""
    w_rl: float | None = None
    """Weight of the score's advantage. If unset, the method's default. Change it in experiments with the weight of
    scores."""
    w_opd: float | None = None
    """Weight of the hint's advantage. If unset, the method's default. Change it in experiments with the weight of
    hints."""
    w_distill: float | None = None
    """Weight of top-k distillation. If unset, the method's default. Change it in experiments with the weight of
    distillation."""
    w_outcome: float = 1.0
    """Weight of the advantage of an episode's steps, whatever the method takes of conversations. Use 0 when nothing is
    to be learned from outcomes."""
    w_taught: float = 1.0
    """Weight of the forward divergence to the teacher on replies that were sampled with a hint in the prompt:
    demonstrations (teach.demonstrations), and with carry = bridge replies that were served so. Change it in experiments
    with the weight of demonstrations."""
    taught_temperature: float = 0.7
    """The temperature of the teacher's distribution on these replies, above 0. Below 1 each token is learned as surer
    than the teacher is of it."""
    kl_beta: float = 0.05
    """Weight of the k3 term that ties the policy to the base model. Change it when versions move too far from the base
    model (raise) or learn too little (lower)."""
    clip: float = 1.0
    """Bound on the hint's advantage of one token, in nats; 0 is off."""
    clip_low: float = 0.2
    """Lower clip range of the importance ratio (1 - clip_low)."""
    clip_high: float = 0.28
    """Upper clip range of the importance ratio (1 + clip_high)."""
    tis_clip: float = 2.0
    """Cap on the ratio to the version that sampled; 0 is off."""
    step_coefficient: float = 1.0
    """The weight of a step's own score: the step's reward is its episode's outcome + this * score."""
    mean: Mean = Mean.TOKEN
    """Whether each token weighs the same, or each reply."""
    hint_selection: HintSelection | None = None
    """Which of a turn's hints is learned from: longest, shortest, sequence (most overlap of top tokens), token (the
    same token by token) or contrary (the hint under which a corrected reply is least likely; sequence for other
    replies). If unset: contrary for the tail form, else sequence."""
    distill: Distill | None = None
    """Form of top-k distillation: selected or tail. If unset: tail for the method topk, else selected."""
    top_k: int = 0
    """How many tokens are compared at each position. 0: the form's default (selected 4, tail 50)."""
    subset: Literal["student", "teacher", "overlap", "union"] = "union"
    """Whose top tokens the selected form compares: student, teacher, overlap or union."""
    divergence: Literal["reverse", "forward", "jsd"] = "forward"
    """What the tail form measures: reverse, forward or jsd."""
    teacher: TeacherKind = TeacherKind.BASE
    """Whose weights read the hint: base, ema (a moving average of the policy) or model (another one). Change it when a
    larger model should read the hints."""
    teacher_model: str = ""
    """Folder or hub name of the teacher if that is a separate model; its tokenizer must be the same. Change it
    with trainer.method.teacher = model."""
    ema_decay: float = 0.95
    """Decay of the moving average at each step (teacher = ema)."""

    def __post_init__(self) -> None:
        if min(self.kl_beta, self.clip, self.tis_clip, self.top_k, self.w_outcome) < 0:
            raise ValueError("kl_beta, clip, tis_clip, top_k and w_outcome are at least 0")
        if not 0.0 < self.taught_temperature < math.inf:
            raise ValueError(f"taught_temperature is {self.taught_temperature}: it is above 0")
        if not (0.0 < self.clip_low < 1.0 and self.clip_high > 0.0):
            raise ValueError(f"clip_low is {self.clip_low} and clip_high {self.clip_high}: they bound a ratio around 1")
        if bool(self.teacher_model) != (self.teacher is TeacherKind.MODEL):
            raise ValueError(
                f"teacher is {self.teacher} and teacher_model {self.teacher_model!r}: name a model where the teacher "
                "is `model`, and only there"
            )
        if not 0.0 <= self.ema_decay < 1.0:
            raise ValueError(f"ema_decay is {self.ema_decay}: it is at least 0 and below 1")

    def rl_weight(self, *, has_outcome: bool) -> float:
        """The weight of a sample's advantage: that of outcomes, or that of scores."""
        return self.w_outcome if has_outcome else self.weights.rl

    @property
    def loss(self) -> LossMethod:
        """The method's formulas."""
        return METHODS[self.name]

    @property
    def weights(self) -> Weights:
        """The method's weights, or those that were set instead."""
        own = self.loss.weights
        return Weights(
            own.rl if self.w_rl is None else self.w_rl,
            own.opd if self.w_opd is None else self.w_opd,
            own.distill if self.w_distill is None else self.w_distill,
        )

    @property
    def form(self) -> Distillation:
        """The form of distillation."""
        if self.distill is not None:
            return FORMS[self.distill]
        return self.loss.distillation or SELECTED

    @property
    def moves_to_target(self) -> bool:
        """Whether steps move toward a teacher's distribution, which says how far to go."""
        return self.weights.distill > 0 and self.form.is_target

    @property
    def selection(self) -> HintSelection:
        """Which of several hints is learned from."""
        return self.form.hint_selection if self.hint_selection is None else self.hint_selection

    @property
    def compared(self) -> int:
        """How many top tokens are compared at each position."""
        return self.top_k or self.form.top_k


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """The trainer: ours, or another's."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset(
        {
            "beta1", "beta2", "enough", "grad_clip", "launcher", "lease_s", "logits_per_chunk", "nice", "prompts",
            "recompute_layers", "scopes_in_memory", "seed", "settle_after", "shard", "still_norm", "weight_decay",
            "weights",
        }
    )  # fmt: skip

    kind: Literal["local", "external"] = "local"
    """Who takes steps: `local` (this project's trainer, in a separate process) or `external` (your own program, which
    leases batches over HTTP and hands back adapters; docs/external-trainer.md). Change it when another trainer should
    be used."""
    lease_s: float = 600.0
    """For how many seconds an external trainer has a batch for itself before it is offered again, unless it extends the
    lease. Change it when that trainer extends its lease seldom."""
    method: MethodSettings = field(default_factory=MethodSettings)
    """The objective."""
    parameters: Literal["lora", "full"] = "lora"
    """What is trained: LoRA weights, or every weight of the model (20 bytes of memory and 12 of disk for each). Change
    it when every weight should be trained and the memory is there."""
    rank: int = 32
    """Rank of the LoRA weights. Change it when adapters should be smaller, or learning does not suffice."""
    alpha: float = 64.0
    """LoRA's alpha: what the adapter adds is scaled by alpha / rank. Change it with rank, by the usual rule alpha = 2 x
    rank."""
    targets: str = "all-linear"
    """Which layers are adapted: all-linear (experts and their routers excepted), or names with commas between them.
    Change it when only some layers should be adapted."""
    lr: float | None = None
    """Learning rate. For LoRA steps that make several updates toward a teacher it is the rate of the first update; it
    then grows while the distance falls and is halved when it rises. For all other steps it is fixed. If unset: 1e-4 for
    the former; for the latter 1e-2 below 100 M parameters and 2e-4 above (full: 1e-4 and 1e-5). Change it when the
    doctor says that versions are refused or nothing is learned."""
    settle_after: int = 0
    """After this many updates a scope's rate falls: update n takes lr * settle_after / n, but at least lr / 10. So the
    noise of single batches averages out, and what is known is not lost over it. It only applies to steps with one
    update. 0: the rate stays the same. Change it when success rises at first and then varies."""
    weight_decay: float = 0.0
    """The optimiser's decay of the LoRA weights."""
    beta1: float = 0.5
    """The optimiser's beta1. Low, because the direction of the last step does not help the next one."""
    beta2: float = 0.999
    """The optimiser's beta2."""
    updates: int = 60
    """The most optimiser updates in one step toward a teacher's top-k distribution; up to half as many more if it fails
    at requests that it was not taught on (teach.checks). Other objectives make one update. Change it when steps take
    too long (fewer) or the gate refuses because nothing changed (more)."""
    enough: float = 0.003
    """A step ends early once the distance to the teacher has fallen to this share of its first value, or to 0.0001 nats
    a token; and at 6 % if the last five updates together took less than a quarter off and at most one in a hundred
    tokens of the teacher's replies is still far from it. A wish may be one token of a long reply, so little of the
    distance is still much of the wish. 0: always make all updates."""
    still_norm: float = 0.35
    """A gradient well below this norm moves the weights in proportion to its norm, a larger one at the full rate; in a
    step of several updates the first gradient decides for all. 0: every gradient moves them at the full rate."""
    grad_clip: float = 1.0
    """Largest norm of a gradient; longer ones are scaled down to it."""
    seed: int = 0
    """Random seed of the initial LoRA weights."""
    prompts: Literal["auto", "constant", "exact"] = "auto"
    """Whether gradients flow through the prompt tokens. `constant`: a step computes each prompt once, with the weights
    it starts from, and takes gradients through reply tokens only. `exact`: each update computes the prompts again, with
    gradients. `auto`: constant for LoRA steps of several updates toward a teacher, else exact."""
    max_tokens_per_pass: int = 2048
    """Tokens in one forward and backward pass, not counting the shared prefix. Bounds memory. A longer sequence is
    computed alone. Change it when the trainer runs out of memory (lower), or has much (higher)."""
    logits_per_chunk: int = 1 << 20
    """How many logits are in memory at once."""
    recompute_layers: bool = False
    """Whether to use activation checkpointing: a third more time, far less memory. It is always used for passes of more
    than 8,192 tokens, and when a GPU has too little free memory."""
    scopes_in_memory: int = 2
    """For how many scopes the trainer keeps weights and optimiser state in memory. Others are read from disk when
    needed."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda if there is one. Change it when the trainer has its own GPU."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """float32, bfloat16, or auto: float32 for models under 100 M parameters on a CPU, else bfloat16. Change it when
    steps give numbers that are not finite, or memory is short."""
    weights: Literal["engine", "auto", "8bit", "4bit"] = "engine"
    """In how many bits the frozen base weights are stored: `engine` (as in `engine.weights`), `auto` (all of `dtype`),
    `8bit` or `4bit`. If it differs from the engine's, importance weights correct for it. Change it when the trainer has
    more memory than the engine."""
    ranks: int = 1
    """How many processes take a step together, each on its own GPU if there are GPUs (docs/cluster.md). Change
    it when one GPU is too small or too slow for the trainer."""
    shard: Literal["auto", "always", "never"] = "auto"
    """Whether the model's layers are divided among the ranks (FSDP2). `auto`: with parameters = full, and where the
    model would take more than a quarter of a GPU's memory. Change it when the trainer's GPUs run out of memory
    (always), or to save the exchange between them (never)."""
    launcher: str = ""
    """The command that starts the ranks, such as `torchrun --standalone --nproc-per-node 4`; the module to run is added
    to it. If empty, they are child processes of the first. Change it when ranks are spread over machines."""
    threads: int = 1
    """CPU threads of the trainer's process. Change it when steps on a CPU are slow and cores are idle."""
    nice: int = 19
    """Nice value of the trainer's process; 19 is the lowest priority."""
    timeout_s: float = 1800.0
    """How many seconds a step may take before its process is killed. Steps are sized to fit into train.step_share of
    this. Change it when samples are set aside as too costly (raise)."""

    def __post_init__(self) -> None:
        least = (self.rank, self.ranks, self.threads, self.max_tokens_per_pass, self.logits_per_chunk, self.updates)
        if min(least) < 1:
            raise ValueError("rank, ranks, threads, updates, max_tokens_per_pass and logits_per_chunk are at least 1")
        if self.parameters == "full" and (self.dtype == "bfloat16" or self.method.teacher is TeacherKind.EMA):
            raise ValueError(
                "parameters is full: every weight is trained in float32, and the teacher is base or model, not ema"
            )
        if self.parameters == "full" and self.weights in ("8bit", "4bit"):
            raise ValueError(
                f"parameters is full and weights {self.weights}: weights in few bits cannot be trained, so it needs "
                "parameters = lora, or engine.weights = auto"
            )
        if self.shard == "always" and self.weights in ("8bit", "4bit"):
            raise ValueError(f"shard is always and weights {self.weights}: weights in few bits stay whole on each rank")
        if self.kind == "external" and self.parameters == "full":
            raise ValueError("kind is external and parameters full: an external trainer hands back LoRA weights")
        if self.lease_s <= 0:
            raise ValueError(f"lease_s is {self.lease_s}: it must be above 0")
        if self.scopes_in_memory < 0:
            raise ValueError(f"scopes_in_memory is {self.scopes_in_memory}: it is 0 or more")
        if not 0.0 <= self.enough < 1.0 or self.still_norm < 0:
            raise ValueError(f"enough is {self.enough} and still_norm {self.still_norm}: at least 0, enough below 1")
        if (self.lr is not None and self.lr <= 0) or self.alpha <= 0 or self.grad_clip <= 0 or self.timeout_s <= 0:
            raise ValueError("lr, alpha, grad_clip and timeout_s must be above 0")
        if self.settle_after < 0:
            raise ValueError(f"settle_after is {self.settle_after}: it is 0 or more")
        if not (0.0 <= self.beta1 < 1.0 and 0.0 <= self.beta2 < 1.0) or self.weight_decay < 0:
            raise ValueError("beta1 and beta2 are at least 0 and below 1, and weight_decay is at least 0")
