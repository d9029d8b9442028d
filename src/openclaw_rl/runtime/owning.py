"""The page's view of the home folder: its settings with their origins, and its keys."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path

from openclaw_rl.config import ENVIRONMENT, FILE_NAME, SECRETS, Config
from openclaw_rl.core.message import Json
from openclaw_rl.core.rights import Right
from openclaw_rl.core.sentences import sentences
from openclaw_rl.home.keys import add_key, kept_keys, last_used, revoke_key
from openclaw_rl.serve.parts import OwnerControl


def owner_control(config: Config) -> OwnerControl:
    """The owner's queries of this folder; files are read in a thread."""
    home = config.home

    async def settings() -> Sequence[Mapping[str, Json]]:
        return await asyncio.to_thread(lambda: shown_settings(config, os.environ))

    async def keys() -> Sequence[Mapping[str, Json]]:
        return await asyncio.to_thread(_keys, home)

    async def add(name: str, rights: frozenset[Right]) -> str:
        return await asyncio.to_thread(add_key, home, name, rights)

    async def revoke(name: str) -> None:
        await asyncio.to_thread(revoke_key, home, name)

    return OwnerControl(settings, keys, add, revoke, config.carry.value)


def shown_settings(config: Config, environment: Mapping[str, str]) -> list[dict[str, Json]]:
    """Every setting except secrets: name, value, default, origin of the value, and purpose."""
    file = config.home / FILE_NAME
    table: dict[str, object] = tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
    named = {setting: name for name, setting in ENVIRONMENT.items() if environment.get(name)}
    return list(_rows(config, Config(), "", partial(_origin, table=table, named=named)))


def _rows(values: object, defaults: object, where: str, origin: partial[str]) -> Iterator[dict[str, Json]]:
    assert dataclasses.is_dataclass(values) and not isinstance(values, type)
    kind = type(values)
    words = sentences(kind)
    hidden: frozenset[str] = getattr(kind, "ADVANCED", frozenset())
    for field in dataclasses.fields(values):
        name, value, default = f"{where}{field.name}", getattr(values, field.name), getattr(defaults, field.name, None)
        if dataclasses.is_dataclass(value):
            yield from _rows(value, default, f"{name}.", origin)
        elif name not in SECRETS and name != "engine.model":
            yield {
                "name": name,
                "value": _plain(value),
                "default": _plain(default),
                "from": origin(name, value == default),
                "says": words.get(field.name, ""),
                "is_advanced": field.name in hidden,
            }


def _origin(name: str, is_default: bool, *, table: Mapping[str, object], named: Mapping[str, str]) -> str:
    held: object = table
    for part in name.split("."):
        held = held.get(part) if isinstance(held, Mapping) else None
    if name in named:
        return f"environment ({named[name]})"
    if held is not None:
        return FILE_NAME
    return "default" if is_default else "given at the start"


def _plain(value: object) -> Json:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple | frozenset):
        return [str(item) for item in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _keys(home: Path) -> list[dict[str, Json]]:
    used = last_used(home)
    return [
        {
            "name": key.name,
            "rights": [right.value for right in sorted(key.rights)],
            "requests_a_minute": key.limits.requests_a_minute,
            "tokens_a_minute": key.limits.tokens_a_minute,
            "made_at": key.made_s,
            "used_at": used.get(key.name),
            "revoked_at": key.revoked_s,
        }
        for key in kept_keys(home)
    ]
