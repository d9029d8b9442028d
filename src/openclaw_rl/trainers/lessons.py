"""Samples as lessons: which of their signals a method uses, and the weight of each term of the objective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from openclaw_rl.algo.advantage import group_advantage, prefix_advantage
from openclaw_rl.algo.method import HintSelection
from openclaw_rl.algo.methods.binary import baseline_advantage
from openclaw_rl.algo.reward import standardised
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, Sample, SampledReply
from openclaw_rl.trainers.batch import Reading
from openclaw_rl.trainers.settings import Mean, MethodSettings


@dataclass(frozen=True, slots=True)
class Lesson:
    """A sample with the signals that its method uses.

    `trained` are indexes into the response. `advantage` is A_rl of each of these tokens, None if the sample has none;
    `hints` are those learned from, none if the method uses no hints.
    """

    sample: Sample
    trained: tuple[int, ...]
    advantage: tuple[float, ...] | None
    hints: tuple[HintPrompt, ...]

    @property
    def is_taught(self) -> bool:
        """Whether the teacher sampled it, given a hint: then only the forward divergence is used."""
        return self.sample.is_taught

    @property
    def is_literal(self) -> bool:
        """Whether a demonstration's own tokens are learned: its content was checked, and the teacher reads a hint."""
        is_read_with_hint = any(hint.tokens != self.sample.prompt for hint in self.hints)
        return self.is_taught and self.sample.is_literal and is_read_with_hint

    @property
    def has_signal(self) -> bool:
        """Whether anything but the anchor moves the policy."""
        return any(self.advantage or ()) or bool(self.hints)

    @property
    def is_corrected(self) -> bool:
        """Whether the reply was corrected."""
        return self.sample.score is not None and self.sample.score < 0

    @property
    def kept(self) -> tuple[float, ...]:
        """As the sample's, for the trained tokens only."""
        return tuple(self.sample.kept[index] for index in self.trained) if self.sample.kept else ()

    def reading(self, prompt: tuple[int, ...] | None = None) -> Reading:
        """The response after its own prompt, or after a hinted one."""
        before = self.sample.prompt if prompt is None else prompt
        return Reading(before + self.sample.response, tuple(len(before) + index for index in self.trained))


@dataclass(frozen=True, slots=True)
class TermWeights:
    """The weight of one token of a lesson in each term: the term's weight over its denominator; 0 if it is not used."""

    policy: float
    distill: float
    kl: float


def lessons(samples: Sequence[Sample], method: MethodSettings) -> list[Lesson]:
    """One lesson for each sample, in order; more if a sample has further replies besides the served one."""
    samples = [part for sample in samples for part in parts(sample) if method.w_taught or not part.is_taught]
    takes_hints = bool(method.weights.opd or method.weights.distill)
    found: list[Lesson] = []
    for sample, of_reply in zip(samples, rl_advantages(samples, method.step_coefficient), strict=True):
        trained = tuple(index for index, is_trained in enumerate(sample.mask) if is_trained)
        by_token = None
        if method.rl_weight(has_outcome=sample.outcome is not None):
            by_token = token_advantages(sample, of_reply, method.step_coefficient)
        advantage = None if by_token is None else tuple(by_token[index] for index in trained)
        hints = _worth_reading(sample.hints, method.selection) if takes_hints or sample.is_taught else ()
        found.append(Lesson(sample, trained, advantage, hints))
    return found


def parts(sample: Sample) -> list[Sample]:
    """The sample, and samples of the policy's own reply and of the teacher's demonstrations, if it has them.

    A score is for the served reply. If that was the teacher's, the policy is not rewarded for it.
    """
    unscored = _unscored(sample) if sample.is_taught else sample
    served = replace(unscored, own=None, shown=(), elsewhere=(), is_literal=False)
    beside = replace(served, is_literal=sample.is_literal)
    own = [] if sample.own is None else [_said_beside(served, sample.own, is_taught=False)]
    shown = [_said_beside(beside, reply, is_taught=True) for reply in sample.shown]
    others = [_said_elsewhere(beside, other) for other in sample.elsewhere if not other.is_check]
    return [served, *own, *shown, *others]


def check_lessons(samples: Sequence[Sample], method: MethodSettings) -> list[Lesson]:
    """A lesson for each demonstration that is only learned from if the others do not suffice for it."""
    found: list[Lesson] = []
    for sample in samples if method.w_taught else ():
        for other in (other for other in sample.elsewhere if other.is_check):
            part = _said_elsewhere(replace(sample, own=None, shown=(), elsewhere=()), other)
            found.append(Lesson(part, tuple(range(len(part.response))), None, part.hints))
    return found


def _said_elsewhere(served: Sample, other: OtherRequestReply) -> Sample:
    return replace(_said_beside(served, other.reply, is_taught=True), prompt=other.prompt, hints=(other.hint,))


def _said_beside(served: Sample, reply: SampledReply, *, is_taught: bool) -> Sample:
    return replace(
        _unscored(served),
        kept=(),
        response=reply.tokens,
        logp=reply.logp,
        mask=(True,) * len(reply.tokens),
        version=reply.version,
        is_taught=is_taught,
    )


def _unscored(sample: Sample) -> Sample:
    return replace(sample, score=None, baseline=None, outcome=None, peers=(), group=None)


def rl_advantages(samples: Sequence[Sample], step_coefficient: float) -> list[float | None]:
    """A_rl of each sample: a step's among its peers, a reply's in its group of at least two, else over its baseline.

    None if it has no score, if all rewards it is compared with are equal, and for a promoted zero, which trains only
    the anchor.
    """
    found: list[float | None] = [None] * len(samples)
    groups: dict[str, list[int]] = defaultdict(list)
    for index, sample in enumerate(samples):
        reward = reward_of(sample, step_coefficient)
        if reward is None or (sample.is_promoted and reward == 0):
            continue
        if sample.peers:
            found[index] = among_peers(sample, step_coefficient)
            continue
        if sample.group is not None:
            groups[sample.group].append(index)
        found[index] = baseline_advantage(reward, sample.baseline) or None
    for members in groups.values():
        if len(members) < 2:
            continue
        rewards = [reward_of(samples[index], step_coefficient) or 0.0 for index in members]
        within = group_advantage(torch.tensor(rewards, dtype=torch.float64))
        for place, index in enumerate(members):
            found[index] = None if within is None else float(within[place])
    return found


def among_peers(sample: Sample, step_coefficient: float) -> float | None:
    """A step's advantage: its reward, outcome + coefficient * step score, standardised among those of its peers.

    A step without peers keeps its reward. None if that is 0 or all rewards are equal, which teaches nothing.
    Source: arXiv 2603.10165.
    """
    found = standardised({sample.turn: _rewards(sample, step_coefficient)}).get(sample.turn)
    if found is None:
        return None
    return float(found[_own_place(sample)]) or None


def token_advantages(sample: Sample, of_reply: float | None, step_coefficient: float) -> tuple[float, ...] | None:
    """A_rl of each response token: that of the reply, unless peers' replies begin with the same tokens.

    Then tokens are compared with what those said at the same place (`prefix_advantage`). None if all are 0.
    """
    if not any(peer.shared for peer in sample.peers if peer.turn != sample.turn):
        return None if of_reply is None else (of_reply,) * len(sample.response)
    rewards, shared = _rewards(sample, step_coefficient), [peer.shared for peer in sample.peers]
    found = prefix_advantage(rewards, shared, _own_place(sample), len(sample.response))
    return tuple(found.tolist()) if found is not None and bool(found.any()) else None


def _rewards(sample: Sample, step_coefficient: float) -> torch.Tensor:
    """The rewards of a step's peers, in their order."""
    found = [peer.outcome + step_coefficient * (peer.score or 0.0) for peer in sample.peers]
    return torch.tensor(found, dtype=torch.float64)


def _own_place(sample: Sample) -> int:
    return [peer.turn for peer in sample.peers].index(sample.turn)


def reward_of(sample: Sample, step_coefficient: float) -> float | None:
    """The score, or the rollout's outcome plus the step's weighted score; None if there is neither."""
    if sample.outcome is None:
        return sample.score
    return sample.outcome.reward + step_coefficient * (sample.score or 0.0)


def shares(taught: Sequence[Lesson], method: MethodSettings) -> list[TermWeights]:
    """The weight of a token in each term, lesson by lesson.

    A term's denominator counts the tokens (or, for the mean over sequences, the replies) that term applies to.
    Rehearsal samples have separate denominators: they are added, and the other lessons move the policy as far as
    without them.
    """
    found: dict[int, TermWeights] = {}
    for rehearses in (False, True):
        places = [place for place, one in enumerate(taught) if bool(one.sample.rehearses) is rehearses]
        found |= zip(places, _shares([taught[place] for place in places], method), strict=True)
    return [found[place] for place in range(len(taught))]


def _shares(taught: Sequence[Lesson], method: MethodSettings) -> list[TermWeights]:
    weights = method.weights
    in_policy = [one.advantage is not None or bool(one.hints and weights.opd and not one.is_taught) for one in taught]
    distill_weights = [method.w_taught if one.is_taught else weights.distill for one in taught]
    in_distill = [bool(one.hints and weight) for one, weight in zip(taught, distill_weights, strict=True)]
    in_kl = [method.kl_beta > 0] * len(taught)
    policy = _token_shares(taught, in_policy, method.mean)
    distill = _token_shares(taught, in_distill, method.mean)
    anchor = _token_shares(taught, in_kl, method.mean)
    return [
        TermWeights(a, weight * b, method.kl_beta * c)
        for a, weight, b, c in zip(policy, distill_weights, distill, anchor, strict=True)
    ]


def _token_shares(taught: Sequence[Lesson], part: Sequence[bool], mean: Mean) -> list[float]:
    counts = [len(one.trained) if takes_part else 0 for one, takes_part in zip(taught, part, strict=True)]
    if mean is Mean.TOKEN:
        total = sum(counts)
        return [1.0 / total if count else 0.0 for count in counts]
    replies = sum(1 for count in counts if count)
    return [1.0 / (replies * count) if count else 0.0 for count in counts]


def _worth_reading(hints: Sequence[HintPrompt], by: HintSelection) -> tuple[HintPrompt, ...]:
    """The hints a teacher must read before one is chosen: only one if the choice is by length."""
    if len(hints) > 1 and by is HintSelection.LONGEST:
        return (max(hints, key=lambda hint: len(hint.text)),)
    if len(hints) > 1 and by is HintSelection.SHORTEST:
        return (min(hints, key=lambda hint: len(hint.text)),)
    return tuple(hints)


def counts(taught: Sequence[Lesson]) -> dict[str, float]:
    """The number of lessons, and how many of them have each signal."""
    return {
        "samples": float(len(taught)),
        "samples_scored": float(sum(one.advantage is not None for one in taught)),
        "samples_hinted": float(sum(bool(one.hints) for one in taught)),
    }
