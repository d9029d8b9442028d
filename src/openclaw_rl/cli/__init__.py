"""The command `openclaw-rl`: what each command is for is said in its help."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from openclaw_rl import __version__
from openclaw_rl.cli.common import Home, run_in_order, say
from openclaw_rl.core.disk import is_about_disk, unwritable
from openclaw_rl.errors import ConfigError, OpenClawRLError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Serve a model that learns from the conversations it has. Start with `openclaw-rl demo` to watch it learn, or "
    "`openclaw-rl serve` to talk to it.",
)
# Which extra brings a library that a command needs.
EXTRAS = {
    "torch": "local",
    "transformers": "local",
    "peft": "local",
    "safetensors": "local",
    "openai": "local,demo",
    "matplotlib": "local,demo",
}


def main() -> None:
    """The entry point: an error for people is printed without a traceback and ends with code 2."""
    try:
        app()
    except OpenClawRLError as problem:
        _tell(problem)
    except BaseExceptionGroup as group:  # a stage that runs beside others failed
        told, rest = group.split(OpenClawRLError)
        if rest is not None or told is None:
            raise
        _tell(_first(told))
    except OSError as problem:  # a file that some command writes or reads
        if not is_about_disk(problem):
            raise
        _tell(unwritable(Path(str(problem.filename or "a file")), problem))
    except ModuleNotFoundError as problem:
        extra = EXTRAS.get((problem.name or "").partition(".")[0])
        if extra is None:
            raise
        _tell(ConfigError(f"this needs {problem.name}", fix=f"install it: pip install 'openclaw-rl[{extra}]'"))
    except KeyboardInterrupt:
        sys.exit(130)


def _first(group: BaseExceptionGroup[OpenClawRLError]) -> OpenClawRLError:
    """The first error in a group of groups."""
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _tell(problem: OpenClawRLError) -> None:
    """What is wrong and what to do, and the exit code of a mistake."""
    say.print(f"[bold red]error:[/] {escape(problem.problem)}", soft_wrap=True)
    if problem.fix:
        say.print(f"[bold]what to do:[/] {escape(problem.fix)}", soft_wrap=True)
    sys.exit(2)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"openclaw-rl {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Options of every command."""


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
        Path | None, typer.Option("--tls-cert", help="A PEM file with a certificate chain: speak https.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="The PEM file with its private key.")] = None,
    plain_public: Annotated[
        bool | None,
        typer.Option("--plain-public", help="Listen without TLS on an address that others reach; docs/security.md."),
    ] = None,
    learn: Annotated[bool, typer.Option("--learn/--no-learn", help="Judge, train and publish while serving.")] = True,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, conversation text included.")] = False,
) -> None:
    """Serve a model and let it learn from what is said next.

    Point any OpenAI-style client at the address it prints. Ctrl-C finishes what is being answered and leaves; a second
    Ctrl-C leaves at once. Nothing is lost either way.
    """
    from openclaw_rl.config import read_config
    from openclaw_rl.runtime.serving import run

    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    settings = read_config(
        config,
        overrides={
            "model": model,
            "home": None if home is None else str(home),
            "serve.host": host,
            "serve.port": port,
            "serve.api_key": api_key,
            "serve.tls_cert": None if tls_cert is None else str(tls_cert),
            "serve.tls_key": None if tls_key is None else str(tls_key),
            "serve.plain_public": plain_public,
        },
    )

    def announce(line: str) -> None:
        say.print(line, soft_wrap=True, markup=False)

    asyncio.run(run(settings, learn=learn, announce=announce, is_private=say.is_terminal))


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Where the report goes.")] = Path("demo"),
    sessions: Annotated[int, typer.Option("--sessions", help="At most this many sessions.", min=1)] = 24,
    seed: Annotated[int, typer.Option("--seed", help="Which student, which problems.")] = 0,
) -> None:
    """Watch the bundled model adopt a preference from being corrected; takes a few minutes."""
    from openclaw_rl.evals.demo.run import run_demo

    run_in_order(run_demo(out, sessions=sessions, seed=seed))


def _mount() -> None:
    from openclaw_rl.cli import checking, connect, doctor, forgetting, hints, judging, keys, looking, tasks, undo
    from openclaw_rl.cli import eval as evaluating
    from openclaw_rl.tiny.cli import app as tiny

    for group in (looking.app, undo.app, connect.app, doctor.app, checking.app, forgetting.app):
        app.add_typer(group)
    app.add_typer(hints.app, name="hints")
    app.add_typer(keys.app, name="keys")
    app.add_typer(tasks.app, name="tasks")
    evaluating.app.add_typer(judging.app)
    app.add_typer(evaluating.app, name="eval")
    app.add_typer(tiny, name="tiny", help="Make the bundled model again, or score it.")


_mount()
