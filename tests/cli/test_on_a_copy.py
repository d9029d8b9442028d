"""No command changes anything outside the folder in hand: each is run on a copy, and the original compared with before.

The original seems to be served: this process holds its lock, and its server.json, which the copy has too, leads to a
listener that nobody may come to.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
from contextlib import aclosing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli import app, command_names
from openclaw_rl.core.hint import Hint, HintSource
from openclaw_rl.core.rights import Right
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import OpenClawRLError
from openclaw_rl.home.folder import Address, kept_key, note_address
from openclaw_rl.home.keys import add_key
from openclaw_rl.owner.inspection import export_to
from openclaw_rl.store.db import Store
from openclaw_rl.store.lock import FolderLock
from openclaw_rl.testing.folders import lived_in

TASKS = str(Path(__file__).parent.parent.parent / "examples" / "tasks" / "code")
LIBRARY = str(Path(__file__).parent.parent.parent / "examples" / "library")
ON_TASKS = ("--tasks", TASKS, "--env", "software", "--split", "all", "--home", "{home}")
# {out} is a folder of its own, {home} the copy, {session} and {turn} what the original has, {hint} a hint of its owner.
CALLS: dict[str, tuple[tuple[str, ...], ...]] = {
    "settings": (("settings",),),
    "init": (("init", "--model", "bundled", "--force", "--home", "{home}"),),
    "service install": (("service", "install", "--print", "--home", "{home}"),),
    "service uninstall": (("service", "uninstall"),),
    "service status": (("service", "status"),),
    "status": (("status", "--home", "{home}"), ("status", "--json", "--home", "{home}")),
    "top": (("top", "--once", "--home", "{home}"), ("top", "--once", "--json", "--home", "{home}")),
    "inspect": (("inspect", "--home", "{home}"), ("inspect", "--json", "--home", "{home}")),
    "turns": (("turns", "--home", "{home}"), ("turns", "{turn}", "--home", "{home}")),
    "export": (
        ("export", "{out}/records.jsonl", "--home", "{home}"),
        ("export", "{out}/anns.jsonl", "--user", "ann", "--home", "{home}"),
    ),
    "versions": (("versions", "--turns", "--home", "{home}"), ("versions", "--json", "--home", "{home}")),
    "rollback": (("rollback", "1", "--home", "{home}"),),
    "pin": (("pin", "1", "--home", "{home}"),),
    "unpin": (("unpin", "user-ann", "--home", "{home}"),),
    "freeze": (("freeze", "--home", "{home}"),),
    "unfreeze": (("unfreeze", "--home", "{home}"),),
    "plan": (("plan", "--model", "bundled", "--gpus", "0", "--memory", "64"),),
    "connect": (
        ("connect", "--list"),
        ("connect", "openclaw", "--no-test", "--file", "{out}/openclaw.json", "--home", "{home}"),
    ),
    "doctor": (("doctor", "--home", "{home}"), ("doctor", "--json", "--home", "{home}")),
    "check": (("check", "--home", "{home}"), ("check", "--repair", "--home", "{home}")),
    "forget": (
        ("forget", "--session", "{session}", "--dry-run", "--home", "{home}"),
        ("forget", "--session", "{session}", "--yes", "--no-remake", "--home", "{home}"),
        ("forget", "--turn", "{turn}", "--yes", "--no-remake", "--home", "{home}"),
    ),
    "hints list": (("hints", "list", "--home", "{home}"),),
    "hints add": (("hints", "add", "Be brief.", "--home", "{home}"),),
    "hints edit": (("hints", "edit", "{hint}", "Be brief.", "--home", "{home}"),),
    "hints retire": (("hints", "retire", "{hint}", "--home", "{home}"),),
    "hints remove": (("hints", "remove", "{hint}", "--home", "{home}"),),
    "tasks check": (("tasks", "check", TASKS, "--box", "plain"),),
    "tasks make-swe": (
        ("tasks", "make-swe", LIBRARY, "--box", "plain", "--most", "1", "--tries", "1", "--out", "{out}/swe"),
    ),
    "tasks make-screens": (("tasks", "make-screens", "{out}/screens", "--train", "1", "--test", "1"),),
    "pool status": (("pool", "status", "--home", "{home}"), ("pool", "status", "--json", "--home", "{home}")),
    "pool drain": (("pool", "drain", "--home", "{home}"),),
    "rollout": (("rollout", *ON_TASKS),),
    "train-agent": (("train-agent", *ON_TASKS),),
    "eval tasks": (("eval", "tasks", *ON_TASKS),),
    "keys add": (("keys", "add", "bob", "--home", "{home}"),),
    "keys list": (("keys", "list", "--home", "{home}"),),
    "keys revoke": (("keys", "revoke", "ann", "--home", "{home}"),),
}
# These load a model or start a server; `make bench-owner` calls them, too.
WITH_A_MODEL = {"serve", "demo", "diff", "replay", "eval personalization", "eval wishes", "eval judge", "eval wordings"}
WITH_A_MODEL |= {"tiny agent", "tiny agent-tasks", "tiny build", "tiny judge", "tiny score", "pool serve"}
# The copy has no server, whatever its server.json says.
REFUSED = {
    "connect openclaw": "no server runs on",
    "service uninstall": "is installed",
    "pool status": "no pool runs on",
    "pool drain": "no pool runs on",
    **dict.fromkeys(("rollout --tasks", "train-agent --tasks", "eval tasks"), "no server runs on"),
}


def bytes_of(*folders: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path): ("" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for folder in folders
        for path in (folder, *sorted(folder.rglob("*")))
    }


async def filled(home: Path, records: Path) -> dict[str, str]:
    """An original: turns, versions, hints, keys, a pin, and records that were exported out of it."""
    await lived_in(home)
    store = await Store.open(home)
    hint = await store.hints.adopt("ann", Hint("Call me Ann.", HintSource.OWNER), at_s=6.0, why="added by hand")
    await store.orders.pin(PolicyVersion("user-ann", 0), at_s=7.0)
    (turn, *_) = [row.turn for row in await store.history(limit=1)]
    await store.aclose()
    add_key(home, "ann", frozenset({Right.CHAT}))
    kept_key(home)
    await export_to(home, records / "all.jsonl")
    return {"hint": hint.id, "turn": turn.id, "session": turn.session}


def test_every_command_is_called_on_a_copy_here_or_loads_a_model() -> None:
    assert set(command_names()) == CALLS.keys() | WITH_A_MODEL


def test_no_command_changes_anything_outside_the_folder_in_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, records, person = (tmp_path / name for name in ("original", "records", "person"))
    for folder in (records, person):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(person))
    facts = asyncio.run(filled(original, records))
    lock = FolderLock(original)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        note_address(original, Address(f"http://127.0.0.1:{listener.getsockname()[1]}", os.getpid()))
        listener.settimeout(0.0)
        before = bytes_of(original, records, person)
        for words in (call for every in CALLS.values() for call in every):
            done = on_a_copy(words, original, tmp_path, facts)
            with pytest.raises(BlockingIOError):  # nobody came
                listener.accept()
            assert bytes_of(original, records, person) == before, words
            refused = REFUSED.get(" ".join(words[:2]))
            assert refused is None or refused in done, words
    lock.free()


def on_a_copy(words: tuple[str, ...], original: Path, place: Path, facts: dict[str, str]) -> str:
    """What the command says on a fresh copy; it ends well, or says what is wrong and what to do."""
    home, out = place / "copy", place / "out"
    for folder in (home, out):
        shutil.rmtree(folder, ignore_errors=True)
    out.mkdir()
    shutil.copytree(original, home)
    values = {"home": str(home), "out": str(out), **facts}
    done = CliRunner().invoke(app, [word.format(**values) for word in words])
    if isinstance(done.exception, OpenClawRLError):
        assert done.exception.fix, words
        assert " ".join(words[:2]) in REFUSED, str(done.exception)
        return done.exception.problem
    assert done.exit_code in (0, 1), (words, done.output, done.exception)
    assert done.exit_code == 0 or words[0] == "doctor", (words, done.output)
    return done.output


def test_what_is_forgotten_in_a_copy_is_gone_there_and_stays_in_the_original(tmp_path: Path) -> None:
    (records := tmp_path / "records").mkdir()
    original = tmp_path / "original"
    facts = asyncio.run(filled(original, records))
    on_a_copy(CALLS["forget"][1], original, tmp_path, facts)
    left = {home: turns_and_versions(tmp_path / home) for home in ("original", "copy")}
    assert left == {"original": (14, ["shared.1", "shared.2"]), "copy": (7, [])}


def turns_and_versions(home: Path) -> tuple[int, list[str]]:
    async def main_turns() -> int:
        async with aclosing(await Store.open(home)) as store:
            return (await store.counts())["main"]

    return asyncio.run(main_turns()), sorted(path.name for path in (home / "versions").iterdir())
