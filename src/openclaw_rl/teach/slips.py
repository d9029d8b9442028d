"""Finds replies in which a hint made the model unsure of what it knows, and which say something else there.

A small model that is told how to write may copy the wrong word ("Move plan.txt into desk" becomes "box/plan.txt"), or
lose a result late in a conversation ("13 - 7 = 6, 7 marbles"). Such a reply follows the hint, and with the right reply
before its eyes the model says the same again, so it contradicts nothing. It shows in one token. After the same
beginning the model without the hint is certain of another one, and with the hint that one is possible, too: so the hint
does not ask for what was said. Measured in docs/decisions/0051-slips.md.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from openclaw_rl.core.form import CERTAIN
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
TOP_K = 20  # likeliest tokens among which it is looked for
EARLIER = 3  # requests before the last one of a conversation, at most


async def untold(renderer: Renderer, turn: Turn, messages: Sequence[Message]) -> tuple[Prompt, ...]:
    """The prompts without hints in which content is looked for: of these messages, and of earlier requests in them.

    Late in a conversation a small model is unsure of what it knows right after the request. Tools and options are the
    turn's. Prompts that the template refuses are left out.
    """
    asked = [index for index, item in enumerate(messages) if item.role is Role.USER]
    found = []
    for said in (messages, *(messages[: index + 1] for index in asked[:-1][-EARLIER:])):
        try:
            found.append(await asyncio.to_thread(renderer.prompt, said, turn.tools, None, options=turn.options))
        except (RequestError, ValueError):
            continue
    return tuple(found)


async def slips(engine: Engine, prompts: Sequence[Prompt], hinted: Prompt, said: tuple[int, ...]) -> bool:
    """Whether a reply to the hinted prompt says something else where the model, after one of these prompts, is certain.

    Its last token is its end, and not compared. Raises EngineError.
    """
    given = (await reply_scores(engine, hinted, said, BASE, top_k=TOP_K)).top
    for prompt in prompts:
        without = await reply_scores(engine, prompt, said, BASE, top_k=TOP_K)
        for place in range(FIRST, len(said) - 1):
            token, logp = max(without.top[place], key=lambda each: each[1])
            if logp < CERTAIN or token == said[-1] or logp - without.logp[place] < LESS_LIKELY:
                continue
            if dict(given[place]).get(token, -math.inf) >= POSSIBLE:
                return True
    return False
