"""Synthetic worlds: small models that differ from the bundled one, on which learning is tested."""

from __future__ import annotations

from dataclasses import replace

from openclaw_rl.errors import ConfigError
from openclaw_rl.tiny.worlds.bodies import AT_ONCE
from openclaw_rl.tiny.worlds.farm import FARM
from openclaw_rl.tiny.worlds.ferries import FERRIES
from openclaw_rl.tiny.worlds.filing import FILES
from openclaw_rl.tiny.worlds.garden import GARDEN
from openclaw_rl.tiny.worlds.hotel import HOTEL
from openclaw_rl.tiny.worlds.kitchen import KITCHEN
from openclaw_rl.tiny.worlds.letters import LETTERS
from openclaw_rl.tiny.worlds.library import LIBRARY
from openclaw_rl.tiny.worlds.market import MARKET
from openclaw_rl.tiny.worlds.museum import MUSEUM
from openclaw_rl.tiny.worlds.school import SCHOOL
from openclaw_rl.tiny.worlds.shop import SHOP
from openclaw_rl.tiny.worlds.world import Architecture, World

WIDE = "wide"
_ALL = (KITCHEN, FERRIES, SHOP, LETTERS, FILES, MARKET, MUSEUM, HOTEL, SCHOOL, FARM, GARDEN, LIBRARY)
WORLDS = {world.name: world for world in _ALL}


def world(name: str) -> World:
    """The world of that name; `letters@qwen3` is `letters` with a body of this architecture. Raises ConfigError.

    A dense body in place of a mixture is as wide as the experts that process a token together. `letters@wide` is
    `letters` with a body about six times as large: does size change what is learned?
    """
    known, at, body = name.partition("@")
    if known not in WORLDS:
        raise ConfigError(f"there is no synthetic world {known!r}", fix=f"choose among {', '.join(WORLDS)}")
    made = WORLDS[known]
    if not at:
        return made
    if body == WIDE:
        return _wide(made)
    if body not in tuple(Architecture):
        raise ConfigError(f"there is no architecture {body!r}", fix=f"choose among {', '.join([*Architecture, WIDE])}")
    other = replace(made, architecture=Architecture(body))
    if other.architecture is made.architecture or made.architecture is not Architecture.QWEN3_MOE:
        return other
    return replace(other, shape=replace(made.shape, inner=AT_ONCE * made.shape.inner))


def _wide(made: World) -> World:
    """The world with a body twice as wide and with half as many layers again, trained in fewer steps, since each
    teaches it more; a build goes on until answers are right."""
    shape = made.shape
    wide = replace(
        shape,
        hidden=2 * shape.hidden,
        layers=shape.layers + shape.layers // 2,
        inner=2 * shape.inner,
        heads=2 * shape.heads,
        kv_heads=2 * shape.kv_heads,
    )
    return replace(made, shape=wide, schedule=replace(made.schedule, steps=round(0.7 * made.schedule.steps)))
