"""Finds replies to other requests in which a hint put a word of elsewhere in the place of the request's own.

A small model that is told how to write may copy the wrong word: "Move plan.txt into desk" is answered with
"box/plan.txt". Such a reply follows the hint, and with the right reply before its eyes the model says the same again,
so it contradicts nothing. It shows in one token. The model without the hint is certain of another one there, which is
in its own reply to this request, and in few to others that do not name it; with the hint that one is possible, too.
And what was said instead is neither in the request nor in the reply without the hint. That holds in few replies:
it is no word of a form.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.core.form import CERTAIN, form_tokens
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.version import BASE
from openclaw_rl.teach.asking import reply_scores

POSSIBLE = math.log(0.1)  # log-probability, with the hint, of what the model says without it, at least
AT_ONCE = 2  # replies that are read at the same time: users' requests go on beside them
TOP_K = 20  # likeliest tokens among which it is looked for


@dataclass(frozen=True, slots=True)
class ToldReply:
    """A reply with hints: the prompts without and with them, its ids, and those of the reply without hints."""

    bare: tuple[int, ...]
    hinted: tuple[int, ...]
    said: tuple[int, ...]
    untold: tuple[int, ...]


async def swapped(engine: Engine, replies: Sequence[ToldReply]) -> list[bool]:
    """For each reply whether it has such a token; none does if there are too few to know. Raises EngineError."""
    foreign = [{*each.said} - {*each.bare, *each.untold} for each in replies]
    form, untold_form = form_tokens(foreign), form_tokens([{*each.untold} - {*each.bare} for each in replies])
    if form is None or untold_form is None:
        return [False] * len(replies)
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(reply: ToldReply, words: set[int]) -> bool:
        async with at_once:
            return bool(words) and await _is_swapped(engine, reply, words, {*reply.untold} - untold_form)

    return await asyncio.gather(*(one(each, words - form) for each, words in zip(replies, foreign, strict=True)))


async def _is_swapped(engine: Engine, reply: ToldReply, foreign: set[int], own: set[int]) -> bool:
    prompts = (Prompt(reply.bare), Prompt(reply.hinted))
    bare, hinted = await asyncio.gather(
        *(reply_scores(engine, prompt, reply.said, BASE, top_k=TOP_K) for prompt in prompts)
    )
    for token, without, given in zip(reply.said, bare.top, hinted.top, strict=True):
        if token not in foreign:
            continue
        likeliest, logp = max(without, key=lambda each: each[1])
        if likeliest in own and logp >= CERTAIN and dict(given).get(likeliest, -math.inf) >= POSSIBLE:
            return True
    return False
