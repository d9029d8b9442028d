"""Hindsight: a reply that a user accepted after corrections is trained on as an answer to the first request.

A model may not follow a wish that it reads as a hint after a request, although it follows the wish in the conversation.
Then the teacher that reads the hint has nothing to teach. But there is the accepted reply, and the base model finds it
about as likely in the conversation with the correction. So it is learned from as the teacher's own reply. If it had
been the answer to the first request, no correction would have been needed.
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
from openclaw_rl.teach.slips import slips, sources

BROUGHT_NATS = 3.0  # a token that the conversation since makes likelier by more than this is due to the conversation
MEANT_NATS = 1.0  # by which the hint must make such a token likelier too, so that it is what the user wished
HEEDED_NATS = 2.0  # by which the hint must make the whole reply likelier


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Asks the base model, which is the teacher."""

    engine: Engine
    renderer: Renderer

    async def redone(
        self,
        accepted: Turn,
        corrected: Turn,
        bare: Prompt,
        hints: Sequence[str],
        sample: Sample,
        *,
        known: Sequence[PlacedHint] = (),
    ) -> Sample | None:
        """The accepted reply's sample as an answer to the `bare` prompt of the turn that was `corrected` first.

        None if it would teach what only the conversation explains: an apology, a second check, a result that the user
        named. So one of the `hints` must make each token likelier that the conversation makes much likelier. None also
        if the base model would hardly have given the reply in that conversation, if the reply slips, if the corrected
        one followed a `known` hint that this one does not follow, if a prompt has images, and if the engine is
        unavailable.
        """
        said = accepted.completion.tokens
        asked = last_user_index(corrected.messages)
        if asked is None or accepted.prompt.images or bare.images:
            return None
        try:
            alone, conversation = await asyncio.gather(self._logp(bare, said), self._logp(accepted.prompt, said))
            if is_strange(accepted.completion, conversation) or await self._gives_up(accepted, corrected, bare, known):
                return None
            for hint in hints:
                hinted = await reading(self.renderer, corrected, [PlacedHint(asked, "", hint)])
                if hinted is None or not _is_meant(alone, conversation, await self._logp(hinted, said)):
                    continue
                clear = await sources(self.renderer, corrected, corrected.messages, [hint])
                if await slips(self.engine, clear, hinted, said) is None:
                    return _as_answer(sample, bare, HintPrompt(hint, accepted.prompt.tokens))
        except EngineError:
            return None
        return None

    async def _gives_up(self, accepted: Turn, corrected: Turn, bare: Prompt, known: Sequence[PlacedHint]) -> bool:
        """Whether the corrected reply followed a known hint that the accepted one does not follow."""
        replies = corrected.completion.tokens, accepted.completion.tokens
        without = [sum(await self._logp(bare, said)) for said in replies] if known else []
        for hint in known:
            hinted = await reading(self.renderer, corrected, [hint])
            if hinted is None:
                continue
            given = [sum(await self._logp(hinted, said)) for said in replies]
            before, after = (given[at] - without[at] >= HEEDED_NATS for at in (0, 1))
            if before and not after:
                return True
        return False

    async def _logp(self, prompt: Prompt, said: tuple[int, ...]) -> tuple[float, ...]:
        return await reply_logp(self.engine, prompt, said, BASE)


def _is_meant(alone: Sequence[float], conversation: Sequence[float], hinted: Sequence[float]) -> bool:
    """Whether the hint makes the reply likelier, and each token of it that the conversation makes much likelier.

    The three are nats per token: after the request alone, in the conversation, and with the hint. False if the
    conversation makes no token much likelier.
    """
    if sum(hinted) - sum(alone) < HEEDED_NATS:
        return False
    brought = [at for at in range(len(conversation)) if conversation[at] - alone[at] > BROUGHT_NATS]
    return bool(brought) and all(hinted[at] - alone[at] >= MEANT_NATS for at in brought)


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
