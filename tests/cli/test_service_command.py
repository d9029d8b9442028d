"""`openclaw-rl service`: the files of systemd and launchd, and what is asked of them."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_parts import said

from openclaw_rl.errors import ConfigError
from openclaw_rl.home.service import Manager, Service, manager_here, service_file, service_text

UNIT = """\
# Written by `openclaw-rl service install`.
[Unit]
Description=OpenClaw-RL serving /srv/a home/100%%

[Service]
ExecStart="/opt/python" "-m" "openclaw_rl" "serve" "--home" "/srv/a home/100%%"
# Secrets such as JUDGE_API_KEY, one NAME=value a line, in a file that only you can read. It need not be there.
EnvironmentFile=-/srv/a home/100%%/service.env
# One signal to the server alone: it finishes what is being answered and ends its own processes.
KillMode=mixed
TimeoutStopSec=660
Restart=on-failure
RestartSec=5
# Wrong settings do not get better by starting again.
RestartPreventExitStatus=2
UMask=0077

[Install]
WantedBy=default.target
"""
# A stand-in for the system's program: it notes how it was called.
CONTROL = """#!/bin/sh
echo "$@" >> "{calls}"
case "$*" in *{fails}*) echo "cannot: no bus" >&2; exit 1;; *is-active*) echo active;; esac
"""
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="systemd is Linux's")


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder := tmp_path / "person").mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return folder


def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: str = "nothing-fails") -> Path:
    """Puts the stand-in into the path; gives the file of its calls."""
    calls = tmp_path / "calls"
    (folder := tmp_path / "bin").mkdir(exist_ok=True)
    (program := folder / "systemctl").write_text(CONTROL.format(calls=calls, fails=fails))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return calls


def test_the_unit_of_systemd_is_this_text() -> None:
    assert service_text(Service(Path("/srv/a home/100%"), "/opt/python"), Manager.SYSTEMD) == UNIT


def test_a_word_of_the_command_is_neither_split_nor_expanded() -> None:
    text = service_text(Service(Path('/srv/$HOME "x" \\y'), "/opt/python"), Manager.SYSTEMD)
    assert 'ExecStart="/opt/python" "-m" "openclaw_rl" "serve" "--home" "/srv/$$HOME \\"x\\" \\\\y"\n' in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    file = tmp_path / "openclaw-rl.service"
    file.write_text(service_text(Service(tmp_path / "a home 100%"), Manager.SYSTEMD))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert str(file.name) not in done.stderr, done.stderr


def test_the_agent_of_launchd_holds_these_facts() -> None:
    text = service_text(Service(Path("/Users/ann/a & b"), "/opt/python"), Manager.LAUNCHD)
    assert plistlib.loads(text.encode()) == {
        "Label": "openclaw-rl",
        "ProgramArguments": ["/opt/python", "-m", "openclaw_rl", "serve", "--home", "/Users/ann/a & b"],
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": 660,
        "Umask": 0o077,
        "StandardOutPath": "/Users/ann/a & b/service.log",
        "StandardErrorPath": "/Users/ann/a & b/service.log",
    }


def test_each_system_has_its_manager_and_others_are_refused() -> None:
    assert (manager_here("linux"), manager_here("darwin")) == (Manager.SYSTEMD, Manager.LAUNCHD)
    with pytest.raises(ConfigError, match="and this is win32"):
        manager_here("win32")


def test_a_service_of_an_odd_name_or_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot name a service"):
        Service(Path("/srv"), name="../evil")
    with pytest.raises(ConfigError, match="line break"):
        Service(Path("/srv/a\nExecStartPre=evil"))


@pytest.mark.parametrize("manager", Manager)
def test_what_would_be_written_is_shown_and_nothing_is_written(tmp_path: Path, person: Path, manager: Manager) -> None:
    shown = said("service", "install", "--print", "--manager", manager.value, "--home", str(tmp_path / "home"))
    service = Service(tmp_path / "home")
    assert service_text(service, manager) in shown
    assert str(service_file(service, manager)) in shown.replace("\n", "")
    assert "rm " in said("service", "uninstall", "--print", "--manager", manager.value)
    assert list(person.iterdir()) == []


@LINUX
def test_a_service_is_installed_shown_and_removed(
    tmp_path: Path, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = control(tmp_path, monkeypatch)
    file = person / ".config" / "systemd" / "user" / "mine.service"
    words = ("--name", "mine")
    assert "not installed" in said("service", "status", *words)
    said("service", "install", "--home", str(tmp_path / "home"), *words)
    assert file.read_text() == service_text(Service(tmp_path / "home", name="mine"), Manager.SYSTEMD)
    assert "active" in said("service", "status", *words)
    said("service", "install", "--home", str(tmp_path / "home"), *words)
    with pytest.raises(ConfigError, match="says something else"):
        said("service", "install", "--home", str(tmp_path / "other"), *words)
    said("service", "uninstall", *words)
    assert not file.exists()
    with pytest.raises(ConfigError, match="no service mine is installed"):
        said("service", "uninstall", *words)
    started = ["--user show-environment", "--user daemon-reload", "--user enable --now mine.service"]
    stopped = ["--user disable --now mine.service", "--user daemon-reload"]
    assert calls.read_text().splitlines() == [*started, "--user is-active mine.service", *started, *stopped]


@LINUX
def test_where_no_manager_runs_nothing_is_written(
    tmp_path: Path, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control(tmp_path, monkeypatch, fails="show-environment")
    with pytest.raises(ConfigError, match="runs no services for this user: cannot: no bus"):
        said("service", "install", "--home", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no systemctl"):
        said("service", "install", "--home", str(tmp_path / "home"))
    with pytest.raises(ConfigError, match="this system has no launchd"):
        said("service", "install", "--manager", "launchd")
    assert list(person.iterdir()) == []


def test_settings_that_would_keep_the_server_from_starting_are_said_first(tmp_path: Path, person: Path) -> None:
    (tmp_path / "config.toml").write_text("modle = 'x'")
    with pytest.raises(ConfigError, match="modle is not a setting"):
        said("service", "install", "--print", "--home", str(tmp_path))
    assert list(person.iterdir()) == []
