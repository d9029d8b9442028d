"""Finds replies in which a hint made the model unsure of what it knows, and which say something else there.

A small model that is told how to write may copy the wrong word ("Move plan.txt into desk" becomes "box/plan.txt"), or
lose a result late in a conversation ("13 - 7 = 6, 7 marbles"). Such a reply follows the hint, and with the right reply
before its eyes the model says the same again, so it contradicts nothing. It shows in one token. After the same
beginning the model without the hint is certain of another one, and with the hint that one is possible, too: so the hint
does not ask for what was said. Late in a conversation the model may also be unsure of what it is certain of right after
the request, with the hint both times; then any reply shows how to be unsure. Measured in docs/decisions/0051-slips.md
and 0053-said-before.md.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.core.form import CERTAIN
from openclaw_rl.core.hint import PlacedHint, with_hints
from openclaw_rl.core.message import Message, Role
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE
from openclaw_rl.errors import RequestError
from openclaw_rl.teach.asking import reply_scores

FIRST = 2  # tokens of a reply that are not compared: replies in another form begin differently
LESS_LIKELY = 3.0  # nats, by which the token that was said is less likely without the hint than the certain one
POSSIBLE = math.log(0.1)  # log-probability, with the hint, of what the model is certain of without it, at least
UNSURE = math.log(0.5)  # log-probability late in a conversation of what is certain earlier with the same hint, at most
TOP_K = 20  # likeliest tokens among which it is looked for
EARLIER = 3  # requests before the last one of a conversation, at most


@dataclass(frozen=True, slots=True)
class Sources:
    """Prompts after which a model may be certain of content: without hints, and of earlier requests with the hints."""

    untold: tuple[Prompt, ...]
    told: tuple[Prompt, ...] = ()


async def sources(renderer: Renderer, turn: Turn, messages: Sequence[Message], hints: Sequence[str]) -> Sources:
    """The prompts in which content is looked for: of these messages, and of earlier requests in them.

    Late in a conversation a small model is unsure of what it knows right after the request. Tools and options are the
    turn's. Prompts that the template refuses are left out.
    """
    asked = [index for index, item in enumerate(messages) if item.role is Role.USER]

    async def rendered(talks: Sequence[Sequence[Message]]) -> tuple[Prompt, ...]:
        found = []
        for said in talks:
            try:
                found.append(await asyncio.to_thread(renderer.prompt, said, turn.tools, None, options=turn.options))
            except (RequestError, ValueError):
                continue
        return tuple(found)

    earlier = [messages[: index + 1] for index in asked[:-1][-EARLIER:]]
    told = [with_hints(said, [PlacedHint(len(said) - 1, "", hint) for hint in hints]) for said in earlier]
    return Sources(await rendered([messages, *earlier]), await rendered(told))


async def slips(engine: Engine, found: Sources, hinted: Prompt, said: tuple[int, ...]) -> Prompt | None:
    """The prompt without hints after which the model is certain of something else than a reply to the hinted one says.

    Or else the prompt of an earlier request with the hints after which it is certain, at some token, of what it is
    unsure of after the hinted prompt. None if there is neither. The reply's last token is its end, and not compared.
    Raises EngineError.
    """
    given = (await reply_scores(engine, hinted, said, BASE, top_k=TOP_K)).top
    for prompt, is_told in (*((one, False) for one in found.untold), *((one, True) for one in found.told)):
        clear = await reply_scores(engine, prompt, said, BASE, top_k=TOP_K)
        for place in range(FIRST, len(said) - 1):
            token, logp = max(clear.top[place], key=lambda each: each[1])
            here = dict(given[place]).get(token, -math.inf)
            if logp < CERTAIN or token == said[-1] or here < POSSIBLE:
                continue
            if here < UNSURE if is_told else logp - clear.logp[place] >= LESS_LIKELY:
                return prompt
    return None
