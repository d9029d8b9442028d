"""The settings of teaching: what a judged turn teaches, and which of a user's hints are in prompts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Baseline(StrEnum):
    """What is subtracted from a score to get the advantage."""

    NONE = "none"
    EMA = "ema"  # a moving average of the user's recent scores


class StepGrouping(StrEnum):
    """Which steps of a group's episodes are compared with each other."""

    STEP_INDEX = "step_index"  # the steps with the same index, as published
    TASK = "task"  # all steps of the group
    EPISODE = "episode"  # each of the other episodes once: GRPO's advantage
    SITUATION = "situation"  # the steps after the same actions and observations


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """How episodes become samples, and how long an incomplete group waits."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset({"group_wait_s", "overlong_cache"})

    grouping: StepGrouping = StepGrouping.STEP_INDEX
    """Which steps a step's reward is compared with: those of the same index in the group's episodes (step_index), all
    of them (task), the outcomes of the other episodes (episode), or those after the same actions and observations
    (situation). Change it when episodes of one task go different ways, so that equal indexes say little."""
    judge_steps: bool = False
    """Whether the judge scores the steps for which the environment reported no score, with the words for its kind of
    environment. Needs a language model as judge. Use true when episodes are long and outcomes alone say little."""
    overlong_tokens: int = 0
    """The length of a reply at which its episode's outcome is lowered by 1; 0: no reply is too long. Use the most
    tokens that your agents may take in one reply when many are cut off."""
    overlong_cache: int = 256
    """Within this many tokens below overlong_tokens the outcome falls from 0 to -1 in proportion. Change it with
    overlong_tokens."""
    group_wait_s: float = 600.0
    """How long the ended episodes of an incomplete group wait for the others, counted from when one last began, took a
    step or ended. Then they are learned from without the others. Change it when single steps take longer (raise), or
    when groups often stay incomplete (lower)."""
    idle_s: float = 3600.0
    """After this many seconds without a step an open episode is ended as a failure of the infrastructure. Change it
    when single steps take longer."""

    def __post_init__(self) -> None:
        if self.group_wait_s < 0 or self.idle_s <= 0:
            raise ValueError(
                f"group_wait_s is {self.group_wait_s} and idle_s is {self.idle_s}: group_wait_s must be at least 0, "
                "and idle_s more than 0"
            )
        if self.overlong_tokens and not 0 < self.overlong_cache <= self.overlong_tokens:
            raise ValueError(
                f"overlong_cache is {self.overlong_cache}: use a value above 0 and at most overlong_tokens, "
                f"{self.overlong_tokens}"
            )


@dataclass(frozen=True, slots=True)
class TeachSettings:
    """What a judged turn teaches, how many of a user's hints a prompt has, and when the weights follow without them."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset(
        {
            "baseline", "baseline_decay", "checks", "demonstration_variants", "max_tokens", "most_bridged",
            "own_replies", "probe_tokens", "probes", "replies", "retire_gap",
        }
    )  # fmt: skip

    most: int = 12
    """How many of a user's hints are in use at once: the newest. A teacher reads at most as many. Change it when users
    have more standing wishes than 12."""
    most_bridged: int = 3
    """How many hints are put into a prompt with carry = bridge; with carry = weights, how many of those that the
    weights could not learn, and 0 leaves every prompt as it is. The newest are used: many at once interfere. Change it
    when a strong model can follow more at once, or prompts must never be changed."""
    max_tokens: int = 400
    """How many tokens a user's hints in use may take together. Change it when hints are long, or the context is
    short."""
    rehearse: bool = True
    """Whether a teacher also reads what else the user has asked for, retired hints included; with demonstrations only
    those that the reply already follows. Use false for the published methods, where the teacher reads the turn's hint
    alone."""
    own_replies: bool = True
    """Whether the policy is also trained on its own replies to the prompt without hints. They are sampled for this."""
    demonstrations: bool = True
    """Whether a corrected turn is also trained on demonstrations: replies of the base model with the hint in its
    prompt. If the hint changes nothing, the turn is not trained on. Needs the base model as teacher and the tail form.
    Use false for the published methods, or when sampling demonstrations takes too long."""
    demonstration_variants: int = 3
    """How many demonstrations are sampled at temperature 1 besides the likeliest one, so that other wordings are
    learned too. Take fewer when the engine is busy."""
    other_requests: int = 16
    """On how many other requests a general hint is also demonstrated, so that the wish is learned and not the example.
    These are the user's own, among them those with which earlier wishes were asked for, and a quarter that the base
    model generates; if these are fewer than eight, ordinary ones that ship with the product. Up to three requests in
    the middle of conversations are added. Take fewer when the engine is busy or a step takes too long; more when only
    the corrected example is learned, or a user with many wishes loses some."""
    checks: int = 64
    """On how many more requests the base model shows a general hint. A step only learns from those that it would still
    answer otherwise after it learned from the others, so that it does not learn what its examples have in common by
    chance. Up to eight are the user's own; the model generates the others. There are fewer, but at least sixteen, if
    replies or prompts are long or other wishes are known. Take fewer when the engine is busy; more when content suffers
    from a wish. 0: no such check."""
    probes: int = 8
    """On how many different requests the weights must follow a hint without seeing it, before it is retired."""
    replies: int = 2
    """How many replies without the hint are sampled for each of these requests."""
    probe_tokens: int = 256
    """The longest reply sampled for these checks and for demonstrations, in tokens. A demonstration may be twice as
    long as the user's replies, if that is more. Change it when the model writes far more than its users get to see."""
    retire_gap: float = 0.03
    """A hint is retired although it still adds up to this many nats a token to replies that were sampled with it."""
    same_words_a_day: int = 100
    """How often a day (UTC) one user may repeat the same correction. Further ones are dropped. 0: no limit. Change
    it when a program repeats one correction."""
    user_samples_a_day: int = 0
    """How many samples a day (UTC) one user may give; further ones are dropped. 0 for no limit. Change it when a user
    must not teach without bound."""
    in_vain_turns: int = 8
    """Detects corrections that have no effect. Compares a user's last N replies with the N before. If at least half of
    both were corrected, and the number hardly falls, although the user keeps asking for the same thing, what was
    learned from them since is rolled back, unless others have taught the model in the meantime. If they keep returning
    to an earlier wish, learning from them also pauses for 4 N turns. 0 turns this off. Use 0 when you decide yourself
    about rollbacks; higher for users who correct often."""
    baseline: Baseline = Baseline.EMA
    """What is subtracted from a score: nothing (none), or a moving average of the user's recent scores (ema)."""
    baseline_decay: float = 0.9
    """Decay of that moving average. It starts at 0."""

    def __post_init__(self) -> None:
        least = (self.most, self.most_bridged, self.max_tokens, self.demonstration_variants)
        if min(*least, self.other_requests, self.checks) < 0:
            raise ValueError(
                "most, most_bridged, max_tokens, demonstration_variants, other_requests and checks cannot be negative"
            )
        if min(self.probes, self.replies, self.probe_tokens) < 1:
            raise ValueError("probes, replies and probe_tokens are at least 1")
        if self.retire_gap < 0:
            raise ValueError(f"retire_gap is {self.retire_gap}: use at least 0")
        if min(self.same_words_a_day, self.user_samples_a_day, self.in_vain_turns) < 0:
            raise ValueError("same_words_a_day, user_samples_a_day and in_vain_turns cannot be negative")
        if not 0.0 <= self.baseline_decay < 1.0:
            raise ValueError(f"baseline_decay is {self.baseline_decay}: use at least 0 and less than 1")
