"""What a person sees when something is wrong: one clear message, what to do, and an exit code."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from flow_parts import Served, scripted_model, start


def _run(*words: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    options = [] if home is None else ["--home", str(home)]
    environment = {**os.environ, "COLUMNS": "500", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "openclaw_rl", *words, *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )


def _refused(done: subprocess.CompletedProcess[str], *said: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "what to do:" in done.stderr
    for words in said:
        assert words in done.stderr


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    _refused(_run("serve", "--model", str(tmp_path / "none"), home=tmp_path / "home"), "there is no model folder")


def test_a_model_folder_that_is_broken(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}", "utf-8")
    _refused(_run("serve", "--model", str(model), home=tmp_path / "home"), "tokenizer.json")


def test_a_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = _run("serve", "--port", port, home=tmp_path / "home")
    _refused(done, f"cannot listen on 127.0.0.1:{port}")
    assert "opened engine" not in done.stderr  # which takes minutes for a large model


async def test_a_second_server_on_the_same_folder(tmp_path: Path, running: list[Served]) -> None:
    home = tmp_path / "home"
    async with scripted_model() as (_, config):
        running.append(server := await asyncio.to_thread(start, home, "--no-learn", config=config))
        port = server.url.rpartition(":")[2]
        done = await asyncio.to_thread(_run, "serve", "--port", "0", home=home)
        same = await asyncio.to_thread(_run, "serve", "--port", port, home=home)
        other = await asyncio.to_thread(_run, "serve", "--port", port, home=tmp_path / "other")
    assert "opened engine" in server.log.read_text("utf-8")
    _refused(done, "is in use by process", str(server.process.pid))
    assert "opened engine" not in done.stderr
    _refused(same, "is in use by process")  # the folder comes first
    _refused(other, f"cannot listen on 127.0.0.1:{port}")


def test_probe_tasks_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text('[publish]\ntasks = "nowhere.jsonl"\n', "utf-8")
    done = _run("serve", "--port", "0", home=tmp_path / "home")
    _refused(done, "nowhere.jsonl cannot be read")
    assert "opened engine" not in done.stderr


def test_a_store_that_is_no_database(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "store.db").write_bytes(b"not a database at all, " * 100)
    _refused(_run("serve", "--port", "0", home=home), "store.db")
    assert (home / "store.db").read_bytes().startswith(b"not a database")  # nothing was overwritten


@pytest.mark.parametrize("words", [("inspect",), ("versions",), ("rollback", "1")])
def test_a_home_without_a_store(tmp_path: Path, words: tuple[str, ...]) -> None:
    _refused(_run(*words, home=tmp_path / "nothing"), "holds no store")


def test_help_says_what_each_command_is_for() -> None:
    done = _run("--help")
    assert done.returncode == 0
    for command in ("serve", "demo", "inspect", "versions", "rollback", "export", "settings", "tiny"):
        assert command in done.stdout
