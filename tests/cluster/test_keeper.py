"""What keeps a process on a node: it ends with whoever asked for it, with all its children. No Ray needed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from openclaw_rl.cluster import keeper, node
from openclaw_rl.cluster.node import NodeActor, digest_of
from openclaw_rl.testing.ray_nodes import is_alive

SOURCE = Path(keeper.__file__).read_text("utf-8")
# An actor that is killed: it starts a keeper as NodeActor.start does, and says what that said.
ACTOR = """
import subprocess, sys, time
kept = subprocess.Popen([sys.executable, "-c", {source!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
kept.stdin.write({asked!r}.encode() + b"\\n"); kept.stdin.flush()
print(kept.stdout.readline().decode(), end="", flush=True)
time.sleep(600)
"""


def gone(pids: list[int], folder: Path) -> None:
    until = time.monotonic() + 30
    while (any(map(is_alive, pids)) or folder.exists()) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(is_alive, pids)) and not folder.exists()


def asked(folder: Path, *command: str) -> str:
    return json.dumps({"command": command, "environment": {"SAID": "yes"}, "folder": str(folder)})


@pytest.mark.parametrize("ends", ["stdin is closed", "the actor is killed"])
def test_a_process_and_its_children_end_with_the_actor(tmp_path: Path, ends: str) -> None:
    folder, children = tmp_path / "sent", tmp_path / "children"
    folder.mkdir()
    # deaf to SIGTERM, and with a child that is as deaf
    script = f"trap '' TERM; echo $SAID > {tmp_path / 'said'}; sleep 600 & echo $! > {children}.new; "
    script += f"mv {children}.new {children}; wait"
    words = asked(folder, "sh", "-c", script)
    actor = subprocess.Popen(
        [sys.executable, "-c", ACTOR.format(source=SOURCE.replace("END_S = 10.0", "END_S = 0.2"), asked=words)],
        stdout=subprocess.PIPE,
    )
    assert actor.stdout is not None
    pid = json.loads(actor.stdout.readline())["pid"]
    while not children.exists():
        time.sleep(0.01)
    child = int(children.read_text())
    assert is_alive(pid) and is_alive(child) and (tmp_path / "said").read_text() == "yes\n"
    actor.send_signal(signal.SIGKILL if ends == "the actor is killed" else signal.SIGTERM)
    actor.wait()
    actor.stdout.close()
    gone([pid, child], folder)


def test_how_a_process_ended_is_said_and_what_it_left_is_ended(tmp_path: Path) -> None:
    folder = tmp_path / "sent"
    folder.mkdir()
    kept = subprocess.Popen([sys.executable, "-c", SOURCE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert kept.stdin is not None and kept.stdout is not None
    kept.stdin.write(asked(folder, "sh", "-c", f"sleep 600 & echo $! > {tmp_path / 'left'}; exit 7").encode() + b"\n")
    kept.stdin.flush()
    pid = json.loads(kept.stdout.readline())["pid"]
    assert json.loads(kept.stdout.readline()) == {"ended": "exit code 7"}
    kept.communicate()
    gone([pid, int((tmp_path / "left").read_text())], folder)


def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    kept = subprocess.run(
        [sys.executable, "-c", SOURCE],
        input=asked(tmp_path / "sent", "/no/such/python").encode() + b"\n",
        capture_output=True,
        check=True,
    )
    assert "/no/such/python cannot be started" in json.loads(kept.stdout)["problem"]


async def test_files_that_are_not_on_a_node_are_sent_once_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    there = tmp_path / "there"
    (there / "inner").mkdir(parents=True)
    (there / "config.json").write_text("{}")
    (there / "inner" / "weights").write_bytes(bytes(range(256)))
    names = ("config.json", "inner/weights")
    digest = digest_of(there, names)
    node = NodeActor(SOURCE)
    for is_kept in (False, True):
        assert await node.found(str(there), names, digest, is_kept) == str(there)  # a disk that both read
        assert await node.found("/elsewhere", names, digest, is_kept) == ""
        for name in names:
            data = (there / name).read_bytes()
            for piece in (data[:100], data[100:]):
                await node.write(digest, name, piece, is_kept)
        place = await node.finish("/elsewhere", names, digest, is_kept)
        assert Path(place).name == "elsewhere" and digest_of(Path(place), names) == digest
        assert await node.found("/elsewhere", names, digest, is_kept) == place
    await node.forget(digest)
    assert await node.found("/elsewhere", names, digest, False) == ""
    await node.write(digest, names[0], b"other", False)
    await node.write(digest, names[1], b"bytes", False)
    with pytest.raises(ValueError, match="not those that were sent"):
        await node.finish("/elsewhere", names, digest, False)
    # the same names with other contents at the same path are other files
    (there / "config.json").write_text("[]")
    assert await node.found(str(there), names, digest, False) == ""
    await node.end()
    assert await NodeActor(SOURCE).found("/elsewhere", names, digest, True) == place  # what is kept outlasts it


async def test_without_ray_the_start_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from openclaw_rl.cluster.client import Cluster
    from openclaw_rl.cluster.roles import Group
    from openclaw_rl.errors import ConfigError

    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError('no ray', name='ray')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(ConfigError, match=r"Ray is not installed here. Run `pip install 'openclaw-rl\[ray\]'`"):
        await Cluster.join("auto", [Group("policy", 1)])


# A process that has a folder as an actor has, until it is killed.
HOLDER = """
import time
from openclaw_rl.cluster.node import own_folder
folder, lock = own_folder()
(folder / "sent").write_text("much")
print(folder, flush=True)
time.sleep(600)
"""


def ended(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert holder.stdout is not None
    holder.stdout.close()


def test_what_a_killed_actor_left_is_removed_by_the_next_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setattr(node, "CACHE", cache)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    holders = [subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = [Path(holder.stdout.readline().strip()) for holder in holders if holder.stdout is not None]
    coming = [cache / f"{folder.name}-abc" for folder in folders]
    coming.append(cache / "openclaw-rl-node-elsewhere-abc")  # of another node that shares the cache
    for folder in (*coming, cache / "abc", tmp_path / "openclaw-rl-node-making"):  # the last has no lock yet
        folder.mkdir(parents=True)
    ended(holders[0])
    try:
        own, handle = node.own_folder()
        node.remove_left()
        assert not folders[0].exists() and not coming[0].exists()
        stay = (folders[1] / "sent", *coming[1:], cache / "abc", tmp_path / "openclaw-rl-node-making", own)
        assert all(path.exists() for path in stay)
        os.close(handle)
    finally:
        ended(holders[1])


# Writes down what it does when it is asked to end.
SAYS_HOW = """
import os, pathlib, signal, time
file = pathlib.Path(os.environ["FILE"])
file.with_suffix(".new").write_text(str(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL))
file.with_suffix(".new").rename(file)
time.sleep(600)
"""


async def test_a_folder_is_in_use_while_the_keeper_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    actor = NodeActor(SOURCE)
    folder = actor._folder
    await actor.start(["", "-c", SAYS_HOW], {"FILE": str(tmp_path / "how")})
    while not (tmp_path / "how").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    os.close(actor._lock)  # as if the actor were gone
    node.remove_left()
    assert folder.exists()
    await actor.end()
    assert not folder.exists() and await actor.wait()
    assert (tmp_path / "how").read_text() == "True"  # it ends as soon as it is asked to
    assert actor._process is not None
    await actor._process.wait()  # and its pipes are closed
