"""What happens to single files of a home folder in `benchmarks.owner`: gone, cut, turned, empty, in another's place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

NEWEST = "versions/shared.6"
MIDDLE = "versions/shared.3"
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
STATE, FACTS, MANIFEST = "trainer_state.safetensors", "trainer_state.json", "manifest.json"


def _gone(home: Path, name: str) -> None:
    path = home / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _cut(home: Path, name: str) -> None:
    data = (home / name).read_bytes()
    (home / name).write_bytes(data[: len(data) // 2])


def _turned(home: Path, name: str) -> None:
    data = bytearray((home / name).read_bytes())
    data[len(data) * 2 // 3] ^= 0xFF
    (home / name).write_bytes(bytes(data))


def _put(home: Path, name: str, text: str) -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text, "utf-8")


def _no_text(home: Path, name: str) -> None:
    (home / name).write_bytes(b"\xff\xfe\x00\x80")


def _folder(home: Path, name: str) -> None:
    (home / name).unlink()
    (home / name).mkdir()


def _of_another_process(home: Path) -> None:
    """As a killed server leaves it, whose number another process has by now."""
    _put(home, "server.json", json.dumps({"url": "http://127.0.0.1:9", "pid": 1}) + "\n")


def _unfinished(home: Path) -> None:
    shutil.copytree(home / NEWEST, home / "versions/shared.7.tmp")
    (home / "versions/shared.7.tmp" / MANIFEST).unlink()
    _put(home, "api_key.new", "half a key")


def _not_committed(home: Path) -> None:
    """A folder that has its name but whose row was never written: what a crash between the two leaves."""
    shutil.copytree(home / NEWEST, home / "versions/shared.7")
    path = home / "versions/shared.7" / MANIFEST
    held = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(held | {"version": "shared.7", "parent": "shared.6"}), "utf-8")


HARMS: dict[str, Callable[[Path], None]] = {
    "weights of a version gone": partial(_gone, name=f"{NEWEST}/{WEIGHTS}"),
    "weights of a version cut": partial(_cut, name=f"{NEWEST}/{WEIGHTS}"),
    "weights of a version turned": partial(_turned, name=f"{NEWEST}/{WEIGHTS}"),
    "weights of an early version turned": partial(_turned, name=f"{MIDDLE}/{WEIGHTS}"),
    "configuration of a version gone": partial(_gone, name=f"{NEWEST}/{CONFIG}"),
    "manifest of a version gone": partial(_gone, name=f"{NEWEST}/{MANIFEST}"),
    "manifest of a version cut": partial(_cut, name=f"{NEWEST}/{MANIFEST}"),
    "trainer's state gone": partial(_gone, name=f"{NEWEST}/{STATE}"),
    "trainer's state turned": partial(_turned, name=f"{NEWEST}/{STATE}"),
    "trainer's facts cut": partial(_cut, name=f"{NEWEST}/{FACTS}"),
    "folder of a version gone": partial(_gone, name=NEWEST),
    "folder of an early version gone": partial(_gone, name=MIDDLE),
    "all versions gone": partial(_gone, name="versions"),
    "a version that was never finished": _unfinished,
    "a version without a row": _not_committed,
    "key gone": partial(_gone, name="api_key"),
    "key empty": partial(_put, name="api_key", text=""),
    "key no text": partial(_no_text, name="api_key"),
    "key a folder": partial(_folder, name="api_key"),
    "other keys gone": partial(_gone, name="keys.json"),
    "other keys cut": partial(_cut, name="keys.json"),
    "use of keys cut": partial(_cut, name="keys_used.json"),
    "settings cut": partial(_put, name="config.toml", text='[train\nscopes = "sha'),
    "settings no text": partial(_no_text, name="config.toml"),
    "settings gone": partial(_gone, name="config.toml"),
    "address of another process": _of_another_process,
    "address no JSON": partial(_put, name="server.json", text="{"),
    "lock gone": partial(_gone, name="lock"),
    "lock a folder": partial(_folder, name="lock"),
    "store gone": partial(_gone, name="store.db"),
    "store empty": partial(_put, name="store.db", text=""),
    "store a folder": partial(_folder, name="store.db"),
    "store no database": partial(_put, name="store.db", text="This is no database at all.\n" * 400),
    "log of the store no log": partial(_put, name="store.db-wal", text="no log\n" * 1000),
}

# Harmless where it is not seen: what is made again by itself, or was left by a server that was killed.
UNSEEN = (
    "key gone",
    "other keys gone",
    "use of keys cut",
    "settings gone",
    "address of another process",
    "address no JSON",
    "lock gone",
    "log of the store no log",
)
SEEN = frozenset(HARMS) - frozenset(UNSEEN)
