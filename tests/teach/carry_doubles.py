"""Weights that follow a wish or do not, and prompts whose ids tell which hints stand in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.completion import Scores
from openclaw_rl.core.hint import LABEL
from openclaw_rl.core.message import Message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.renderer import LetterRenderer

BARE, WISHED = 7, 8  # the one token of a reply: what the base says, and what a wish makes it say


@dataclass
class Wishful:
    """Says WISHED where it reads a wish, or once its weights follow wishes by themselves; BARE otherwise.

    A reply has three tokens of the same kind; the one that is said has logp -0.1, the other `gap` less.
    """

    follows: set[int] = field(default_factory=set)  # version numbers
    gap: float = 2.0

    def engine(self) -> ScriptedEngine:
        """One that has version 1, too."""
        made = ScriptedEngine(self._reply, scoring=self._scores)
        made.versions[PolicyVersion(SHARED, 1)] = None
        return made

    def _says(self, prompt: Sequence[int], version: PolicyVersion) -> int:
        return WISHED if any(each >= 100 for each in prompt) or version.number in self.follows else BARE

    def _reply(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> Sequence[int]:
        return (self._says(prompt.tokens, version),) * 3

    def _scores(self, prompt: Prompt, start: int, version: PolicyVersion, top_k: int) -> Scores:
        says = self._says(prompt.tokens[:start], version)
        return Scores(start, tuple(-0.1 if token == says else -0.1 - self.gap for token in prompt.tokens[start:]))


def labelled(messages: Sequence[Message]) -> str:
    """One id for each message and, after it, 100 and one more for each letter of its hints."""
    ids: list[int] = []
    for item in messages:
        hints = item.text.partition(f"{LABEL} ")[2]
        ids += [1, *([100 + len(hints)] if hints else [])]
    return "".join(map(chr, ids))


def label_renderer() -> LetterRenderer:
    """Prompts that are `labelled`."""
    return LetterRenderer(labelled)
