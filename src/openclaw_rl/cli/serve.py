"""`openclaw-rl serve` and `openclaw-rl demo`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openclaw_rl.cli.common import Home, run_in_order, say
from openclaw_rl.core.message import Json

if TYPE_CHECKING:
    from openclaw_rl.config import Config

app = typer.Typer()
log = logging.getLogger(__name__)


@app.command()
def serve(
    *,
    model: Annotated[
        str | None,
        typer.Option("--model", help="A model folder, a hub name, or `bundled`. [default: bundled, a toy]"),
    ] = None,
    home: Home = None,
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option("--port", help="The port; 0 for any free one. [default: 30000]")] = None,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", help="The key clients must send. [default: one is made and kept in the home folder]"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="A TOML file of settings. [default: config.toml in the home folder]")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="A PEM file with a certificate chain, to serve https.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="The PEM file with its private key.")] = None,
    plain_public: Annotated[
        bool | None,
        typer.Option(
            "--plain-public",
            help="Allow listening without TLS on an address that others can reach; see docs/security.md.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", help="A Ray cluster, `auto` or HOST:PORT, on whose nodes roles run; docs/cluster.md."
        ),
    ] = None,
    learn: Annotated[bool, typer.Option("--learn/--no-learn", help="Judge, train and publish while serving.")] = True,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, including conversation text.")] = False,
) -> None:
    """Serve a model and let it learn from what users say next.

    Point any OpenAI-style client at the address it prints. After Ctrl-C it finishes the answers under way and exits;
    after a second Ctrl-C it exits at once. Nothing is lost either way.
    """
    from openclaw_rl.runtime.serving import run
    from openclaw_rl.telemetry.settings import LogFormat

    given: dict[str, Json] = {
        "model": model,
        "home": None if home is None else str(home),
        "serve.host": host,
        "serve.port": port,
        "serve.api_key": api_key,
        "serve.tls_cert": None if tls_cert is None else str(tls_cert),
        "serve.tls_key": None if tls_key is None else str(tls_key),
        "serve.plain_public": plain_public,
        "cluster.address": cluster,
    }
    settings = _settings(config, given, logging.DEBUG if verbose else logging.INFO)

    is_text = settings.log.format is LogFormat.TEXT
    announce = _print_line if is_text else _log_line
    asyncio.run(run(settings, learn=learn, announce=announce, is_private=is_text and say.is_terminal))


def _print_line(line: str) -> None:
    say.print(line, soft_wrap=True, markup=False)


def _log_line(line: str) -> None:
    log.info("%s", line)


def _settings(file: Path | None, given: Mapping[str, Json], level: int) -> Config:
    """The settings. The log follows them, including lines logged while they are read."""
    from openclaw_rl.config import read_config
    from openclaw_rl.core.logs import kept_until_known
    from openclaw_rl.telemetry.settings import LogFormat

    log_is_json = kept_until_known(level)
    is_json = False
    try:
        settings = read_config(file, overrides=given)
        is_json = settings.log.format is LogFormat.JSON
    finally:
        log_is_json(is_json)
    return settings


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder for the report.")] = Path("demo"),
    sessions: Annotated[int, typer.Option("--sessions", help="At most this many sessions.", min=1)] = 24,
    seed: Annotated[int, typer.Option("--seed", help="Random seed: chooses the student and the problems.")] = 0,
) -> None:
    """Watch the bundled model learn a preference from corrections. Takes a few minutes."""
    from openclaw_rl.evals.demo.run import run_demo

    run_in_order(run_demo(out, sessions=sessions, seed=seed))
