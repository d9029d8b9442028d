"""Boxes of docker, against a strict stand-in for its command line: no engine is needed, and none is proved by it."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_rl.envs.box.docker import DockerBoxes
from openclaw_rl.envs.box.sandbox import BoxSpec, KilledBy
from openclaw_rl.errors import BoxError

FAKE = Path(__file__).parent / "fake_engine.py"


@pytest.fixture
async def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DockerBoxes]:
    """Docker, with one image."""
    for name in ("bin", "images/debian", "containers"):
        (tmp_path / name).mkdir(parents=True)
    program = tmp_path / "bin" / "docker"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(FAKE))} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_ENGINE", str(tmp_path))
    boxes = await DockerBoxes.open("docker")
    yield boxes
    await boxes.aclose()
    assert [*(tmp_path / "containers").iterdir()] == []
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["debian"]


SPEC = BoxSpec(base="debian", env={"OWN": "1"})


async def test_commands_files_and_forks(docker: DockerBoxes, tmp_path: Path) -> None:
    box = await docker.create(SPEC)
    done = await box.exec("cat; echo wrong >&2; exit 3", timeout_s=20, stdin=b"told", env={"MORE": "2"})
    assert (done.exit_status, done.stdout.text, done.stderr.text) == (3, "told", "wrong\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "data").write_bytes(bytes(range(256)))
    await box.upload(tmp_path / "in", "deep/files")
    assert await box.read("deep/files/data") == bytes(range(256))
    await box.write("kept", b"first", mode=0o755)
    fork = await box.fork()
    await fork.write("kept", b"second")
    assert (await box.read("kept"), await fork.read("kept")) == (b"first", b"second")
    await fork.download("deep", tmp_path / "out")
    assert (tmp_path / "out" / "files" / "data").read_bytes() == bytes(range(256))
    await fork.reset()
    assert await fork.read("kept") == b"first"
    with pytest.raises(FileNotFoundError):
        await box.read("nothing")
    assert (await box.stats()).processes == 1


async def test_a_command_that_takes_too_long_is_killed_by_its_mark(docker: DockerBoxes) -> None:
    box = await docker.create(SPEC)
    done = await box.exec("sleep 600 & echo begun; sleep 601", timeout_s=1.0)
    assert (done.killed_by, done.stdout.text) == (KilledBy.TIMEOUT, "begun\n")


async def test_a_shell_reports_beside_what_it_prints(docker: DockerBoxes) -> None:
    box = await docker.create(SPEC)
    shell = await box.open_shell()
    first = await shell.run("mkdir deep; cd deep; A=3; echo out; echo err >&2; false", timeout_s=20)
    assert (first.exit_status, first.output.text) == (1, "out\nerr\n")
    assert (await shell.run("echo $A; basename $PWD", timeout_s=20)).output.text == "3\ndeep\n"
    await shell.aclose()


async def test_an_image_is_made_from_a_folder(docker: DockerBoxes, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian\n")
    image = await docker.build_image(tmp_path, timeout_s=20)
    assert image is not None
    await docker.create(BoxSpec(base=image))


async def test_what_the_engine_refuses_is_told_in_its_words(docker: DockerBoxes, tmp_path: Path) -> None:
    with pytest.raises(BoxError, match="Unable to find image 'none'"):
        await docker.create(BoxSpec(base="none"))
    with pytest.raises(BoxError, match="needs an image"):
        await docker.create(BoxSpec())
    box = await docker.create(SPEC)
    shutil.move(tmp_path / "containers" / box.id, tmp_path / "away")
    with pytest.raises(BoxError, match="is gone"):
        await box.exec("true", timeout_s=20)
    shutil.move(tmp_path / "away", tmp_path / "containers" / box.id)


async def test_an_engine_that_is_not_there_says_so() -> None:
    with pytest.raises(BoxError, match="no-such-engine is not installed"):
        await DockerBoxes.open("no-such-engine")
