"""The status of training, and what keeps samples from being trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from openclaw_rl.core.adapter import StepProgress
from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.finding import Finding, Level, many
from openclaw_rl.core.ledger import WHAT_TO_DO, DropReason

ASIDE = 0.1  # of the number trained on: if this many samples are set aside, that needs attention
FEW = 10  # times as many samples learned: then those that cannot be learned are only a note


@dataclass(frozen=True, slots=True)
class TrainStatus:
    """The status of training, for people: what is ready, what a step needs, and what is under way or why nothing is."""

    ready: int = 0  # samples with a signal, over all scopes
    rehearsals: int = 0  # rehearsal samples that wait for a step
    waiting: int = 0  # samples that no step has used yet, at this moment; `ready` is as of the last look
    needed: int = 0  # samples that make a step due at once
    least: int = 1  # samples that make one due after train.max_wait_s
    steps: int = 0  # since the program started
    failures: int = 0
    is_training: bool = False
    doing: str = ""  # what is under way, in words; empty if nothing is
    progress: StepProgress | None = None  # of the step under way, as last reported by the trainer
    left_s: float | None = None  # how long that step is likely to take yet
    is_resting: bool = False  # everything was examined, and nothing is due
    why_waiting: str = ""
    last_error: str = ""
    last_metrics: Mapping[str, float] = field(default_factory=dict)


def train_findings(facts: StoreFacts, status: TrainStatus) -> Iterator[Finding]:
    """Why no step is taken, or why steps fail, and samples that this machine or this model cannot use."""
    if status.last_error:
        yield Finding(Level.MEND, "train", f"the last step failed: {status.last_error}", _after(status.last_error))
    elif status.ready and not status.is_training and status.why_waiting and facts.seen.frozen_since_s is None:
        yield Finding(Level.NOTE, "train", f"no step now: {status.why_waiting}")
    yield from _too_dear(facts)
    in_vain = facts.count(f"dropped.{DropReason.NOT_LEARNABLE}")
    if in_vain and in_vain * FEW >= facts.count("trained"):
        yield Finding(
            Level.MEND,
            "train",
            f"{many(in_vain, 'sample')} cannot be learned: versions made from them were refused each time, or no "
            "update came nearer to what was wanted",
            WHAT_TO_DO[DropReason.NOT_LEARNABLE],
        )


def _too_dear(facts: StoreFacts) -> Iterator[Finding]:
    """Samples that this machine has too little time or memory for; many of them need attention."""
    aside = facts.count(f"dropped.{DropReason.TOO_DEAR}")
    if aside:
        level = Level.MEND if aside >= ASIDE * facts.count("trained") else Level.NOTE
        said = (
            f"{many(aside, 'sample')} set aside: a step with one of them needs more time or memory "
            "than this machine has"
        )
        yield Finding(level, "train", said, WHAT_TO_DO[DropReason.TOO_DEAR])


def _after(error: str) -> str:
    """What to do about a step that failed."""
    if "disk is full" in error or "No space left" in error:
        return "free some space; the step is repeated automatically"
    return "see the server's log"
