"""The served model without its adapter as a partner to talk to: the judge that costs nothing extra."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.message import Json, Message
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError, JudgeError, RequestError


@dataclass(frozen=True, slots=True)
class EngineChat:
    """A `Chat` over an engine and its renderer.

    `stop_ids` end an answer; `options` are the template's own arguments (such as `enable_thinking`).
    """

    engine: Engine
    renderer: Renderer
    stop_ids: tuple[int, ...]
    version: PolicyVersion = BASE
    options: Mapping[str, Json] = field(default_factory=dict)

    async def reply(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int | None = None
    ) -> str:
        """The text of one answer, without what was thought before it. Raises JudgeError."""
        sampling = Sampling(max_tokens=max_tokens, temperature=temperature, seed=seed, stop_ids=self.stop_ids)
        try:
            # Rendering encodes up to some thousand characters: off the loop, which is busy serving.
            prompt = await asyncio.to_thread(self.renderer.prompt, messages, (), None, options=self.options)
            tokens = [item.token async for item in self.engine.generate(prompt, sampling, self.version)]
        except (EngineError, RequestError) as problem:
            raise JudgeError(f"the local judge cannot answer: {problem.problem}", fix=problem.fix) from problem
        answer, _ = self.renderer.decode(tokens)
        return answer.text
