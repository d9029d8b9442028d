"""Engines: token ids in, token ids out. Importing this loads no torch; the engine's child does."""

from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.local.settings import EngineInfo, EngineStats, LocalEngineSettings

__all__ = ["EngineInfo", "EngineStats", "LocalEngine", "LocalEngineSettings"]
