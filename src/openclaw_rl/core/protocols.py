"""The interfaces through which stages know each other's parts."""

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
    """Token ids in, token ids out; it does not know text."""

    @property
    def info(self) -> EngineInfo:
        """The served model."""

    def generate(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> AsyncIterator[SampledToken]:
        """Sampled tokens as they come. Closing the iterator frees the row at the next step.

        Raises EngineError for a version that is not loaded, and RequestError if the prompt does not fit or the
        queue is full.
        """

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        """Log-probabilities of the prompt's own ids from `start` (at least 1) on."""

    async def load(self, adapter: Adapter) -> None:
        """Loads a version, so that requests can name it. Raises AdapterError, with nothing changed.

        Raises EngineError if the engine has no room for it now.
        """

    async def unload(self, version: PolicyVersion) -> None:
        """Unload the version when nothing runs on it; returns at once."""

    async def flush(self) -> None:
        """Forget all prompts that were read; returns when no cache contains them."""

    async def check_grammar(self, grammar: Grammar) -> None:
        """Returns when answers can be constrained to it. Raises RequestError if they cannot be."""

    async def stats(self) -> EngineStats:
        """The counters. Raises EngineError if they are not available now."""

    async def aclose(self) -> None:
        """Ends it; streams still open end with EngineError."""


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
        """The ids for these messages, continuing `served` if they do. Raises RequestError."""

    def hinted(self, turn: Turn, hint: Hint) -> Prompt:
        """The turn's own prompt with a hint after the last user message; all other ids stay as served."""

    def reread(self, turn: Turn, messages: Sequence[Message]) -> Prompt:
        """The turn's own prompt with other words in some of its messages; all other ids stay as served."""

    def user_opening(self) -> tuple[Prompt, int] | None:
        """The ids before a user's first words, and the id after them; None if the template does not show them."""

    def decode(self, tokens: Sequence[int]) -> tuple[Message, tuple[Span, ...]]:
        """A whole answer as a message, and the kinds of its tokens."""


class Collector(Protocol):
    """Places requests in conversations, and records their turns."""

    async def place(self, arrival: Arrival) -> Placement:
        """Session, kind, and the served turn the request continues. Its `admit` records the request's text."""

    async def commit(self, turn: Turn) -> None:
        """Returns when the turn is in the store."""


class Chat(Protocol):
    """A language model that answers messages; judges and simulated users use one."""

    async def reply(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int | None = None
    ) -> str:
        """The text of one answer. Raises JudgeError if there is none."""


class Judge(Protocol):
    """Scores a turn by what followed it."""

    async def judge(self, turn: Turn, next_state: NextState) -> Verdict:
        """The verdict. Raises JudgeError if no judge can be reached, and then the turn waits."""


class StepJudge(Protocol):
    """Scores a step of an episode by what followed it."""

    async def step_score(self, turn: Turn, next_state: NextState, environment: str) -> float | None:
        """Between -1 and 1; None if nobody voted. Raises JudgeError if no judge can be reached."""


class Trainer(Protocol):
    """Takes steps and writes their results, outside the serving process.

    Its calls raise TrainerError, and can then be repeated.
    """

    @property
    def progress(self) -> StepProgress | None:
        """The last known progress of the step under way; None if there is no step, or nothing is known."""

    async def prepare(self) -> None:
        """Begins what the next step needs in any case, such as loading the model; a step is likely to come soon."""

    async def step(
        self, samples: Sequence[Sample], *, resume: Path | None, under: Path | None = None, gentleness: int = 0
    ) -> StepReport:
        """One step that starts from exactly the weights in `resume`, None for new ones, on top of those in `under`.

        That is so even if this trainer has since continued from there: weights never committed, or refused at the gate,
        must not return. Without `under` the weights are on the base model. `gentleness` is how often versions that had
        learned from these samples were refused: the more often, the smaller the first learning rate. Raises
        StepTooDearError if it took too long or too much memory.
        """

    async def rebase(self, *, resume: Path, under: Path | None) -> None:
        """Rebases the weights in `resume` onto those in `under`, for export."""

    async def export(self, folder: Path, version: PolicyVersion) -> Adapter:
        """Writes the weights of the last step, and the state needed to continue from there."""

    async def aclose(self) -> None:
        """Ends it, even in the middle of a step."""


class TakesBack(Protocol):
    """The part that serves versions and can serve an earlier one again."""

    async def take_back(self, user: str, version: PolicyVersion, wish: Sequence[str] = (), *, why: str = "") -> bool:
        """Serves `version` again if all later versions were learned from this user alone.

        Given the hints of a `wish`, it goes back only as far as the last version that learned another one. `why` is the
        reason in words; empty for corrections without effect.
        """


class Teaching(Protocol):
    """The part that makes samples, as far as a step depends on it."""

    async def wait_until_looked_at(self) -> None:
        """Waits until all judged turns were examined, or some seconds have passed."""

    async def still_holds(self, rehearsal: Sample, since: Sequence[str]) -> bool:
        """Whether a rehearsal sample may be read again, given the hints its user gave `since`."""
