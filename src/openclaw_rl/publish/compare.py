"""The same prompts answered by several versions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from openclaw_rl.core.message import Message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import ConfigError, RequestError
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionRow

RECENT = 200  # turns searched for prompts
MOST_PROMPTS = 50
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class ComparedPrompt:
    """A prompt, and each version's answer to it."""

    asked: tuple[Message, ...]
    answers: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether all answers are the same."""
        return len(set(self.answers)) == 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """Loads versions for as long as they are compared. `stop_ids` end an answer."""

    store: Store
    engine: Engine
    renderer: Renderer
    served: ServedVersions
    stop_ids: tuple[int, ...]

    async def of(
        self, versions: Sequence[PolicyVersion], prompts: Sequence[Sequence[Message]], *, max_tokens: int
    ) -> list[ComparedPrompt]:
        """Each version's likeliest answer to each prompt; by default the prompts of their users' latest turns.

        Refused versions can be compared too. Raises ConfigError for a version that does not exist or if there are no
        prompts, AdapterError if a version's folder is damaged, EngineError if there is no room for it.
        """
        rows = [await self._row(version) for version in versions]
        asked = [tuple(prompt) for prompt in prompts] or await self._recent()
        if not asked:
            raise ConfigError("no conversation is stored yet to compare the versions on", fix="give --prompts")
        async with AsyncExitStack() as stack:
            for row in rows:
                if row is not None:
                    await stack.enter_async_context(self.served.at_hand(row))
            slots = asyncio.Semaphore(AT_ONCE)
            return list(
                await asyncio.gather(
                    *(self._compared(prompt, versions, slots, max_tokens) for prompt in asked[:MOST_PROMPTS])
                )
            )

    async def _row(self, version: PolicyVersion) -> VersionRow | None:
        row = await self.store.version(version)
        if row is None and not version.is_base:
            raise ConfigError(f"there is no version {version}", fix="`openclaw-rl versions` lists them")
        return row

    async def _recent(self) -> list[tuple[Message, ...]]:
        """The first words of the latest conversations, newest first."""
        rows = await self.store.rows(limit=RECENT)
        found = {row.turn.messages: row.turn.messages for row in rows if row.turn.is_main and row.turn.parent is None}
        return list(found.values())[:10]

    async def _compared(
        self, asked: tuple[Message, ...], versions: Sequence[PolicyVersion], slots: asyncio.Semaphore, most: int
    ) -> ComparedPrompt:
        async with slots:
            prompt = await asyncio.to_thread(self.renderer.prompt, asked, (), None)
            answers = [await self._answer(prompt, version, most) for version in versions]
        return ComparedPrompt(asked, tuple(answers))

    async def _answer(self, prompt: Prompt, version: PolicyVersion, most: int) -> str:
        sampling = Sampling(max_tokens=most, temperature=0.0, seed=0, stop_ids=self.stop_ids)
        tokens = [item.token async for item in self.engine.generate(prompt, sampling, version)]
        try:
            reply, _ = self.renderer.decode(tokens)
        except (RequestError, ValueError) as problem:
            return f"(cannot be read: {problem})"
        calls = [f"{call.name}({call.arguments})" for call in reply.tool_calls]
        return "\n".join([*([reply.text] if reply.text else []), *calls])
