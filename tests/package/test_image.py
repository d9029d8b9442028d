"""Both Dockerfiles, built and run by the container engine that IMAGE_ENGINE names: `make test-image ENGINE=docker`.

The engine has to have their base image or reach a registry. BUILD_ARGS are more options of its build, as a volume with
pip's configuration. buildah is run with chroot isolation, which needs no rights that a container has not.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ENGINE = os.environ.get("IMAGE_ENGINE", "")
BUILD_ARGS = shlex.split(os.environ.get("BUILD_ARGS", ""))
URL = "http://127.0.0.1:30000"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not ENGINE, reason="IMAGE_ENGINE names no container engine"),
]


def run(*words: str) -> str:
    """What the engine prints."""
    done = subprocess.run([ENGINE, *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.strip()


def command_of(file: str) -> list[str]:
    """ENTRYPOINT and CMD as the file has them: buildah's `run` heeds neither."""
    lines = (ROOT / file).read_text("utf-8").splitlines()
    found = [line.split(" ", 1)[1] for kind in ("ENTRYPOINT", "CMD") for line in lines if line.startswith(f"{kind} ")]
    return [word for part in found for word in shlex.split(part.strip("[]").replace(",", " "))]


@contextmanager
def running(image: str, file: str) -> Iterator[subprocess.Popen[bytes]]:
    if ENGINE == "buildah":
        name = run("from", "--pull-never", image)
        words = ["run", "--network", "host", "--isolation", "chroot", "--user", "rl", name, "--", *command_of(file)]
    else:
        name = "openclaw-rl-test-image"
        words = ["run", "--rm", "--name", name, "-p", "127.0.0.1:30000:30000", image]
    process = subprocess.Popen([ENGINE, *words])
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
        force = [] if ENGINE == "buildah" else ["--force"]
        subprocess.run([ENGINE, "rm", *force, name], check=False, capture_output=True)


@pytest.mark.parametrize("file", ["Dockerfile", "Dockerfile.cuda"])
def test_an_image_is_built_and_serves(file: str) -> None:
    image = f"openclaw-rl-test-{file.lower().replace('.', '-')}"
    isolation = ["--network", "host", "--isolation", "chroot"] if ENGINE == "buildah" else []
    run("build", *isolation, *BUILD_ARGS, "-t", image, "-f", str(ROOT / file), str(ROOT))
    with running(image, file) as process:
        until = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(f"{URL}/healthz", timeout=5) as answer:
                    assert b'"ok"' in answer.read()
                    break
            except (urllib.error.URLError, ConnectionError):
                assert process.poll() is None and time.monotonic() < until
                time.sleep(1)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{URL}/v1/rl/status", timeout=5)
