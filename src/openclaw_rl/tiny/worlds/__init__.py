"""Synthetic worlds: small models that differ from the bundled one, on which learning is tested."""

from __future__ import annotations

from openclaw_rl.errors import ConfigError
from openclaw_rl.tiny.worlds.ferries import FERRIES
from openclaw_rl.tiny.worlds.filing import FILES
from openclaw_rl.tiny.worlds.hotel import HOTEL
from openclaw_rl.tiny.worlds.kitchen import KITCHEN
from openclaw_rl.tiny.worlds.letters import LETTERS
from openclaw_rl.tiny.worlds.market import MARKET
from openclaw_rl.tiny.worlds.museum import MUSEUM
from openclaw_rl.tiny.worlds.shop import SHOP
from openclaw_rl.tiny.worlds.world import World

WORLDS = {world.name: world for world in (KITCHEN, FERRIES, SHOP, LETTERS, FILES, MARKET, MUSEUM, HOTEL)}


def world(name: str) -> World:
    """The world of that name. Raises ConfigError."""
    if name not in WORLDS:
        raise ConfigError(f"there is no synthetic world {name!r}", fix=f"choose among {', '.join(WORLDS)}")
    return WORLDS[name]
