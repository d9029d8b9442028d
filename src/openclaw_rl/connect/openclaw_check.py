"""OpenClaw's own opinion of its configuration, where OpenClaw is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

TIMEOUT_S = 180.0
LONGEST = 600  # letters of a complaint


def complaint(path: Path, *, program: str = "openclaw") -> str | None:
    """What `openclaw config validate` says against the file, "" where nothing; None where it cannot be asked."""
    found = shutil.which(program)
    if found is None:
        return None
    try:
        done = subprocess.run(
            [found, "config", "validate"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OPENCLAW_CONFIG_PATH": str(path)},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()[-LONGEST:] or f"code {done.returncode}"
