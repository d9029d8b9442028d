"""What an engine is asked about replies beside those it serves: how likely one is, and what it would say."""

from __future__ import annotations

from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.sample import SampledReply
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import EngineError, RequestError


async def reply_logp(
    engine: Engine, prompt: Prompt, said: tuple[int, ...], version: PolicyVersion
) -> tuple[float, ...]:
    """Nats of each token of a reply behind a prompt. Raises EngineError, also where its queue is full."""
    whole = Prompt(prompt.tokens + said, images=prompt.images)
    try:
        return (await engine.score(whole, start=len(prompt), version=version)).logp
    except RequestError as problem:
        raise EngineError(str(problem)) from problem


async def sampled_reply(engine: Engine, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> SampledReply:
    """What a version says to a prompt. Raises EngineError, also where its queue is full."""
    try:
        said = [item async for item in engine.generate(prompt, sampling, version)]
    except RequestError as problem:
        raise EngineError(str(problem)) from problem
    return SampledReply(tuple(item.token for item in said), tuple(item.logp for item in said), version)
