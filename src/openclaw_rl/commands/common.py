"""What commands share: where they speak, which folder they are about."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from openclaw_rl.errors import ConfigError

T = TypeVar("T")

say = Console(stderr=True, highlight=False)

Home = Annotated[Path | None, typer.Option("--home", help="The installation's folder. [default: ~/.openclaw-rl]")]


def home_of(given: Path | None) -> Path:
    """The folder of an installation that has been started at least once."""
    from openclaw_rl.config import read_config

    home = read_config(overrides={"home": None if given is None else str(given)}).home
    if not (home / "store.db").is_file():
        raise ConfigError(f"{home} holds no store", fix="name the folder a server was started with, by --home")
    return home


def run_in_order(work: Coroutine[None, None, T]) -> T:
    """`asyncio.run`, where SIGTERM cancels `work` as Ctrl-C does, so that the servers it started are ended by it.

    Not by an exception out of a signal's handler: that falls between any two lines, between a server's start and the
    line that knows of it too.
    """

    async def watched() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None
