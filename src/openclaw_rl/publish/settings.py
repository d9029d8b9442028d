"""The settings of publishing: what a version must pass before it is served."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import ClassVar


class Strictness(StrEnum):
    """How narrow the margins are within which a version is served."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Margins:
    """By how much a version may differ from the one served before it; each margin is described among the settings."""

    kl_max: float
    probe_margin: float
    length_max: float
    length_min: float
    departs_max: float
    departs_others_max: float
    departs_unasked_max: float
    repetition_margin: float
    wish_margin: float
    watch_chance: float

    def check(self) -> None:
        """Raises ValueError for a margin out of range."""
        if self.kl_max <= 0:
            raise ValueError(f"kl_max is {self.kl_max}: it must be above 0")
        if not 0.0 <= self.probe_margin <= 1.0:
            raise ValueError(f"probe_margin is {self.probe_margin}: it must be between 0 and 1")
        if min(self.departs_max, self.departs_others_max, self.departs_unasked_max, self.wish_margin) < 0:
            raise ValueError("departs_max, departs_others_max, departs_unasked_max and wish_margin cannot be negative")
        if not 0.0 <= self.length_min <= 1.0:
            raise ValueError(f"length_min is {self.length_min}: it must be between 0 and 1")
        if self.length_max < 1.0 or not 0.0 <= self.repetition_margin <= 1.0:
            raise ValueError("length_max must be at least 1, repetition_margin between 0 and 1")
        if not 0.0 < self.watch_chance < 1.0:
            raise ValueError(f"watch_chance is {self.watch_chance}: it must be between 0 and 1")


MARGINS = tuple(item.name for item in fields(Margins))
STRICTNESS = {
    Strictness.LOW: Margins(
        kl_max=3.0,
        probe_margin=0.5,
        length_max=2.5,
        length_min=0.3,
        departs_max=0.08,
        departs_others_max=0.16,
        departs_unasked_max=0.8,
        repetition_margin=0.5,
        wish_margin=0.1,
        watch_chance=0.0025,
    ),
    Strictness.NORMAL: Margins(
        kl_max=1.5,
        probe_margin=0.25,
        length_max=1.75,
        length_min=0.5,
        departs_max=0.04,
        departs_others_max=0.08,
        departs_unasked_max=0.5,
        repetition_margin=0.25,
        wish_margin=0.05,
        watch_chance=0.005,
    ),
    Strictness.HIGH: Margins(
        kl_max=0.75,
        probe_margin=0.125,
        length_max=1.4,
        length_min=0.7,
        departs_max=0.02,
        departs_others_max=0.04,
        departs_unasked_max=0.25,
        repetition_margin=0.125,
        wish_margin=0.025,
        watch_chance=0.01,
    ),
}


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """What a version must pass before and after it is served, and how many versions are kept."""

    # A user can hardly judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset(
        {
            "departs_max", "departs_others_max", "departs_unasked_max", "kl_max", "kl_top_k", "kl_turns",
            "length_max", "length_min", "probe_margin", "probe_others", "probe_prompt_tokens", "probe_tokens",
            "repetition_margin", "retry_s", "task_tokens", "trial_turns", "watch_chance", "wish_margin", "wish_turns",
        }
    )  # fmt: skip

    gate: bool = True
    """Whether versions must pass the gate before they are served. Their files are always checked. Use false only in
    experiments: versions are then served untested."""
    strictness: Strictness = Strictness.NORMAL
    """How narrow the margins of the gate and of the watch are: low, normal or high. Each margin can also be set
    separately (`openclaw-rl settings --advanced`). Use high when a bad version would cost much, low when the gate
    refuses versions that you find good."""
    kl_max: float | None = None
    """How far, in nats a token, a version may be from the base model on the user's recent turns; 1.5 with normal
    strictness."""
    kl_turns: int = 8
    """On how many recent turns that distance is measured."""
    kl_top_k: int = 20
    """How many tokens are compared one by one at each position; the others count as one."""
    probes: int = 6
    """How many short replies to recent prompts a version has to give. Take more for a surer gate, fewer for a faster
    one."""
    probe_tokens: int = 160
    """The longest such reply. Change it when your users' replies are much longer or shorter."""
    probe_prompt_tokens: int = 4096
    """Prompts longer than this are not used at the gate. If all prompts are longer, one of them is used. Change it when
    your prompts are longer than 4,096 tokens and the gate should see them."""
    probe_margin: float | None = None
    """How much larger the share of degenerate replies may be than its parent's; 0.25 with normal strictness."""
    length_max: float | None = None
    """How many times longer trial replies may be than the earlier replies to the same prompts, plus 16 tokens, or than
    the base model's if the user's hints make these longer; 1.75 with normal strictness."""
    length_min: float | None = None
    """How short trial replies may be: this share of a reference length, minus 4 tokens. The reference is the shorter of
    the earlier replies and of the base model's with the user's hints in the prompt; 0.5 with normal strictness."""
    probe_others: int = 4
    """How many further prompts the gate uses: other users' prompts, kinds without a correction, and generated ones; if
    these show damage, or the step failed a check, up to 48 more generated ones. 0: none."""
    departs_max: float | None = None
    """Which share of the replies to its users' prompts may depart from what the base model says, with or without their
    hints in the prompt. Computed from the probabilities of the tokens; 0.04 with normal strictness."""
    departs_others_max: float | None = None
    """The same for other users' prompts; 0.08 with normal strictness."""
    departs_unasked_max: float | None = None
    """The same for generated requests, about which the base model may know little; 0.5 with normal strictness. Where 24
    or more are tried, at most 1.5 times departs_others_max are allowed."""
    repetition_margin: float | None = None
    """How much larger the mean share of repeated text in trial replies may be than in the earlier replies; 0.25 with
    normal strictness."""
    wish_turns: int = 4
    """On how many hinted turns of this step, and of earlier steps, the gate measures whether hints are followed."""
    wish_margin: float | None = None
    """How much further than the served version, in nats a token, a version may be from the base model's replies given
    the hints; 0.05 with normal strictness."""
    give_back: int = 1
    """How often the samples of a refused version are trained again, each time with a smaller learning rate. After that
    they are dropped as not_learnable. 0: drop them at once. Use 0 to give refused corrections up at once, more to try
    them longer."""
    tasks: str = ""
    """A file of probe tasks, one JSON object per line: `prompt`, and `expect`, a regular expression for the answer.
    Change it when the model must not lose a skill that you can test."""
    task_margin: float = 0.1
    """By how much the share of solved probe tasks may fall below the served version's, or below the best earlier
    version's. Change it with publish.tasks: how many failures are allowed."""
    task_tokens: int = 256
    """The longest answer to a probe task. Change it with publish.tasks: when answers are longer."""
    watch_turns: int = 40
    """Over how many judged turns a served version is compared with the one before it. A version that does worse is
    rolled back. 0: no comparison. Use 0 when you decide yourself about rollbacks; more to notice small losses."""
    watch_chance: float | None = None
    """The probability that a version is rolled back although it does no worse; 0.005 with normal strictness."""
    trial_turns: int = 40
    """On how many of the requests that it answers a served version is tried further, as at the gate: it may have lost a
    kind of problem that nobody had asked about before. If so, it is rolled back, though nobody complained. 0: no such
    trial. Use 0 when the engine has no time for it: each takes about as long as two replies."""
    keep_loaded: int = 2
    """How many versions stay loaded: the served one and those before it, for a quick rollback. Change it when you
    go back often, or memory is short."""
    keep_versions: int = 20
    """How many versions that passed the gate keep their weights on disk, in each scope, besides those in use. `replay
    --restore` restores older ones. 0: keep all. Change it when the disk is small, or you must be
    able to go back further."""
    retry_s: float = 5.0
    """Seconds to wait after the engine could not test a version. Doubles each time, up to five minutes."""

    @property
    def margins(self) -> Margins:
        """The margins in force: those of the strictness, except for those that are set separately."""
        own = {name: value for name in MARGINS if (value := getattr(self, name)) is not None}
        return replace(STRICTNESS[self.strictness], **own)

    def __post_init__(self) -> None:
        self.margins.check()
        if min(self.kl_turns, self.probes, self.probe_others) < 0:
            raise ValueError("kl_turns, probes and probe_others cannot be negative")
        if not 1 <= self.kl_top_k <= 100:
            raise ValueError(f"kl_top_k is {self.kl_top_k}: it must be between 1 and 100")
        if self.probe_tokens < 1 or self.probe_prompt_tokens < 1 or self.retry_s <= 0:
            raise ValueError("probe_tokens, probe_prompt_tokens and retry_s must be above 0")
        if min(self.wish_turns, self.watch_turns, self.trial_turns, self.give_back) < 0:
            raise ValueError("wish_turns, watch_turns, trial_turns and give_back cannot be negative")
        if not 0.0 <= self.task_margin <= 1.0 or self.task_tokens < 1:
            raise ValueError("task_margin must be between 0 and 1, task_tokens above 0")
        if self.keep_versions < 0:
            raise ValueError(f"keep_versions is {self.keep_versions}: it is 0, for all, or more")
        if self.keep_loaded < 1:
            raise ValueError(f"keep_loaded is {self.keep_loaded}: the version being served stays loaded")
