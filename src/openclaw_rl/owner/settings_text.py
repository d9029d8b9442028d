"""Every setting with its sentence and its default, as commented TOML, read from the Settings classes themselves."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import get_type_hints

from openclaw_rl.config import SECRETS, Config

HEADER = """\
# Settings of OpenClaw-RL with their defaults. Put what you want to change into config.toml in the home folder, or into
# a file given by --config. What is commented out stands for the default.
"""


def settings_text() -> str:
    """The whole of it."""
    return HEADER + "\n".join(_table(Config, Config(home=Path("~/.openclaw-rl")), ""))


def sentences(kind: type) -> dict[str, str]:
    """The sentence under each field of a settings class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, after in pairwise(tree.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(after.value.value).split())
    return found


def _table(kind: type, values: object, name: str) -> list[str]:
    told, hints = sentences(kind), get_type_hints(kind)
    lines, below = ([f"\n[{name}]"] if name else []), []
    for field in dataclasses.fields(kind):
        path = f"{name}.{field.name}" if name else field.name
        value = getattr(values, field.name)
        if dataclasses.is_dataclass(value):
            below += _table(type(value), value, path)
        elif path not in SECRETS and path != "engine.model":
            lines.append(f"# {told[field.name]}")
            lines.append(
                f"# {field.name} = {_toml(value)}"
                if value is not None
                else f"# {field.name} is unset ({hints[field.name]})"
            )
    return lines + below


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
