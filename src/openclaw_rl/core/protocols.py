"""What the stages know of each other's parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from openclaw_rl.core.adapter import Adapter, StepProgress, StepReport
from openclaw_rl.core.completion import SampledToken, Scores, Span
from openclaw_rl.core.engine import EngineInfo, EngineStats
from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Json, Message, Tool
from openclaw_rl.core.next_state import NextState
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.sampling import Grammar, Sampling
from openclaw_rl.core.turn import Arrival, Placement, Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.core.version import PolicyVersion


class Engine(Protocol):
    """Token ids in, token ids out; knows no text."""

    @property
    def info(self) -> EngineInfo:
        """What is being served."""
        ...

    def generate(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> AsyncIterator[SampledToken]:
        """Sampled tokens as they come. Closing the iterator frees the row at the next step.

        Raises EngineError for a version that is not loaded, and RequestError where the prompt does not fit or the
        queue is full.
        """
        ...

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        """Log-probabilities of the prompt's own ids from `start` (at least 1) on."""
        ...

    async def load(self, adapter: Adapter) -> None:
        """From now on this version can be asked for. Raises AdapterError, and then nothing has changed.

        Raises EngineError where the engine has no room for it now.
        """
        ...

    async def unload(self, version: PolicyVersion) -> None:
        """Forget the version once nothing runs on it; returns at once."""
        ...

    async def flush(self) -> None:
        """Forget all that was read of prompts; returns once it can be found in no cache any more."""
        ...

    async def check_grammar(self, grammar: Grammar) -> None:
        """Returns once answers can be held to it. Raises RequestError where they cannot be."""
        ...

    async def stats(self) -> EngineStats:
        """The counters. Raises EngineError where nothing can be known of them now."""
        ...

    async def aclose(self) -> None:
        """Ends it; streams still open end with EngineError."""
        ...


class Renderer(Protocol):
    """Messages to ids."""

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        served: Turn | None,
        *,
        options: Mapping[str, Json] | None = None,
    ) -> Prompt:
        """The ids for these messages, going on from `served` where they do. Raises RequestError."""
        ...

    def hinted(self, turn: Turn, hint: Hint) -> Prompt:
        """The turn's own prompt with a hint after the last user message; all other ids stay as served."""
        ...

    def reread(self, turn: Turn, messages: Sequence[Message]) -> Prompt:
        """The turn's own prompt with other words in some of its messages; all other ids stay as served."""
        ...

    def user_opening(self) -> tuple[Prompt, int] | None:
        """What is in front of a user's first words, and the id after them; None where the template does not say."""
        ...

    def decode(self, tokens: Sequence[int]) -> tuple[Message, tuple[Span, ...]]:
        """A whole answer as a message, and which tokens are what."""
        ...


class Collector(Protocol):
    """Where a request belongs, and the book its turn is entered in."""

    async def place(self, arrival: Arrival) -> Placement:
        """Session, kind, and the served turn the request continues. `admit` of it notes what was said."""
        ...

    async def commit(self, turn: Turn) -> None:
        """Returns once the turn is in the store."""
        ...


class Chat(Protocol):
    """A language model asked in messages; judges and simulated users are made of one."""

    async def reply(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int | None = None
    ) -> str:
        """The text of one answer. Raises JudgeError where there is none."""
        ...


class Judge(Protocol):
    """Scores a turn by what followed it."""

    async def judge(self, turn: Turn, next_state: NextState) -> Verdict:
        """The verdict. Raises JudgeError where no judge can be reached, and then the turn waits."""
        ...


class StepJudge(Protocol):
    """Scores a step of an episode by what followed it."""

    async def step_score(self, turn: Turn, next_state: NextState, environment: str) -> float | None:
        """Between -1 and 1; None where nobody voted. Raises JudgeError where no judge can be reached."""
        ...


class Trainer(Protocol):
    """Takes steps and writes what they made, elsewhere than in the process that serves.

    Its calls raise TrainerError, and it can be called again then.
    """

    @property
    def progress(self) -> StepProgress | None:
        """How far the step under way has come, as last heard; None where none is, or nothing is known of it."""
        ...

    async def step(
        self, samples: Sequence[Sample], *, resume: Path | None, under: Path | None = None, gentleness: int = 0
    ) -> StepReport:
        """One step that starts from exactly the weights in `resume`, None being fresh ones, on top of those in `under`.

        That holds also where this trainer has since continued from there: what was never committed, or refused at the
        gate, must not come back. Without `under` the weights stand on the base model. `gentleness` is how often
        versions that had learned from these samples were refused: the more often, the smaller the step begins. Raises
        StepTooDearError where it took too long or too much memory.
        """
        ...

    async def rebase(self, *, resume: Path, under: Path | None) -> None:
        """Puts the weights in `resume` on top of those in `under`, to be exported so."""
        ...

    async def export(self, folder: Path, version: PolicyVersion) -> Adapter:
        """Writes the weights of the last step, and with them what it takes to continue from there."""
        ...

    async def aclose(self) -> None:
        """Ends it, in the middle of a step too."""
        ...


class TakesBack(Protocol):
    """Whoever serves versions, asked to serve an earlier one again."""

    async def take_back(self, user: str, version: PolicyVersion) -> bool:
        """Serves `version` again where all that was made from it since was learned from this user alone."""
        ...


class Teaching(Protocol):
    """Whoever makes samples, as far as a step depends on it."""

    async def wait_until_looked_at(self) -> None:
        """Until all that was judged was looked at, or some seconds have passed."""
        ...

    async def still_holds(self, rehearsal: Sample, since: Sequence[str]) -> bool:
        """Whether a rehearsal sample may be read again, given the hints its user gave `since`."""
        ...
