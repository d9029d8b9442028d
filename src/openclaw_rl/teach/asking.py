"""Queries to an engine besides the replies that it serves: how likely a reply is, and what it would reply.

While an engine has more requests than it takes, or no server of it answers, a query waits: a lesson that was made
without it would teach one example and not the wish.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from openclaw_rl.core.completion import Completion, Scores
from openclaw_rl.core.hint import CONCERNS_NATS, PlacedHint, with_hints
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sample import SampledReply
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import BeyondContextError, EngineAwayError, EngineError, RequestError

log = logging.getLogger(__name__)
STRANGE_NATS = 0.2  # a token, by which the base model may find a reply less likely than the weights that sampled it
FULL = 429  # the status of a request that an engine has no room for
BEYOND = "context_length_exceeded"  # the code of one that the model's context has no room for
PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0  # before a query is asked again; it doubles

Answer = TypeVar("Answer")


async def reading(renderer: Renderer, turn: Turn, hints: Sequence[PlacedHint]) -> Prompt | None:
    """The turn's prompt with these hints, rendered in a thread; None if the template refuses."""
    try:
        return await asyncio.to_thread(renderer.reread, turn, with_hints(turn.messages, hints))
    except (RequestError, ValueError):
        return None


def is_strange(said: Completion, logp: Sequence[float]) -> bool:
    """Whether the base model finds a reply much less likely than the weights that sampled it did.

    `logp` are the base model's log-probabilities, in nats, one per token.
    """
    return sum(said.logp) - sum(logp) > STRANGE_NATS * len(said.tokens)


async def reply_logp(
    engine: Engine, prompt: Prompt, said: tuple[int, ...], version: PolicyVersion
) -> tuple[float, ...]:
    """The log-probability of each token of a reply to a prompt, in nats.

    Raises EngineError, also if the engine refuses the request.
    """
    return (await reply_scores(engine, prompt, said, version)).logp


async def reply_scores(
    engine: Engine, prompt: Prompt, said: tuple[int, ...], version: PolicyVersion, *, top_k: int = 0
) -> Scores:
    """The same, and the `top_k` likeliest tokens at each place of the reply. Raises EngineError as well."""
    whole = Prompt(prompt.tokens + said, images=prompt.images)
    return await _answered(lambda: engine.score(whole, start=len(prompt), version=version, top_k=top_k))


async def sampled_reply(engine: Engine, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> SampledReply:
    """A version's reply to a prompt. Raises EngineError, also if the engine refuses the request."""

    async def sampled() -> SampledReply:
        said = [item async for item in engine.generate(prompt, sampling, version)]
        return SampledReply(tuple(item.token for item in said), tuple(item.logp for item in said), version)

    return await _answered(sampled)


async def _answered(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """The engine's answer, asked for again while it is full or away.

    Raises EngineError: BeyondContextError where the model's context has no room.
    """
    pause_s = PAUSE_S
    while True:
        try:
            return await ask()
        except RequestError as problem:
            if problem.status != FULL:
                raise (BeyondContextError if problem.code == BEYOND else EngineError)(str(problem)) from problem
            why = str(problem)
        except EngineAwayError as problem:
            why = str(problem)
        await asyncio.sleep(pause_s)
        if pause_s < LONGEST_PAUSE_S <= 2 * pause_s:  # said once, after a while
            log.info("learning waits for the engine: %s", why)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def are_shown(
    engine: Engine, without: Sequence[Prompt | None], said: tuple[int, ...], likely: float
) -> list[bool]:
    """Which of several hints a reply shows: it is less likely with the others alone. Raises EngineError.

    `without` are the prompts that lack one hint each, None if the template refuses; `likely` is the reply's
    log-probability with all of them, in nats.
    """

    async def one(prompt: Prompt | None) -> bool:
        return prompt is not None and likely - sum(await reply_logp(engine, prompt, said, BASE)) >= CONCERNS_NATS

    return await asyncio.gather(*map(one, without))


async def concerns(engine: Engine, own: SampledReply, hinted: Prompt) -> bool:
    """Whether a hint changes what the base model replies: given it, its `own` reply without it is less likely.

    "In grades: ..." changes no solution, even if a reply to one happens to be as the hint asks. Raises EngineError.
    """
    return sum(own.logp) - sum(await reply_logp(engine, hinted, own.tokens, BASE)) >= CONCERNS_NATS
