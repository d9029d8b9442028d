"""Node and OpenClaw from the npm registry, in a folder of their own that is kept between runs (about 650 MB)."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NODE = "24.21.0"  # OpenClaw wants 24.16 or later, or 26
OPENCLAW = "2026.9.6"
INSTALL_S = 900.0
PLUGIN = Path(__file__).parents[2] / "extensions" / "openclaw"


@dataclass(frozen=True, slots=True)
class Tools:
    """Where the two are."""

    node: Path
    openclaw: Path

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """For their processes: a home of its own, and nothing on the way but loopback."""
        path = f"{self.node.parent}{os.pathsep}{self.openclaw.parent}{os.pathsep}{os.environ['PATH']}"
        temporary = home / "tmp"
        temporary.mkdir(exist_ok=True)
        return {
            "PATH": path,
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "LANG": "C.UTF-8",
            "OPENCLAW_SKIP_CHANNELS": "1",
            "OPENCLAW_DISABLE_BONJOUR": "1",
            **more,
        }


def installed(folder: Path) -> Tools:
    """Both, installed where they are not there in the right version."""
    system = {"linux": "linux", "darwin": "darwin"}[sys.platform]
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine().lower()]
    package = f"node-{system}-{machine}"
    tools = Tools(
        folder / "node" / "node_modules" / package / "bin" / "node",
        folder / "app" / "node_modules" / ".bin" / "openclaw",
    )
    _install(folder / "node", f"{package}@{NODE}", tools.node)
    _install(folder / "app", f"openclaw@{OPENCLAW}", tools.openclaw)
    return tools


def packed(folder: Path, into: Path) -> Path:
    """A package of the folder as `npm pack` makes it."""
    _npm("pack", str(folder), "--pack-destination", str(into), cwd=into)
    return next(into.glob("*.tgz"))


def run_plugin_tests(node: str) -> None:
    """Node's own test runner on the plugin's folder."""
    done = subprocess.run([node, "--test"], cwd=PLUGIN, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def _install(folder: Path, package: str, program: Path) -> None:
    mark = folder / "installed"
    if program.exists() and mark.is_file() and mark.read_text("utf-8") == package:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}\n', "utf-8")
    print(f"installing {package} ...", file=sys.stderr, flush=True)
    _npm("install", "--ignore-scripts", "--no-audit", "--no-fund", package, cwd=folder)
    assert program.exists(), f"{package} brought no {program.name}"
    mark.write_text(package, "utf-8")


def _npm(*words: str, cwd: Path) -> None:
    npm = shutil.which("npm")
    assert npm, "npm is needed to install OpenClaw: it comes with any Node"
    done = subprocess.run([npm, *words], cwd=cwd, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
