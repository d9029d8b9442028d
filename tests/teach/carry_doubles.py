"""An engine whose weights follow a wish or do not, and a renderer whose ids tell which hints stand in a prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.completion import Finish, SampledToken, Scores, Span
from openclaw_rl.core.hint import LABEL, Hint
from openclaw_rl.core.message import Json, Message, Tool
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import EngineError

BARE, WISHED = 7, 8  # the one token of a reply: what the base says, and what a wish makes it say


@dataclass
class Wishful:
    """Says WISHED where it reads a wish, or once its weights follow wishes by themselves; BARE otherwise.

    A reply has three tokens of the same kind; the one that is said has logp -0.1, the other `gap` less.
    """

    follows: set[int] = field(default_factory=set)  # version numbers
    is_away: bool = False
    gap: float = 2.0
    generated: list[tuple[int, ...]] = field(default_factory=list)
    scored: int = 0

    def _logp(self, prompt: Sequence[int], token: int, version: PolicyVersion) -> float:
        says = WISHED if any(each >= 100 for each in prompt) or version.number in self.follows else BARE
        return -0.1 if token == says else -0.1 - self.gap

    async def generate(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> AsyncIterator[SampledToken]:
        if self.is_away:
            raise EngineError("away")
        self.generated.append(prompt.tokens)
        says = WISHED if self._logp(prompt.tokens, WISHED, version) == -0.1 else BARE
        for index in range(3):
            yield SampledToken(says, -0.1, -0.1, version, finish=Finish.STOP if index == 2 else None)

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        if self.is_away:
            raise EngineError("away")
        self.scored += 1
        before = prompt.tokens[:start]
        return Scores(start, tuple(self._logp(before, token, version) for token in prompt.tokens[start:]), ())

    async def load(self, adapter: Adapter) -> None:
        raise NotImplementedError

    async def unload(self, version: PolicyVersion) -> None:
        raise NotImplementedError


class LabelRenderer:
    """A prompt is one id for each message and, behind it, 100 and more for each letter its hints take."""

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        served: Turn | None,
        *,
        options: Mapping[str, Json] | None = None,
    ) -> Prompt:
        ids: list[int] = []
        for item in messages:
            hints = item.text.partition(f"{LABEL} ")[2]
            ids += [1, *([100 + len(hints)] if hints else [])]
        return Prompt(tuple(ids))

    def hinted(self, turn: Turn, hint: Hint) -> Prompt:
        raise NotImplementedError

    def reread(self, turn: Turn, messages: Sequence[Message]) -> Prompt:
        return self.prompt(messages, (), None)

    def decode(self, tokens: Sequence[int]) -> tuple[Message, tuple[Span, ...]]:
        raise NotImplementedError
