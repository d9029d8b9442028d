"""Training data: tokens as sampled, and signals. Advantages are computed when a step is taken."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from openclaw_rl.core.version import PolicyVersion


class Wants(StrEnum):
    """The signals that a method learns from."""

    SCORE = "score"
    HINT = "hint"
    EITHER = "either"

    @classmethod
    def of(cls, *, rl: float, hints: float) -> Wants:
        """The signals of a method with these weights; `hints` covers all terms that need a hint."""
        if rl and hints:
            return cls.EITHER
        return cls.SCORE if rl else cls.HINT


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an environment graded the whole episode that a turn is a step of."""

    reward: float
    is_success: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """A step for comparison: its turn, its episode's outcome, and its own score.

    `shared` counts the first tokens that its reply has in common with the sample's, if both have the same prompt.
    """

    turn: str
    outcome: float
    score: float | None
    shared: int = 0


@dataclass(frozen=True, slots=True)
class HintPrompt:
    """The prompt's ids with a hint in it: the teacher reads it to score the sampled response."""

    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SampledReply:
    """A reply sampled for training and never served; `logp` as in Sample, under `version`."""

    tokens: tuple[int, ...]
    logp: tuple[float, ...]
    version: PolicyVersion

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.logp):
            raise ValueError(f"{len(self.tokens)} tokens and {len(self.logp)} log-probabilities")


@dataclass(frozen=True, slots=True)
class OtherRequestReply:
    """The base model's reply to another request with a correction's hint in the prompt.

    `prompt` are that request's ids without hints; those of `hint` have it, with earlier hints that concern the request;
    these alone if the new one does not. `turn` is the turn that the request was taken from, empty if it has none.

    One that `is_check` is only learned from if the step's other lessons did not suffice for it.
    """

    prompt: tuple[int, ...]
    hint: HintPrompt
    reply: SampledReply
    turn: str = ""
    is_check: bool = False

    def __post_init__(self) -> None:
        if not self.prompt or not self.hint.tokens:
            raise ValueError("another request has a prompt, with the hint and without it")


@dataclass(frozen=True, slots=True)
class Sample:
    """One turn as training data.

    `prompt` and `response` are ids as served; `logp` holds nats of the model at temperature 1 under `version`, one per
    response token. `mask` says which response tokens are trained. `score` is the reward (a promoted turn's may be
    between), None if there are only hints; `baseline` is the recent mean reward of that user, None for none.

    A sample that `is_taught` was sampled by the teacher, given hints: `prompt` is without them, `hints` contains
    the prompt that was read, and `logp` is not a policy's given `prompt`, so it gives no ratio. `own` is then
    the policy's own reply to `prompt`. `shown` are replies of the base model given the hint of a correction,
    the likeliest first; `elsewhere` are its replies to other requests with the same hint, so that the wish is learned
    and not the example.

    `rehearses` are the words of the user's kept hints that a promoted reply follows: its `hints` contain only these.

    `kept`, if a grammar constrained the reply, is the log of the share of the model's distribution that it left
    at each response token; empty if none did. Tokens it forced are outside the `mask`.

    `is_literal` if the content of the demonstrations was checked: their own tokens are learned, since the teacher's
    whole distribution also contains what it says when it gets the content wrong. One whose hint's prompt is its
    prompt holds the base model's reply to that request.

    A step of an episode has an `outcome`, perhaps its own `score`, and `peers`: all steps whose rewards its own is
    compared with, including itself.
    """

    turn: str
    session: str
    user: str
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    logp: tuple[float, ...]
    mask: tuple[bool, ...]
    version: PolicyVersion
    score: float | None = None
    baseline: float | None = None
    outcome: Outcome | None = None
    peers: tuple[Peer, ...] = ()
    hints: tuple[HintPrompt, ...] = ()
    group: str | None = None
    is_promoted: bool = False
    is_taught: bool = False
    own: SampledReply | None = None
    shown: tuple[SampledReply, ...] = ()
    elsewhere: tuple[OtherRequestReply, ...] = ()
    rehearses: tuple[str, ...] = ()
    kept: tuple[float, ...] = ()
    is_literal: bool = False

    def __post_init__(self) -> None:
        if not self.prompt or not self.response:
            raise ValueError("a sample has a prompt and a response")
        if not len(self.response) == len(self.logp) == len(self.mask):
            raise ValueError(
                f"{len(self.response)} tokens, {len(self.logp)} log-probabilities and {len(self.mask)} mask entries"
            )
        if self.kept and len(self.kept) != len(self.response):
            raise ValueError(f"{len(self.response)} tokens, and what a grammar kept at {len(self.kept)}")
        if not any(self.mask):
            raise ValueError("a sample trains at least one token")
        if any(not math.isfinite(value) for value in self.logp):
            raise ValueError("a log-probability is not finite")
        if self.own is not None and not self.is_taught:
            raise ValueError("the policy's own reply is allowed only together with the teacher's")

    @property
    def is_rehearsal(self) -> bool:
        """Whether it only anchors the policy: it has no score, and no hints except those that the reply follows."""
        return self.is_promoted and not self.score and (not self.hints or bool(self.rehearses))

    @property
    def has_signal(self) -> bool:
        """Whether a step over this sample alone would have a loss besides the anchor."""
        return bool(self.score) or bool(self.hints) or self.outcome is not None


def teaches(sample: Sample, wants: Wants) -> bool:
    """Whether a step is taken for this sample: it teaches more than to keep the policy in place."""
    if sample.outcome is not None or (sample.is_taught and not sample.is_promoted):
        return True
    by_score, by_hint = bool(sample.score), bool(sample.hints) and not sample.rehearses
    return {Wants.SCORE: by_score, Wants.HINT: by_hint, Wants.EITHER: by_score or by_hint}[wants]
