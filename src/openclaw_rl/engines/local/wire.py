"""The messages between the engine's client and its child process."""

from __future__ import annotations

from dataclasses import dataclass, field

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.completion import Finish, Scores
from openclaw_rl.core.engine import EngineInfo, EngineStats
from openclaw_rl.core.sampling import Grammar, Sampling
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.settings import EngineSettings

Top = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to a child."""

    settings: EngineSettings


@dataclass(frozen=True, slots=True)
class Submit:
    """Sample after these ids. `drawn` random numbers of the seed's stream are used up if the request is resumed."""

    id: int
    tokens: tuple[int, ...]
    sampling: Sampling
    version: PolicyVersion
    seed: int
    drawn: int = 0


@dataclass(frozen=True, slots=True)
class ScoreJob:
    """Log-probabilities of `tokens[start:]`."""

    id: int
    tokens: tuple[int, ...]
    start: int
    version: PolicyVersion
    top_k: int = 0


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody reads this request any more."""

    id: int


@dataclass(frozen=True, slots=True)
class Load:
    """Make a version ready."""

    id: int
    adapter: Adapter


@dataclass(frozen=True, slots=True)
class Unload:
    """Unload a version once nothing runs on it."""

    version: PolicyVersion


@dataclass(frozen=True, slots=True)
class Flush:
    """Drop all cached prefixes: unused ones at once, the rest when their requests end."""


@dataclass(frozen=True, slots=True)
class AskStats:
    """Asks for EngineStats."""

    id: int


@dataclass(frozen=True, slots=True)
class Compile:
    """Asks whether answers can be constrained to this grammar, which is compiled for that."""

    id: int
    grammar: Grammar


Command = Submit | ScoreJob | Cancel | Load | Unload | Flush | AskStats | Compile


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class StartFailure:
    """The child cannot start; `is_model` distinguishes a bad model from a bad setting."""

    problem: str
    fix: str
    is_model: bool


@dataclass(slots=True)
class StepOutput:
    """What one step sampled, a list entry for each row; rare facts are in dictionaries by that entry."""

    rows: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logp_sampled: list[float] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    top: dict[int, Top] = field(default_factory=dict)
    ended: dict[int, Finish] = field(default_factory=dict)
    cached: dict[int, int] = field(default_factory=dict)
    masked: dict[int, tuple[float, bool]] = field(default_factory=dict)
    scored: list[tuple[int, Scores]] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)  # request, what is wrong


@dataclass(frozen=True, slots=True)
class LoadResult:
    """A version is live, or why it is not; `is_full` if there was no room."""

    id: int
    problem: str = ""
    fix: str = ""
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Stats:
    """The answer to AskStats."""

    id: int
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class CompileResult:
    """The answer to Compile: what is wrong and how to fix it, both empty if it is ready."""

    id: int
    problem: str = ""
    fix: str = ""
    code: str | None = None


Event = Ready | StartFailure | StepOutput | LoadResult | Stats | CompileResult
