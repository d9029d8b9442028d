"""Commands on a folder whose disk takes nothing more: each says so and what to do, and what is stored stays sound."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli import app, main
from openclaw_rl.store.connection import SCHEMA_VERSION
from openclaw_rl.store.db import Store
from openclaw_rl.testing.folders import lived_in
from openclaw_rl.testing.turns import a_turn

COMMANDS = (
    ("serve", "--port", "0"),
    ("serve", "--port", "0", "--no-learn"),
    ("inspect",),
    ("versions",),
    ("hints", "list"),
    ("hints", "add", "Be brief."),
    ("keys", "add", "ann"),
    ("rollback", "0"),
    ("pin", "0"),
    ("freeze",),
    ("check",),
    ("check", "--repair"),
    ("forget", "--user", "ann", "--yes"),
    ("export", "{home}/out.jsonl"),
)


READING = (
    ("inspect", "--json"),
    ("turns",),
    ("turns", "one0"),
    ("versions",),
    ("hints", "list"),
    ("check",),
)


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """A folder with a store and a key, as a server that was stopped leaves it."""
    made = tmp_path / "home"
    store = await Store.open(made)
    await store.aclose()
    (made / "api_key").write_text("sk-openclaw-kept\n", "utf-8")
    return made


def _run(*words: str, home: Path, limit: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    """What a command says: in this process, but for those that serve or look at the machine."""
    arguments = ["openclaw_rl", *(word.format(home=home) for word in words), "--home", str(home)]
    if words[0] not in ("serve", "doctor"):
        return _run_here(arguments, limit)
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=limit,
        env={**os.environ, "COLUMNS": "500", "OMP_NUM_THREADS": "1"},
    )


def _run_here(arguments: list[str], limit: Callable[[], None] | None) -> subprocess.CompletedProcess[str]:
    out, err, size = StringIO(), StringIO(), resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", arguments)
        patch.setenv("COLUMNS", "500")
        with pytest.raises(SystemExit) as ended:
            try:
                if limit is not None:
                    limit()
                main()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, size)
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), out.getvalue(), err.getvalue())


def _no_bytes() -> None:
    """No file of the process can grow: writing gives EFBIG where a full disk gives ENOSPC."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _bytes_of(home: Path) -> dict[str, bytes]:
    passing = ("lock", "keys.lock", "store.db-shm", "store.db-wal")  # what a command makes in passing, empty
    return {path.name: path.read_bytes() for path in home.iterdir() if path.is_file() and path.name not in passing}


@contextmanager
def _mounted(place: Path, *options: str) -> Iterator[None]:
    """A small disk of its own; skips where this user may not mount one."""
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(place)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("only root can mount a disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _closed(place: Path) -> None:
    """From now on nothing can be written there, not even by root."""
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)


def _fill(place: Path) -> None:
    with contextlib.suppress(OSError), (place / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


def _said(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and "what to do:" in done.stderr, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_where_nothing_can_be_written_says_so(home: Path, words: tuple[str, ...]) -> None:
    before = _bytes_of(home)
    _said(_run(*words, home=home, limit=_no_bytes), "cannot be written", "disk is full", "ree some space")
    assert _bytes_of(home) == before


def test_commands_on_a_disk_that_is_full(home: Path, tmp_path: Path) -> None:
    with _mounted(tmp_path / "small", "-o", "size=1m"):
        small = Path(shutil.copytree(home, tmp_path / "small" / "home"))
        before = _bytes_of(small)
        _fill(tmp_path / "small")
        for words in COMMANDS:
            _said(_run(*words, home=small), "cannot be written", "disk is full", "ree some space")
        found = _run("doctor", home=small)
        assert found.returncode == 1 and "Traceback" not in found.stderr
        assert "store.db is whole" in found.stdout and "backup" not in found.stdout
        assert "0 MiB left" in found.stdout and "free space" in found.stdout
        assert _bytes_of(small) == before
        (tmp_path / "small" / "filler").unlink()
        done = _run("inspect", home=small)
        assert done.returncode == 0, done.stderr


def test_commands_on_a_disk_that_is_mounted_read_only(home: Path, tmp_path: Path) -> None:
    with _mounted(tmp_path / "small", "-o", "size=8m"):
        small = Path(shutil.copytree(home, tmp_path / "small" / "home"))
        _closed(tmp_path / "small")
        for words in COMMANDS:
            if words in (("inspect",), *READING):
                continue
            if words[0] == "export":
                _said(_run(*words, home=small), "out.jsonl cannot be written", "name another folder")
                continue
            _said(_run(*words, home=small), "cannot be written", "read-only", "mount it writable")
        found = _run("doctor", home=small)
        assert "store.db is whole" in found.stdout and "backup" not in found.stdout, found.stdout
        assert "Traceback" not in found.stderr


def _read(*words: str, home: Path) -> tuple[str, str]:
    """What a command wrote, and what it said beside it; nothing of the folder's place in it."""
    done = CliRunner().invoke(app, [*(word.format(home=home) for word in words), "--home", str(home)])
    assert done.exit_code == 0, (words, done.stderr, done.exception)
    return done.stdout.replace(str(home), ""), done.stderr


def test_reading_commands_work_on_a_disk_that_is_mounted_read_only(tmp_path: Path) -> None:
    asyncio.run(lived_in(tmp_path / "home"))
    (tmp_path / "prompts").write_text("Hello.\n", "utf-8")
    diff = ("diff", "0", "0", "--json", "--max-tokens", "1", "--prompts", str(tmp_path / "prompts"))
    said = {words: _read(*words, home=tmp_path / "home")[0] for words in (*READING, diff)}
    with _mounted(tmp_path / "small", "-o", "size=8m"):
        small = Path(shutil.copytree(tmp_path / "home", tmp_path / "small" / "home"))
        _closed(tmp_path / "small")
        for words in (*READING, diff):
            assert _read(*words, home=small)[0] == said[words]
        assert "`openclaw-rl forget` will not clean it" in _read("export", str(tmp_path / "o"), home=small)[1]
        assert len((tmp_path / "o").read_text("utf-8").splitlines()) == 14


@pytest.mark.parametrize("has_index", [True, False])
async def test_what_lies_in_the_log_alone_is_read_or_missed_aloud(tmp_path: Path, has_index: bool) -> None:
    store = await Store.open(tmp_path / "home")
    await store.add_turn(a_turn("t"), chain="c")
    with _mounted(tmp_path / "small", "-o", "size=8m"):
        small = Path(shutil.copytree(tmp_path / "home", tmp_path / "small" / "home"))
        await store.aclose()
        assert (small / "store.db-wal").stat().st_size
        if not has_index:
            (small / "store.db-shm").unlink()
        _closed(tmp_path / "small")
        done = await asyncio.to_thread(_run, "turns", "--json", home=small)
        if has_index:
            assert done.returncode == 0 and '"id": "t"' in done.stdout, done.stderr
        else:
            _said(done, "store.db-wal holds the latest commits", "copy the whole folder to a writable disk")


def test_an_older_store_that_cannot_be_written_is_refused_with_what_to_do(tmp_path: Path) -> None:
    asyncio.run(lived_in(tmp_path / "home"))
    with _mounted(tmp_path / "small", "-o", "size=8m"):
        small = Path(shutil.copytree(tmp_path / "home", tmp_path / "small" / "home"))
        with closing(sqlite3.connect(small / "store.db", isolation_level=None)) as sql:
            sql.execute(f"PRAGMA user_version={SCHEMA_VERSION - 1}")
        _closed(tmp_path / "small")
        for words in (("inspect",), ("check",)):
            _said(_run(*words, home=small), "older version of openclaw-rl", "start the server once")
