"""What commands share: where they speak, which folder they are about."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from openclaw_rl.errors import ConfigError

say = Console(stderr=True, highlight=False)

Home = Annotated[Path | None, typer.Option("--home", help="The installation's folder. [default: ~/.openclaw-rl]")]


def home_of(given: Path | None) -> Path:
    """The folder of an installation that has been started at least once."""
    from openclaw_rl.config import read_config

    home = read_config(overrides={"home": None if given is None else str(given)}).home
    if not (home / "store.db").is_file():
        raise ConfigError(f"{home} holds no store", fix="name the folder a server was started with, by --home")
    return home
