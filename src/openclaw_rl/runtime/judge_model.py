"""A separate model as the judge: in its own process, or on servers on a cluster's nodes.

If it ends, only judging is delayed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from openclaw_rl.core.host import Host
from openclaw_rl.core.message import Message
from openclaw_rl.core.protocols import Chat, Engine
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.open import open_engine
from openclaw_rl.engines.settings import EngineKind, EngineSettings
from openclaw_rl.errors import ConfigError, EngineError, JudgeError, ModelError
from openclaw_rl.judge.partners import EngineChat
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template

log = logging.getLogger(__name__)


@dataclass(slots=True)
class JudgeModel:
    """A `Chat` with a separate model; made by `start`.

    If its process dies, it is restarted at the next question: the judging stage, which asks, knows how
    long to wait between attempts.
    """

    folder: Path
    settings: EngineSettings
    renderer: ChatRenderer
    hosts: Sequence[Host] = ()
    _engine: Engine | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    async def start(
        cls, folder: Path, judge: JudgeSettings, engine: EngineSettings, hosts: Sequence[Host] = ()
    ) -> JudgeModel:
        """The model of a folder, loaded: on a server on each host, or else in a process on this machine.

        Raises ModelError, ConfigError, EngineError.
        """
        settings = replace(
            engine,
            kind=engine.kind if hosts else EngineKind.LOCAL,
            model=str(folder),
            device=judge.device,
            threads=judge.threads,
            nice=judge.nice,
            max_rows=judge.calls_in_flight,
            max_restarts=0,
        )
        model = cls(folder, settings, ChatRenderer(await asyncio.to_thread(read_template, folder)), hosts)
        model._engine = await open_engine(settings, folder, hosts=hosts)
        return model

    async def aclose(self) -> None:
        """Ends the process."""
        async with self._lock:
            engine, self._engine = self._engine, None
            if engine is not None:
                await engine.aclose()

    async def let_go(self) -> None:
        """Clears its memory of questions."""
        self.renderer.let_go()
        if self._engine is not None:
            await self._engine.flush()

    @property
    def pid(self) -> int:
        """The process's id; 0 if there is none."""
        return self._engine.pid if isinstance(self._engine, LocalEngine) else 0

    async def reply(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int | None = None
    ) -> str:
        """The text of one answer. Raises JudgeError if the process died, or cannot be started again."""
        engine = await self._ready()
        chat: Chat = EngineChat(engine, self.renderer, self.renderer.ends(engine.info.eos_ids))
        return await chat.reply(messages, temperature=temperature, max_tokens=max_tokens, seed=seed)

    async def _ready(self) -> Engine:
        async with self._lock:
            if self._engine is not None and not (isinstance(self._engine, LocalEngine) and self._engine.is_dead):
                return self._engine
            if self._engine is not None:
                engine, self._engine = self._engine, None
                await engine.aclose()
            log.warning("the judge's process ended; it is started again")
            try:
                self._engine = await open_engine(self.settings, self.folder, hosts=self.hosts)
            except (EngineError, ModelError, ConfigError) as problem:
                raise JudgeError(f"the judge cannot be started: {problem.problem}", fix=problem.fix) from problem
            return self._engine
