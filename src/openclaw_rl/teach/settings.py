"""The settings of teaching: what a judged turn teaches, and which of a user's hints stand in prompts meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Baseline(StrEnum):
    """What is taken off a score before it is an advantage."""

    NONE = "none"
    EMA = "ema"  # a moving average of the user's recent scores


class StepGrouping(StrEnum):
    """Which steps of a group's episodes are compared with each other."""

    STEP_INDEX = "step_index"  # those of the same index, as published
    TASK = "task"  # all steps of the group


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """How episodes become samples, and how long their groups are waited for."""

    grouping: StepGrouping = StepGrouping.STEP_INDEX
    """Which steps a step's reward is compared with: those of the same index in the group's episodes (step_index), or
    all of them (task). Change it to task when episodes of one task go different ways, so that equal indexes say
    little."""
    group_wait_s: float = 600.0
    """How long an incomplete group is waited for, counted from when one of its episodes last began, took a step or
    ended; then it is learned from as it is. Change it when single steps take longer (raise), or when groups often stay
    incomplete (lower)."""
    idle_s: float = 3600.0
    """After so long without a step an open episode is ended as a failure of the infrastructure. Change it when single
    steps take longer."""

    def __post_init__(self) -> None:
        if self.group_wait_s < 0 or self.idle_s <= 0:
            raise ValueError("group_wait_s is at least 0 and idle_s lies above 0")


@dataclass(frozen=True, slots=True)
class TeachSettings:
    """What a judged turn teaches, how many of a user's hints stand in a prompt, and when the weights follow without."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset(
        {
            "baseline", "baseline_decay", "own_replies", "probes", "replies", "retire_gap",
        }
    )  # fmt: skip

    most: int = 12
    """How many of a user's hints may be in use at once, or heeded by a teacher; the newest are. Change it when users
    have more standing wishes than 12."""
    most_bridged: int = 3
    """How many stand in a prompt with a bridge: the older ones are being learned, and many drown each other. Change it
    with hints.use = bridge: when a strong model keeps more hints apart."""
    max_tokens: int = 400
    """How many tokens they may take together. Change it when hints are long, or the context is short."""
    rehearse: bool = True
    """Whether a teacher also reads what else the user has asked for, retired hints included; with shown_replies only
    what the reply follows already. Use false for the published methods, where the teacher reads the hint of the turn
    alone."""
    own_replies: bool = True
    """Whether the weights are also taught on replies of their own to the prompt without hints, sampled for it."""
    shown_replies: bool = True
    """Whether a corrected turn is also taught on what the base model says behind the hint, sampled for it, and not at
    all where the hint changes nothing. Holds where the teacher is the base model and the form of distillation tail. Use
    false for the published methods, or when sampling demonstrations takes too long."""
    shown_variants: int = 3
    """How many such replies are sampled at temperature 1 beside the likeliest, so that other ways to say it are taught,
    too. Take fewer when the engine is busy."""
    elsewhere: int = 8
    """To how many other requests the base model's reply with a general hint is taught beside the corrected one, so that
    the wish is learned and not the example: the user's own earlier ones, then such as the base model makes up. Up to
    three in the middle of conversations come on top. Take fewer when the engine is busy; more when only the corrected
    example is learned."""
    probes: int = 8
    """On how many different requests of the user, answered behind a hint, the weights must follow without it."""
    replies: int = 2
    """How many replies of the weights' own to each of these, without the hint, are sampled for it."""
    probe_tokens: int = 256
    """The longest reply that is sampled for trying or teaching. Change it when your users' replies are longer than 256
    tokens."""
    retire_gap: float = 0.03
    """How many nats a token a hint may still add to what was said behind it, and be retired all the same."""
    same_words_a_day: int = 100
    """How often in a day (UTC) one user may teach the same correction; further ones are dropped. 0 for no limit. Change
    it when a program repeats one correction."""
    user_samples_a_day: int = 0
    """How many samples a day (UTC) one user may give; further ones are dropped. 0 for no limit. Change it when a user
    must not teach without bound."""
    in_vain_turns: int = 8
    """What was learned from a user is taken back once they corrected at least half of their last so many replies, of as
    many before, and hardly fewer, and ask for the same again and again, or for this and that in turn; in that case
    learning from them rests for four times as many turns, too. 0 turns this off. Use 0 when you decide yourself about
    rollbacks; higher for users who correct often."""
    baseline: Baseline = Baseline.EMA
    """What is taken off a score: nothing, or a moving average of that user's recent ones."""
    baseline_decay: float = 0.9
    """How much of the moving average stays at each score; it starts at 0."""

    def __post_init__(self) -> None:
        if min(self.most, self.most_bridged, self.max_tokens, self.shown_variants, self.elsewhere) < 0:
            raise ValueError("most, most_bridged, max_tokens, shown_variants and elsewhere cannot be negative")
        if min(self.probes, self.replies, self.probe_tokens) < 1:
            raise ValueError("probes, replies and probe_tokens are at least 1")
        if self.retire_gap < 0:
            raise ValueError(f"retire_gap is {self.retire_gap}: it is at least 0")
        if min(self.same_words_a_day, self.user_samples_a_day, self.in_vain_turns) < 0:
            raise ValueError("same_words_a_day, user_samples_a_day and in_vain_turns cannot be negative")
        if not 0.0 <= self.baseline_decay < 1.0:
            raise ValueError(f"baseline_decay is {self.baseline_decay}: it is at least 0 and below 1")
