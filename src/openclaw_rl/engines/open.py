"""Opens an engine by its kind; the only place that lists the kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from openclaw_rl.core.host import Host
from openclaw_rl.core.protocols import Engine
from openclaw_rl.engines.settings import EngineKind, EngineSettings


async def open_engine(settings: EngineSettings, model: Path, *, rank: int = 0, hosts: Sequence[Host] = ()) -> Engine:
    """The engine that the settings name, serving the model in this folder and adapters of this rank.

    Servers that have to be started run on `hosts`, one on each; without any they run on this machine.
    Raises ModelError or ConfigError if that is impossible, EngineError if a remote engine cannot be reached.
    """
    if settings.kind is EngineKind.LOCAL:
        from openclaw_rl.engines.local.client import LocalEngine

        return await LocalEngine.start(replace(settings, model=str(model)))
    from openclaw_rl.engines.remote.client import RemoteEngine

    return await RemoteEngine.start(settings, model, rank=rank, hosts=hosts)
