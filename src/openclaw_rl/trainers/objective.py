"""The objective, a few tokens at a time: clipped policy gradient, top-k distillation, and the anchor to the base."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from openclaw_rl.algo.loss import is_clipped, kl_bounded, kl_k3, kl_weighed
from openclaw_rl.algo.method import SelectedTokens
from openclaw_rl.algo.methods.topk import demonstration_distance, literal_distance
from openclaw_rl.trainers.batch import chunks
from openclaw_rl.trainers.checks import MISSED_NATS
from openclaw_rl.trainers.lessons import TermWeights
from openclaw_rl.trainers.model import Speaker
from openclaw_rl.trainers.settings import MethodSettings

HINTED_NATS = 1.0  # a hint is about the tokens whose log-probability it changes by this much


@dataclass(frozen=True, slots=True)
class Targets:
    """The facts of a lesson's n trained tokens before the policy is read.

    `logp_old` was recorded when they were sampled; `advantage`, `logp_ref` [n] and `teacher` [n, H], the teacher's
    hidden states given its hint, are None if their terms do not apply. If the teacher itself sampled (`is_taught`), the
    distance is the forward divergence, whatever the method's own form. `anchored` [n] is 1 where the anchor to the base
    applies and 0 where it does not, None if it applies everywhere. `selected` is what the selected form compares, None
    if it is the policy as it is read. `is_literal`: the distance of a taught reply is that to its own tokens. Else
    this holds of those at which `content` [n] is True, None if there are none. `divergence`: the anchor's
    form; a step of several updates may leave a token far behind, and has another one for it than k3.
    """

    ids: Tensor
    logp_old: Tensor
    shares: TermWeights
    advantage: Tensor | None = None
    logp_ref: Tensor | None = None
    teacher: Tensor | None = None
    is_taught: bool = False
    anchored: Tensor | None = None
    selected: SelectedTokens | None = None
    is_literal: bool = False
    content: Tensor | None = None
    divergence: Callable[[Tensor, Tensor], Tensor] = kl_k3


@dataclass(slots=True)
class LossSums:
    """Sums over the tokens seen so far; the first three are the terms of the loss as they are added up.

    `taught_tokens` are those of a teacher's replies, `far_tokens` those among them that the policy finds much less
    likely than the teacher did.
    """

    policy: float = 0.0
    distill: float = 0.0
    anchor: float = 0.0
    kl: float = 0.0
    clipped: float = 0.0
    gap: float = 0.0
    advantage: float = 0.0
    advantage_tokens: int = 0
    gap_tokens: int = 0
    tokens: int = 0
    far_tokens: int = 0
    taught_tokens: int = 0

    @property
    def loss(self) -> float:
        """The whole loss."""
        return self.policy + self.distill + self.anchor

    def add_up(self, summed: Callable[[Sequence[float]], list[float]]) -> None:
        """Replaces this rank's sums by those over all ranks."""
        own = [self.policy, self.distill, self.anchor, self.kl, self.clipped, self.gap, self.advantage]
        counts = [self.advantage_tokens, self.gap_tokens, self.tokens, self.far_tokens, self.taught_tokens]
        (self.policy, self.distill, self.anchor, self.kl, self.clipped, self.gap, self.advantage, *found) = summed(
            [*own, *counts]
        )
        self.advantage_tokens, self.gap_tokens, self.tokens, self.far_tokens, self.taught_tokens = map(round, found)

    def metrics(self) -> dict[str, float]:
        """The terms and the means over tokens, for the log and the manifest."""
        found = {
            "loss": self.loss,
            "loss_policy": self.policy,
            "loss_distill": self.distill,
            "loss_anchor": self.anchor,
            "kl": self.kl / max(1, self.tokens),
            "tokens": float(self.tokens),
        }
        if self.advantage_tokens:
            found["advantage_abs"] = self.advantage / self.advantage_tokens
            found["clip_fraction"] = self.clipped / self.advantage_tokens
        if self.gap_tokens:
            found["train_rollout_logp_gap"] = self.gap / self.gap_tokens
        return found


class Objective:
    """The loss of lessons' tokens, and its gradient with respect to the hidden states that predict them."""

    def __init__(self, model: Speaker, method: MethodSettings, logits_at_once: int, teacher: Speaker) -> None:
        self._model = model
        self._teacher = teacher
        self._method = method
        self._logits_at_once = logits_at_once

    def gradient(self, hidden: Tensor, targets: Targets, tally: LossSums, *, is_own: bool) -> Tensor:
        """d loss / d hidden, [n, H]; its sums are added to `tally`.

        Each chunk's logits live until its gradient is computed, so never more than a chunk of them exists and none is
        computed twice. `is_own`: the weights being read are those that sampled.
        """
        gradient = torch.empty_like(hidden)
        for rows in chunks(len(targets.ids), self._model, self._logits_at_once):
            leaf = hidden[rows].detach().requires_grad_()
            loss = self._loss(leaf, rows, targets, tally, is_own)
            loss.backward()  # type: ignore[no-untyped-call]  # an output head that trains gets its share here
            if leaf.grad is not None:
                gradient[rows] = leaf.grad
        return gradient

    def _loss(self, hidden: Tensor, rows: slice, targets: Targets, tally: LossSums, is_own: bool) -> Tensor:
        all_logp = self._model.logits(hidden).log_softmax(-1)  # [c, V]
        logp = all_logp.gather(-1, targets.ids[rows].unsqueeze(-1)).squeeze(-1)
        logp_old = targets.logp_old[rows]
        tally.tokens += len(logp)
        if targets.is_taught:
            tally.taught_tokens += len(logp)
            tally.far_tokens += int((logp_old - logp.detach() > MISSED_NATS).sum())
        if is_own:
            tally.gap += float((logp.detach() - logp_old).abs().sum())
            tally.gap_tokens += len(logp)
        loss = logp.sum() * 0.0
        if targets.advantage is not None:
            policy = self._policy(logp, logp_old, targets.advantage[rows], tally) * targets.shares.policy
            tally.policy += float(policy.detach())
            loss = loss + policy
        if targets.teacher is not None:
            distance = self._distill(all_logp, targets, rows)
            distill = distance.sum() * targets.shares.distill
            tally.distill += float(distill.detach())
            loss = loss + distill
        if targets.logp_ref is not None:
            apart = targets.divergence(logp, targets.logp_ref[rows])
            divergence = (apart if targets.anchored is None else apart * targets.anchored[rows]).sum()
            tally.kl += float(apart.detach().sum())
            tally.anchor += float(divergence.detach()) * targets.shares.kl
            loss = loss + divergence * targets.shares.kl
        return loss

    def _policy(self, logp: Tensor, logp_old: Tensor, advantage: Tensor, tally: LossSums) -> Tensor:
        low, high = self._method.clip_low, self._method.clip_high
        clipped = is_clipped(logp.detach(), logp_old, advantage, clip_low=low, clip_high=high)
        tally.clipped += float(clipped.sum())
        tally.advantage += float(advantage.abs().sum())
        tally.advantage_tokens += len(advantage)
        cap = self._method.tis_clip
        objective = self._method.loss.policy(logp, logp_old, advantage, clip_low=low, clip_high=high, ratio_cap=cap)
        return -objective.sum()

    def _distill(self, all_logp: Tensor, targets: Targets, rows: slice) -> Tensor:
        """The distance to the teacher at each position, [c]."""
        assert targets.teacher is not None
        if targets.is_literal:
            return literal_distance(all_logp, targets.ids[rows])
        with torch.no_grad():
            teacher_logp = self._teacher.logits(targets.teacher[rows]).log_softmax(-1)
        if targets.is_taught:
            distance = demonstration_distance(all_logp, teacher_logp, self._method)
            if targets.content is None:
                return distance
            return torch.where(targets.content[rows], literal_distance(all_logp, targets.ids[rows]), distance)
        # None: the policy that is read also sampled, or replaces the one that did
        selected = None if targets.selected is None else targets.selected.rows(rows)
        return self._method.form.distance(all_logp, teacher_logp, selected, self._method)


def anchored(reference: Tensor | None, hinted: Tensor | None) -> Tensor | None:
    """1 where the hint leaves a token's log-probability as it was: the anchor to the base applies only there.

    The base still prefers the tokens that the teacher rejects. Anchored to it there, a policy that has learned better
    would be pulled back by each further correction, and the harder the better it has learned.
    """
    if reference is None or hinted is None:
        return None
    return ((hinted - reference).abs() < HINTED_NATS).to(hinted.dtype)


def anchor_form(*, is_hinted: bool, is_once: bool) -> Callable[[Tensor, Tensor], Tensor]:
    """The form of the anchor to the base in a step of one update, or of several, for a reply with or without a hint.

    k3 is for tokens that the policy itself said. Several updates may leave some of them far behind, and then k3 leads
    the step back to those alone.
    """
    if is_once:
        return kl_k3
    return kl_bounded if is_hinted else kl_weighed
