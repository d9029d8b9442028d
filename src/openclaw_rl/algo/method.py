"""The parts of a method of learning. Each method has its own file in `algo/methods/`.

Nothing here, nor at the top of those files, loads torch: the server reads a method's weights without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class HintSelection(StrEnum):
    """Which of several hints a reply learns from."""

    LONGEST = "longest"
    SHORTEST = "shortest"
    SEQUENCE = "sequence"  # most overlap of top tokens over the whole reply
    TOKEN = "token"  # the same, token by token
    CONTRARY = "contrary"  # the one under which a corrected reply is least likely; `sequence` for others


@dataclass(frozen=True, slots=True)
class Weights:
    """How much the score's advantage, the hint's advantage and top-k distillation count."""

    rl: float
    opd: float
    distill: float


@dataclass(frozen=True, slots=True)
class SelectedTokens:
    """The tokens compared at each position, which of them count, and log pi_old of each; all [T, K]."""

    ids: Tensor
    counts: Tensor
    logp_old: Tensor

    def rows(self, part: slice) -> SelectedTokens:
        """Those of some positions."""
        return SelectedTokens(self.ids[part], self.counts[part], self.logp_old[part])


class LossOptions(Protocol):
    """The settings that formulas read; `trainer.method` has them."""

    @property
    def compared(self) -> int:
        """How many top tokens are compared at each position."""

    @property
    def subset(self) -> str:
        """Whose top tokens the selected form compares."""

    @property
    def divergence(self) -> str:
        """What the tail form measures."""

    @property
    def taught_temperature(self) -> float:
        """The temperature of the teacher's distribution on its own samples."""

    @property
    def clip(self) -> float:
        """Bound on the hint's advantage of one token, in nats; 0 is off."""

    @property
    def clip_low(self) -> float:
        """The ratio is clipped at 1 - this."""

    @property
    def clip_high(self) -> float:
        """The ratio is clipped at 1 + this."""

    @property
    def tis_clip(self) -> float:
        """Cap on the ratio to the version that sampled; 0 is off."""


class AdvantageSum(Protocol):
    """The advantage of sampled tokens, made from the score's and the hint's."""

    def __call__(self, rl: Tensor | None, opd: Tensor | None, /, *, w_rl: float, w_opd: float) -> Tensor | None:
        """Both [T] or None if the signal does not exist. None if nothing is learned."""


class PolicyObjective(Protocol):
    """The objective of sampled tokens, from their log-probabilities and advantages, to be maximised."""

    def __call__(
        self,
        logp: Tensor,
        logp_old: Tensor,
        advantage: Tensor,
        /,
        *,
        clip_low: float,
        clip_high: float,
        ratio_cap: float = 0.0,
    ) -> Tensor:
        """All [T], [T] out."""


class Distance(Protocol):
    """The distance of the policy's distribution from the teacher's, to be minimised."""

    def __call__(
        self, policy: Tensor, teacher: Tensor, selected: SelectedTokens | None, options: LossOptions, /
    ) -> Tensor:
        """Log-probabilities over the vocabulary, both [T, V], [T] out.

        `selected` is None if the policy that is read is also the one that sampled.
        """


@dataclass(frozen=True, slots=True)
class Distillation:
    """A form of top-k distillation."""

    top_k: int  # tokens compared at each position, if settings do not say
    hint_selection: HintSelection  # if settings do not say
    is_target: bool  # it defines a target, so a step may make several updates; a clipped gap does not
    reads_sampler: bool  # the version that sampled is read again, for importance weights
    distance: Distance


@dataclass(frozen=True, slots=True)
class LossMethod:
    """A method: its weights, and the formula of each term. A term whose weight is 0 is not computed.

        loss = -mean_t policy_t(advantage_t) + w_distill * mean_t distance_t + kl_beta * mean_t k3_t

    Each mean counts the tokens that its term applies to. The last term, the anchor, is the same for all methods.
    """

    weights: Weights
    advantage: AdvantageSum
    policy: PolicyObjective
    distillation: Distillation | None = None  # None for a method of scores and advantages alone
