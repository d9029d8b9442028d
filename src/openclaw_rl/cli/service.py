"""`openclaw-rl service`: a server that starts with the user's session and is started again when it fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from openclaw_rl.cli.common import Home, say, settings_of
from openclaw_rl.errors import ConfigError
from openclaw_rl.home.service import (
    NAME,
    Manager,
    Service,
    manager_here,
    service_file,
    service_text,
)

app = typer.Typer(
    no_args_is_help=True,
    help="Let the system run the server: a systemd user unit on Linux, a launchd agent on macOS.",
)
Name = Annotated[str, typer.Option("--name", help="The service's name, to have one for each of several homes.")]
Print = Annotated[bool, typer.Option("--print", help="Print the file and the commands; change nothing.")]
Kind = Annotated[
    Manager | None, typer.Option("--manager", help="With --print: the file for another system. [default: this one's]")
]
_ASK_S = 60


@app.command()
def install(
    *,
    home: Home = None,
    name: Name = NAME,
    manager: Kind = None,
    is_shown: Print = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that was changed.")] = False,
) -> None:
    """Write the service's file, start the server, and start it again at every login.

    On Linux `loginctl enable-linger` lets it run without a login. Keys that the server needs from its environment, such
    as JUDGE_API_KEY, belong in the file service.env of the home folder (only with systemd; launchd does not read it).
    """
    kind = _manager(manager, is_shown=is_shown)
    service = Service(settings_of(home).home.absolute(), name=name)
    file, text = service_file(service, kind), service_text(service, kind)
    commands = _starting(service, kind, file)
    if is_shown:
        _show(file, commands, text)
        return
    if file.exists() and file.read_text("utf-8") != text and not force:
        raise ConfigError(f"{file} is there and says something else", fix="remove it, or give --force to replace it")
    _check_manager(kind)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    for command in commands:
        _run(command)
    say.print(f"{service.name} runs, and starts at every login; wrote {file}", soft_wrap=True, markup=False)


@app.command()
def uninstall(*, name: Name = NAME, manager: Kind = None, is_shown: Print = False) -> None:
    """Stop the server and remove the service's file. The home folder stays as it is."""
    kind = _manager(manager, is_shown=is_shown)
    service = Service(Path.home(), name=name)
    file = service_file(service, kind)
    stop, after = _stopping(service, kind)
    if is_shown:
        _show(file, (stop, ("rm", str(file)), *after))
        return
    if not file.is_file():
        raise ConfigError(f"no service {name} is installed: {file} is not there", fix="`openclaw-rl service install`")
    _run(stop)
    file.unlink()
    for command in after:
        _run(command)
    say.print(f"{name} is stopped and removed", markup=False)


@app.command()
def status(*, name: Name = NAME) -> None:
    """Show whether the service is installed and runs. `openclaw-rl status` shows what the server does."""
    kind = manager_here()
    service = Service(Path.home(), name=name)
    file = service_file(service, kind)
    if not file.is_file():
        print(f"{name}: not installed ({file} is not there)")
        return
    if kind is Manager.LAUNCHD:
        state = "not loaded" if _called(("launchctl", "print", f"{_domain()}/{name}")).returncode else "active"
    else:
        done = _called(("systemctl", "--user", "is-active", f"{name}.service"))
        state = done.stdout.strip() or done.stderr.strip() or "not known"
    print(f"{name}: installed ({file}), {state}")


def _manager(given: Manager | None, *, is_shown: bool) -> Manager:
    if given is not None and is_shown:
        return given
    here = manager_here()
    if given not in (None, here):
        raise ConfigError(f"this system has no {given}", fix="add --print to see its file, or leave --manager out")
    return here


def _starting(service: Service, kind: Manager, file: Path) -> tuple[tuple[str, ...], ...]:
    if kind is Manager.LAUNCHD:
        return (("launchctl", "bootstrap", _domain(), str(file)),)
    control = ("systemctl", "--user")
    return ((*control, "daemon-reload"), (*control, "enable", "--now", f"{service.name}.service"))


def _stopping(service: Service, kind: Manager) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The commands that stop it, and those to run after its file is removed."""
    if kind is Manager.LAUNCHD:
        return ("launchctl", "bootout", f"{_domain()}/{service.name}"), ()
    control = ("systemctl", "--user")
    return (*control, "disable", "--now", f"{service.name}.service"), ((*control, "daemon-reload"),)


def _domain() -> str:
    return f"gui/{os.getuid()}"


def _check_manager(kind: Manager) -> None:
    """Raises ConfigError if the user's own manager does not run, as in most containers."""
    ask = ("systemctl", "--user", "show-environment")
    if kind is Manager.SYSTEMD and (done := _called(ask)).returncode:
        raise ConfigError(
            f"systemd runs no services for this user: {_last(done)}",
            fix="log in as that user, or start `openclaw-rl serve` with whatever else runs programs here",
        )


def _run(command: Sequence[str]) -> None:
    done = _called(command)
    if done.returncode:
        raise ConfigError(f"`{' '.join(command)}` failed: {_last(done)}", fix="see what it says, and try again")


def _called(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except FileNotFoundError as problem:
        raise ConfigError(
            f"there is no {command[0]} on this machine",
            fix="start `openclaw-rl serve` with whatever else runs programs here",
        ) from problem
    except subprocess.TimeoutExpired as problem:
        raise ConfigError(f"`{' '.join(command)}` did not end in {_ASK_S} seconds") from problem


def _last(done: subprocess.CompletedProcess[str]) -> str:
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return said[-1] if said else f"it ended with code {done.returncode}"


def _show(file: Path, commands: Sequence[Sequence[str]], text: str = "") -> None:
    say.print(f"file: {file}", soft_wrap=True, markup=False)
    for command in commands:
        say.print(f"command: {' '.join(command)}", soft_wrap=True, markup=False)
    if text:
        print(text, end="")
