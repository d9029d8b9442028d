"""The settings of publishing: what a version must pass before it is served."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """What a version must pass before it is served and keep to then, and how many stay at hand."""

    gate: bool = True
    """Whether versions are tried at all; their files are checked in any case."""
    kl_max: float = 1.5
    """How far, in nats a token, a version may be from the base model on the user's recent turns."""
    kl_turns: int = 8
    """On how many recent turns that distance is measured."""
    kl_top_k: int = 20
    """How many tokens are compared one by one at each position; the others count as one."""
    probes: int = 6
    """How many short replies to recent prompts a version has to give."""
    probe_tokens: int = 160
    """The longest such reply."""
    probe_prompt_tokens: int = 4096
    """Prompts longer than this are not used for trying a version, but one where all are."""
    probe_margin: float = 0.25
    """How much larger than its parent's the share of degenerate replies may be."""
    length_max: float = 1.75
    """How many times longer trial replies may be than those given to the same prompts before, and 16 tokens."""
    length_min: float = 0.5
    """How much shorter they may be than those given before and than what the base model says, told what the user wishes
    for: this share of the shorter of the two, less 4 tokens."""
    probe_others: int = 4
    """How many prompts beside those a version is tried on: of others, of kinds that nobody corrected, and of nobody."""
    departs_max: float = 0.04
    """How many replies to its users' prompts may say what the base model would not, told what they wish for or not: a
    share that is reckoned from the chances of their tokens."""
    departs_others_max: float = 0.08
    """The same for prompts of others."""
    departs_unasked_max: float = 0.5
    """The same for requests that nobody made, which the base model may know little about."""
    repetition_margin: float = 0.25
    """How much more of a trial reply, in the mean, may have stood in it already than in those given before."""
    wish_turns: int = 4
    """On how many hinted turns of the step, and on how many of earlier steps, it is measured whether wishes are met."""
    wish_margin: float = 0.05
    """How much further, in nats a token, a version may be from what the hints would have said than the served one."""
    give_back: int = 1
    """How often what a refused version learned from is learned again, each time more gently; after that it is given up
    as not learnable. 0 gives it up at once."""
    tasks: str = ""
    """A file of probe tasks, a JSON object a line: `prompt`, and `expect`, a regular expression for the answer."""
    task_margin: float = 0.1
    """How much smaller the share of probe tasks done may be than the served version's, or the best one's before it."""
    task_tokens: int = 256
    """The longest answer to a probe task."""
    watch_turns: int = 40
    """Over how many judged turns a version is compared with what was served before; one that does worse is taken back.
    0 compares none."""
    watch_chance: float = 0.005
    """The chance, for each version, that one that does no worse is taken back."""
    keep_loaded: int = 2
    """How many versions stay loaded: the one being served, and those before it for a quick way back."""
    keep_versions: int = 20
    """Of how many versions that passed the gate, the newest of each scope, the weights stay on the disk, beside those
    in use; `replay --restore` makes the others again. 0 keeps all."""
    retry_s: float = 5.0
    """The pause after an engine could not try a version; it doubles each time, up to five minutes."""

    def __post_init__(self) -> None:
        if self.kl_max <= 0:
            raise ValueError(f"kl_max is {self.kl_max}: it lies above 0")
        if min(self.kl_turns, self.probes, self.probe_others) < 0:
            raise ValueError("kl_turns, probes and probe_others cannot be negative")
        if not 1 <= self.kl_top_k <= 100:
            raise ValueError(f"kl_top_k is {self.kl_top_k}: it lies between 1 and 100")
        if self.probe_tokens < 1 or self.probe_prompt_tokens < 1 or self.retry_s <= 0:
            raise ValueError("probe_tokens, probe_prompt_tokens and retry_s lie above 0")
        if not 0.0 <= self.probe_margin <= 1.0:
            raise ValueError(f"probe_margin is {self.probe_margin}: it lies between 0 and 1")
        if min(self.departs_max, self.departs_others_max, self.departs_unasked_max) < 0:
            raise ValueError("departs_max, departs_others_max and departs_unasked_max cannot be negative")
        if not 0.0 <= self.length_min <= 1.0:
            raise ValueError(f"length_min is {self.length_min}: it lies between 0 and 1")
        if self.length_max < 1.0 or not 0.0 <= self.repetition_margin <= 1.0:
            raise ValueError("length_max is at least 1, repetition_margin lies between 0 and 1")
        if min(self.wish_turns, self.wish_margin, self.watch_turns, self.give_back) < 0:
            raise ValueError("wish_turns, wish_margin, watch_turns and give_back cannot be negative")
        if not 0.0 <= self.task_margin <= 1.0 or self.task_tokens < 1:
            raise ValueError("task_margin lies between 0 and 1, task_tokens above 0")
        if not 0.0 < self.watch_chance < 1.0:
            raise ValueError(f"watch_chance is {self.watch_chance}: it lies between 0 and 1")
        if self.keep_versions < 0:
            raise ValueError(f"keep_versions is {self.keep_versions}: it is 0, for all, or more")
        if self.keep_loaded < 1:
            raise ValueError(f"keep_loaded is {self.keep_loaded}: the version being served stays loaded")
