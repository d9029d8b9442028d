"""The command `openclaw-rl`: its help describes each command. A command is imported only when named."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from openclaw_rl import __version__
from openclaw_rl.core.disk import is_about_disk, unwritable
from openclaw_rl.errors import ConfigError, OpenClawRLError, innermost

# Which extra brings a library that a command needs.
EXTRAS = {
    "torch": "local",
    "transformers": "local",
    "peft": "local",
    "safetensors": "local",
    "bitsandbytes": "lowbits",
    "openai": "local,demo",
    "matplotlib": "local,demo",
}


@dataclass(frozen=True, slots=True)
class _Source:
    """The module whose `app` contains a command, or is the group of that name.

    A group with `help` is not imported for the list of commands.
    """

    module: str
    is_group: bool = False
    help: str | None = None


_LOOKING, _UNDOING = _Source("openclaw_rl.cli.looking"), _Source("openclaw_rl.cli.undo")
# Each command under the heading of the help that lists it, in the order of the help.
_PANELS: dict[str, dict[str, _Source]] = {
    "First steps": {
        **dict.fromkeys(("demo", "serve"), _Source("openclaw_rl.cli.serve")),
        "init": _Source("openclaw_rl.cli.init"),
        "plan": _Source("openclaw_rl.cli.plan"),
        "connect": _Source("openclaw_rl.cli.connect"),
        "service": _Source("openclaw_rl.cli.service", True, "Let the system run the server: systemd or launchd."),
    },
    "Is it learning, and if not, why?": {
        "status": _LOOKING,
        "top": _Source("openclaw_rl.cli.top"),
        "doctor": _Source("openclaw_rl.cli.doctor"),
        **dict.fromkeys(("turns", "inspect"), _LOOKING),
        "versions": _UNDOING,
        "hints": _Source("openclaw_rl.cli.hints", is_group=True),
    },
    "Going back": dict.fromkeys(("rollback", "pin", "unpin", "freeze", "unfreeze", "diff"), _UNDOING),
    "The installation and its data": {
        "settings": _LOOKING,
        "keys": _Source("openclaw_rl.cli.keys", is_group=True),
        "check": _Source("openclaw_rl.cli.checking"),
        "export": _LOOKING,
        **dict.fromkeys(("forget", "replay"), _Source("openclaw_rl.cli.forgetting")),
    },
    "Agents that learn from tasks": {
        "tasks": _Source("openclaw_rl.cli.tasks", True, "Check and make tasks for agents."),
        **dict.fromkeys(("rollout", "train-agent"), _Source("openclaw_rl.cli.agents")),
        "pool": _Source(
            "openclaw_rl.cli.pool", True, "Serve environments for agents over HTTP, to one run or to several."
        ),
    },
    "Measuring": {
        "eval": _Source("openclaw_rl.cli.eval", True, "Measure whether a model learns what its users want."),
        "tiny": _Source("openclaw_rl.tiny.cli", True, "Rebuild the bundled model, or score it."),
    },
}
COMMANDS: dict[str, _Source] = {name: source for panel in _PANELS.values() for name, source in panel.items()}
_PANEL_OF = {name: heading for heading, panel in _PANELS.items() for name in panel}


class _Commands(TyperGroup):
    """All commands, each imported when it is named.

    A subclass, since typer looks commands up this way; `Any`, since typer keeps the types of its arguments private.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """All names."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command. None if there is none of that name; then all are loaded, to suggest the nearest."""
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                self.commands[name] = _imported(name)
        return self.commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Lists the commands, with stand-ins for heavy groups; they only appear in the help."""
        for name, source in COMMANDS.items():
            if source.help and name not in self.commands:
                self.commands[name] = TyperGroup(name=name, help=source.help, rich_help_panel=_PANEL_OF[name])
        super().format_help(ctx, formatter)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Serve a model that learns from the conversations it has. `openclaw-rl demo` shows it learning in a few "
    "minutes; `openclaw-rl serve` starts a server, and `openclaw-rl connect` points a client at it. docs/start.md "
    "explains the rest.",
)


def main() -> None:
    """The entry point: an error for people is printed without a traceback and ends with code 2."""
    try:
        app()
    except OpenClawRLError as problem:
        _tell(problem)
    except BaseExceptionGroup as group:  # a stage that runs with others failed
        told, rest = group.split(OpenClawRLError)
        if rest is not None or told is None:
            raise
        first = innermost(told)
        assert isinstance(first, OpenClawRLError)
        _tell(first)
    except OSError as problem:  # a file that a command writes or reads
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


def command_names() -> list[str]:
    """Every command as typed, including those of groups. Imports all of them."""
    found: list[str] = []
    for name in COMMANDS:
        command = _imported(name)
        found += [f"{name} {inner}" for inner in command.commands] if isinstance(command, TyperGroup) else [name]
    return found


def _imported(name: str) -> TyperCommand | TyperGroup:
    source = COMMANDS[name]
    group = get_group(import_module(source.module).app)
    if not source.is_group:
        command = group.commands[name]
        assert isinstance(command, TyperCommand)
        command.rich_help_panel = _PANEL_OF[name]
        return command
    group.name, group.help, group.rich_help_panel = name, source.help or group.help, _PANEL_OF[name]
    return group


def _tell(problem: OpenClawRLError) -> None:
    """What is wrong and what to do, and the exit code of a mistake."""
    from rich.markup import escape

    from openclaw_rl.cli.common import say

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
