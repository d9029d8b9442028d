"""Replies that a user accepted after corrections: as an answer to the first request they would have needed none.

A model may not follow a wish that it reads as a hint after a request, although it follows the wish in the conversation.
Then the teacher that reads the hint has nothing to teach. But there is the accepted reply, and the base model that
reads the correction says it as readily. It is learned from as the teacher's own reply, as an answer to the first
request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from openclaw_rl.core.hint import PlacedHint, last_user_index
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE
from openclaw_rl.errors import EngineError
from openclaw_rl.teach.asking import is_strange, reading, reply_logp

BROUGHT_NATS = 3.0  # by which the conversation since makes a token likelier than the request alone: it brought it
MEANT_NATS = 1.0  # by which the hint must then make it likelier, too: it is what was wished
HEEDED_NATS = 2.0  # by which the hint makes the whole reply likelier


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Asks the base model, which is the teacher."""

    engine: Engine
    renderer: Renderer

    async def redone(
        self, accepted: Turn, corrected: Turn, bare: Prompt, hints: Sequence[str], sample: Sample
    ) -> Sample | None:
        """The accepted reply's sample as an answer to the `bare` prompt of the turn that was `corrected` first.

        None if it would teach what only the conversation explains: an apology, a second look, a result that the user
        named. So if the conversation makes a token likelier, a hint must make it likelier too. None also if the base
        model would hardly have said the reply in that conversation, and if the engine is unavailable.
        """
        said = accepted.completion.tokens
        asked = last_user_index(corrected.messages)
        if asked is None or accepted.prompt.images or bare.images:
            return None
        try:
            unasked, told = await asyncio.gather(self._logp(bare, said), self._logp(accepted.prompt, said))
            if is_strange(accepted.completion, told):
                return None
            for hint in hints:
                behind = await reading(self.renderer, corrected, [PlacedHint(asked, "", hint)])
                if behind is not None and _is_meant(unasked, told, await self._logp(behind, said)):
                    return _as_answer(sample, bare, HintPrompt(hint, accepted.prompt.tokens))
        except EngineError:
            return None
        return None

    async def _logp(self, prompt: Prompt, said: tuple[int, ...]) -> tuple[float, ...]:
        return await reply_logp(self.engine, prompt, said, BASE)


def _is_meant(unasked: Sequence[float], told: Sequence[float], hinted: Sequence[float]) -> bool:
    """Whether the hint makes the reply likelier, and each token of it that the conversation makes likelier."""
    if sum(hinted) - sum(unasked) < HEEDED_NATS:
        return False
    brought = [at for at in range(len(told)) if told[at] - unasked[at] > BROUGHT_NATS]
    return bool(brought) and all(hinted[at] - unasked[at] >= MEANT_NATS for at in brought)


def _as_answer(sample: Sample, prompt: Prompt, read: HintPrompt) -> Sample:
    return replace(
        sample,
        prompt=prompt.tokens,
        hints=(read,),
        score=None,
        baseline=None,
        is_promoted=False,
        is_taught=True,
        rehearses=(),
    )
