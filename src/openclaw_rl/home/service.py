"""The files of a systemd user unit and of a launchd agent that start a server, and their paths."""

from __future__ import annotations

import os
import plistlib
import re
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from openclaw_rl.errors import ConfigError

NAME = "openclaw-rl"
ENVIRONMENT_FILE = "service.env"
_STOP_S = 660  # answers are finished for `serve.finish_s`, 600 seconds, before it ends
_WRONG_SETTINGS = 2  # the exit code of a mistake that a restart does not fix


class Manager(StrEnum):
    """The service managers."""

    SYSTEMD = "systemd"
    LAUNCHD = "launchd"


@dataclass(frozen=True, slots=True)
class Service:
    """A server of one home folder under a name. `python` is the interpreter that has this package."""

    home: Path
    python: str = sys.executable
    name: str = NAME

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", self.name):
            raise ConfigError(f"{self.name!r} cannot name a service", fix="use letters, digits, - and _")
        if not all(str(part).isprintable() for part in (self.home, self.python)):
            raise ConfigError(f"{str(self.home)!r} holds a line break or the like", fix="use another folder")

    @property
    def command(self) -> tuple[str, ...]:
        """What is run."""
        return (self.python, "-m", "openclaw_rl", "serve", "--home", str(self.home))


def manager_here(platform: str = sys.platform) -> Manager:
    """The service manager of this system. Raises ConfigError if it is neither of the two."""
    if platform.startswith("linux"):
        return Manager.SYSTEMD
    if platform == "darwin":
        return Manager.LAUNCHD
    raise ConfigError(
        f"services are written for systemd (Linux) and launchd (macOS), and this is {platform}",
        fix="let the system's own means run `openclaw-rl serve`, or give --manager with --print to see a file",
    )


def service_file(service: Service, manager: Manager) -> Path:
    """The path of the service's file for this user."""
    if manager is Manager.LAUNCHD:
        return Path.home() / "Library" / "LaunchAgents" / f"{service.name}.plist"
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "systemd" / "user" / f"{service.name}.service"


def service_text(service: Service, manager: Manager) -> str:
    """The file itself."""
    return _unit(service) if manager is Manager.SYSTEMD else _agent(service)


def _unit(service: Service) -> str:
    words = " ".join(_quoted(word) for word in service.command)
    return f"""\
# Written by `openclaw-rl service install`.
[Unit]
Description=OpenClaw-RL serving {_escaped(str(service.home))}

[Service]
ExecStart={words}
# Secrets such as JUDGE_API_KEY, one NAME=value a line, in a file that only you can read. It need not be there.
EnvironmentFile=-{_escaped(str(service.home / ENVIRONMENT_FILE))}
# One signal to the server alone: it finishes what is being answered and ends its own processes.
KillMode=mixed
TimeoutStopSec={_STOP_S}
Restart=on-failure
RestartSec=5
# Wrong settings do not get better by starting again.
RestartPreventExitStatus={_WRONG_SETTINGS}
UMask=0077

[Install]
WantedBy=default.target
"""


def _escaped(text: str) -> str:
    """Escapes systemd's specifiers."""
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """A word of a systemd command line, with `%` and `$` escaped."""
    word = _escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{word}"'


def _agent(service: Service) -> str:
    log = str(service.home / "service.log")
    agent = {
        "Label": service.name,
        "ProgramArguments": list(service.command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": _STOP_S,
        "Umask": 0o077,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    return plistlib.dumps(agent, sort_keys=False).decode("utf-8")
