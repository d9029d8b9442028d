"""Every setting with its sentence and its default, as commented TOML, read from the Settings classes themselves."""

from __future__ import annotations

import dataclasses
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import get_args, get_type_hints

from openclaw_rl.config import SECRETS, Config
from openclaw_rl.core.sentences import sentences

HEADER = """\
# Settings of OpenClaw-RL with their defaults. Put what you want to change into config.toml in the home folder, or into
# a file given with --config. Each line that is commented out shows the default.
"""
ADVANCED = """\
# Advanced settings: their defaults were measured, and there is rarely a reason to change them. They belong to the
# same tables as those above.
"""
_WORDS = {int: "a number", float: "a number", str: "a text", bool: "true or false", Path: "a path"}


def settings_text(*, advanced: bool = False) -> str:
    """The settings that people change; if `advanced`, all others."""
    header = ADVANCED if advanced else HEADER
    return header + "\n".join(_table(Config, Config(home=Path("~/.openclaw-rl")), "", advanced=advanced))


def _table(kind: type, values: object, name: str, *, advanced: bool) -> list[str]:
    told, hints = sentences(kind), get_type_hints(kind)
    hidden: frozenset[str] = getattr(kind, "ADVANCED", frozenset())
    lines, below = list[str](), list[str]()
    for field in dataclasses.fields(kind):
        path = f"{name}.{field.name}" if name else field.name
        value = getattr(values, field.name)
        if dataclasses.is_dataclass(value):
            below += _table(type(value), value, path, advanced=advanced)
        elif path not in SECRETS and path != "engine.model" and (field.name in hidden) is advanced:
            lines.append(f"# {told[field.name]}")
            lines.append(
                f"# {field.name} = {_toml(value)}"
                if value is not None
                else f"# {field.name} is unset ({_kind(hints[field.name])})"
            )
    if lines and name:
        lines[:0] = [f"\n[{name}]"]
    return lines + below


def _kind(hint: object) -> str:
    """A setting's type as text."""
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not NoneType]
    return " or ".join(
        "one of " + ", ".join(str(item.value) for item in kind)
        if isinstance(kind, type) and issubclass(kind, Enum)
        else _WORDS.get(kind, str(kind))
        for kind in kinds
    )


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return f'"{value.value}"'
    if isinstance(value, str | Path):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return repr(value)
