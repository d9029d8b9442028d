"""The settings of judging."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class HintFrom(StrEnum):
    """Whose words may become a hint."""

    JUDGE = "judge"
    FOLLOWUP = "followup"  # the user's own next words, if they correct
    BOTH = "both"


class HintWhen(StrEnum):
    """For which scores a judge is asked for a hint."""

    ALWAYS = "always"  # at the same time as the score
    CORRECTIVE = "corrective"  # after the score, if it is not +1


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """How pairs become verdicts."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset(
        {
            "calls_in_flight", "hint_when", "nice", "retries", "retry_max_s", "retry_s", "temperature",
        }
    )  # fmt: skip

    url: str = ""
    """The base URL of an OpenAI-style endpoint that judges; empty for a model on this machine. Change it when another
    model, at an endpoint, should judge: recommended for real models."""
    model: str = ""
    """The model's name at that endpoint or, without one, a folder or hub name; empty for the served base model. Change
    it with judge.url, or for a second model on this machine."""
    api_key: str = ""
    """The key for that endpoint. Change it when that endpoint needs a key."""
    votes: int = 3
    """How many times each question is asked. Use 1 to save calls, 5 for a noisy judge."""
    temperature: float = 0.6
    """Sampling temperature of the judge. At 0 all votes are the same."""
    max_tokens: int = 512
    """The longest answer of a judge; a judge that writes out its thinking needs more. Change it when its thinking is
    cut off (the doctor says so)."""
    timeout_s: float = 120.0
    """How long one call may take before it counts as failed. Change it when the judge is slow."""
    retries: int = 1
    """How many times a failed call is made again before the turn has to wait."""
    retry_s: float = 1.0
    """The first pause after a failure; it doubles with each further one."""
    retry_max_s: float = 60.0
    """The longest pause between attempts while a judge is unavailable."""
    at_once: int = 2
    """How many turns are judged at the same time. Change it when the judge's endpoint can answer more at the same
    time."""
    calls_in_flight: int = 6
    """How many calls may be under way at the same time, over all turns."""
    daily_calls: int = 0
    """How many calls a day (UTC) may be made; 0 for no limit. Turns beyond it wait for the next day. Change it when the
    judge costs money."""
    hint_source: HintFrom = HintFrom.JUDGE
    """Whose words may become a hint: the judge's, the user's own next words, or both. Change it when only the user's
    own words may become hints, or a weak judge words them badly."""
    hint_when: HintWhen = HintWhen.ALWAYS
    """When the judge is asked for a hint: always, or only if the score is not +1 (fewer calls, but one after the
    other). Change it when calls to the judge should be saved."""
    device: str = "auto"
    """Where a separate local judge model runs: cpu, cuda, cuda:1 ..., or auto. Change it with a judge model on this
    machine."""
    threads: int = 1
    """CPU threads of a separate local judge model. Change it with a judge model on a CPU."""
    nice: int = 10
    """Nice value of a separate local judge model's process; 19 is the lowest priority."""
    tool_votes: bool = True
    """Whether a judge votes on tool results that do not say whether the call succeeded. Change it when tool results
    say little and votes on them are wrong."""
    idle_only: bool = False
    """Whether turns are judged only while no request is being answered. Change it when judging slows answers down on a
    small machine."""

    def __post_init__(self) -> None:
        for name, value in (
            ("votes", self.votes),
            ("max_tokens", self.max_tokens),
            ("at_once", self.at_once),
            ("calls_in_flight", self.calls_in_flight),
            ("threads", self.threads),
        ):
            if value < 1:
                raise ValueError(f"{name} is {value}: at least 1 is needed")
        if self.retries < 0 or self.daily_calls < 0:
            raise ValueError("retries and daily_calls cannot be negative")
        if self.timeout_s <= 0 or self.retry_s <= 0 or self.retry_max_s < self.retry_s:
            raise ValueError("timeout_s and retry_s are above 0, and retry_max_s is at least retry_s")
        if not 0.0 <= self.temperature <= 10.0:
            raise ValueError(f"temperature is {self.temperature}: use a value between 0 and 10")
