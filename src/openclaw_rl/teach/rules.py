"""What decides whether a judged turn becomes a sample: the rules, and the models that are asked about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from openclaw_rl.core.sample import Wants
from openclaw_rl.core.scope import Scopes
from openclaw_rl.core.turn import Turn
from openclaw_rl.teach.demonstrate import Demonstrator
from openclaw_rl.teach.in_use import HintsInUse
from openclaw_rl.teach.misheard import MisheardHints
from openclaw_rl.teach.probes import Prober
from openclaw_rl.teach.redone import Hindsight
from openclaw_rl.teach.replaced import ReplacedHints


@dataclass(frozen=True, slots=True)
class LearningRules:
    """What decides whether a judged turn becomes a sample, independent of its content.

    `weights_learn` is False if hints are only put into prompts. `may_teach` returns whether a turn's user has the right
    to teach; None if everybody has.
    """

    wants: Wants
    scopes: Scopes = Scopes.SHARED
    max_sample_tokens: int = 32768
    weights_learn: bool = True
    may_teach: Callable[[Turn], bool] | None = None


@dataclass(frozen=True, slots=True)
class Teacher:
    """The models that are asked about a judged turn before it becomes a sample; None for no model.

    `served` asks the served weights for replies to the prompt without hints. `base` asks the base model for replies
    given the hint of a correction. `hindsight` asks the base model about a reply that was accepted after a correction.
    `misheard` compares it with the hints of that correction. `replaced` undoes hints that gave way to newer ones before
    they were accepted. `hints` are the user's kept hints, which a teacher reads
    in addition to the turn's own.
    """

    served: Prober | None = None
    base: Demonstrator | None = None
    hindsight: Hindsight | None = None
    misheard: MisheardHints | None = None
    replaced: ReplacedHints | None = None
    hints: HintsInUse | None = None
