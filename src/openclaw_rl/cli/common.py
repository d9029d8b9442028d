"""What commands share: their console and their folder."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError

if TYPE_CHECKING:
    from openclaw_rl.config import Config

T = TypeVar("T")

say = Console(stderr=True, highlight=False)
WIDEST = 10_000  # columns: wide enough that nothing is cut off

Home = Annotated[Path | None, typer.Option("--home", help="The installation's folder. [default: ~/.openclaw-rl]")]


def settings_of(home: Path | None) -> Config:
    """The settings in force for this folder, or for the usual one."""
    from openclaw_rl.config import read_config

    return read_config(overrides={"home": None if home is None else str(home)})


def home_of(given: Path | None, *, needs_store: bool = True) -> Path:
    """The folder of an installation that has been started at least once; it may have versions without a store."""
    from openclaw_rl.core.manifest import has_versions
    from openclaw_rl.store.connection import MAKE_STORE

    home = settings_of(given).home
    store = home / "store.db"
    if not store.is_file() and (store.is_dir() or has_versions(home)):
        if not needs_store:
            return home
        what = f"{store} is a folder, not a store" if store.is_dir() else f"{home} holds versions but no store"
        raise ConfigError(what, fix=MAKE_STORE)
    if not store.is_file():
        raise ConfigError(f"{home} holds no store", fix="give --home the folder that a server was started with")
    return home


def served_home(given: Path | None, *, as_json: bool) -> Path | None:
    """The folder of an installation that a server runs on; None if none does, which is printed."""
    from openclaw_rl.home.folder import address_of

    home = home_of(given)
    if address_of(home) is not None:
        return home
    none = f"no server runs on {home}; `openclaw-rl doctor` looks at what is stored"
    print(json.dumps({"story": none}) if as_json else none)
    return None


def print_table(table: Table, out: Console | None = None) -> None:
    """Prints a table without cutting anything off, since the next command may need an id, a name or a version.

    In a pipe or a file each row is one line. In a terminal long text wraps, except in columns that do
    not wrap; the table is wide enough for those.
    """
    out = out or Console()
    for column in table.columns:
        column.overflow = "fold"
    least = Measurement.get(out, out.options.update(max_width=WIDEST), table).minimum
    out.width = max(out.width, least) if out.is_terminal else WIDEST
    out.print(table)


def print_evaluation(name: str, figures: Mapping[str, Json], home: Path | None = None) -> None:
    """Prints the figures as a line of JSON, and sends them to the sinks that the settings name."""
    from openclaw_rl.telemetry.hub import note_evaluation

    print(json.dumps(figures), flush=True)
    config = settings_of(home)
    if config.metrics.sinks:
        for finding in note_evaluation(config.home, config.metrics, name, figures):
            say.print(f"warning: {finding.said}", soft_wrap=True, markup=False)


def run_in_order(work: Coroutine[None, None, T]) -> T:
    """`asyncio.run` in which SIGTERM cancels `work` as Ctrl-C does, so that `work` ends the servers it started.

    It does not raise from a signal handler: that could happen between any two lines, for example between a server's
    start and the line that records it.
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
