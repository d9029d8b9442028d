"""Whether an installation can run: libraries, folder, disk, key, port and model. Nothing is loaded or changed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from openclaw_rl.config import Config
from openclaw_rl.core.adapter import BULK
from openclaw_rl.core.finding import Finding, Level
from openclaw_rl.core.manifest import versions_folder
from openclaw_rl.errors import ModelError, StoreError
from openclaw_rl.home.folder import KEY, check_key
from openclaw_rl.home.keys import kept_keys
from openclaw_rl.home.models import model_folder, named_ends
from openclaw_rl.render.ends import ends_of_replies
from openclaw_rl.render.template import read_template

LIBRARIES = ("openclaw-rl", "torch", "transformers", "peft", "llguidance", "tokenizers", "aiohttp", "msgspec", "jinja2")
LOCAL = frozenset({"torch", "transformers", "peft", "llguidance"})  # come with the extra `local`
LEAST_BYTES = 256 << 20
VERSIONS_AHEAD = 3  # a version is written next to the one it comes from, with the optimiser's state
WRITABLE = "make it writable before a server starts on it, or name another with --home; commands that only read work"


def libraries() -> dict[str, str | None]:
    """The versions of what this program needs; None for missing ones."""
    found: dict[str, str | None] = {"python": sys.version.split()[0]}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def installation_findings(config: Config, *, is_live: bool) -> tuple[Finding, ...]:
    """What would keep the server from starting or continuing."""
    found = [*_missing(), *_home(config.home), *_disk(config.home), *_key(config), *_others(config.home)]
    if not is_live:
        found += _port(config.serve.host, config.serve.port)
    return (*found, *_model(config.model))


def _missing() -> Iterator[Finding]:
    found = libraries()
    missing = [name for name, number in found.items() if number is None]
    if LOCAL & set(missing):
        yield Finding(
            Level.MEND,
            "install",
            f"{', '.join(missing)} cannot be found",
            'install it with pip install "openclaw-rl[local]"',
        )
    elif missing:
        yield Finding(Level.MEND, "install", f"{', '.join(missing)} cannot be found", "install openclaw-rl again")
    else:
        yield Finding(Level.OK, "install", ", ".join(f"{name} {number}" for name, number in found.items()))


def _home(home: Path) -> Iterator[Finding]:
    place = _existing(home)
    if not os.access(place, os.W_OK | os.X_OK) or not place.is_dir():
        yield Finding(Level.MEND, "home", f"{place} cannot be written", WRITABLE)
    elif place != home:
        yield Finding(Level.NOTE, "home", f"{home} is not there yet; it is made at the first start")
    else:
        yield Finding(Level.OK, "home", f"{home} can be written")


def home_findings(home: Path) -> tuple[Finding, ...]:
    """Problems of a running server's folder."""
    return tuple(item for item in (*_home(home), *_disk(home)) if item.level is Level.MEND)


def _disk(home: Path) -> Iterator[Finding]:
    free, wanted = free_bytes(home), wanted_bytes(home)
    if free < wanted:
        yield Finding(
            Level.MEND,
            "home",
            f"the disk of {home} has {_size(free)} left, and the next versions need {_size(wanted)}",
            "free space; what was acknowledged is safe, but nothing new can be stored",
        )
    else:
        yield Finding(Level.OK, "home", f"{_size(free)} are free on its disk")


def free_bytes(home: Path) -> int:
    """The free space on the disk of this folder."""
    return shutil.disk_usage(_existing(home)).free


def wanted_bytes(home: Path) -> int:
    """The space that the next versions will need, from the size of the newest one.

    A version being written is renamed when complete: a path that has disappeared counts 0.
    """
    folder = versions_folder(home)
    folders = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    latest = sorted(folders, key=_changed, reverse=True)
    newest = next((path for path in latest if any(path.glob(BULK))), None)  # pruned versions are almost empty
    size = 0 if newest is None else sum(_bytes_of(path) for path in _all_files(newest))
    return max(LEAST_BYTES, VERSIONS_AHEAD * size)


def _all_files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.rglob("*") if path.is_file()]
    except FileNotFoundError:
        return []


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _key(config: Config) -> Iterator[Finding]:
    path = config.home / KEY
    if config.serve.api_key:
        yield Finding(Level.OK, "key", "the API key is the one given in the environment or on the command line")
        return
    try:
        kept = check_key(config.home)
    except StoreError as problem:
        yield Finding(Level.MEND, "key", problem.problem, problem.fix)
        return
    if kept is None:
        yield Finding(Level.NOTE, "key", "there is no API key yet; the first start makes one")
    elif path.stat().st_mode & 0o077:
        yield Finding(Level.MEND, "key", f"{path} can be read by others", f"chmod 600 {path}")
    else:
        yield Finding(Level.OK, "key", f"clients bring the key in {path}")


def _others(home: Path) -> Iterator[Finding]:
    try:
        kept_keys(home)
    except StoreError as problem:
        yield Finding(Level.MEND, "key", f"others cannot connect: {problem.problem}", problem.fix)


def _port(host: str, port: int) -> Iterator[Finding]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as problem:
            yield Finding(
                Level.MEND,
                "port",
                f"cannot listen on {host}:{port}: {problem.strerror or problem}",
                "stop what listens there, or serve on another --port",
            )
            return
    yield Finding(Level.OK, "port", f"{host}:{port} is free")


def _model(name: str) -> Iterator[Finding]:
    """Checks the names of the model's files and its configuration; reads no weights, downloads nothing."""
    if _is_of_hub(name):
        yield Finding(Level.NOTE, "model", f"{name} is fetched from the hub, or taken from its cache, at the start")
        return
    try:
        folder = model_folder(name)
        ends_of_replies(read_template(folder), named_ends(folder))
        _check_weights(folder)
        _check_configuration(folder)
    except ModelError as problem:
        yield Finding(Level.MEND, "model", problem.problem, problem.fix)
    else:
        yield Finding(Level.OK, "model", f"{name} has its configuration, tokenizer, chat template and weights")


def _check_weights(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.is_file():
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelError(f"{folder} lacks {', '.join(missing)}", fix="copy or download the model folder again")


def _check_configuration(folder: Path) -> None:
    try:
        from transformers import AutoConfig
    except ImportError:
        return  # missing packages are reported elsewhere
    try:
        AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as problem:
        if "custom code" in str(problem):
            raise ModelError(
                f"{folder} needs Python code from its own folder, which is never run",
                fix="use a model that transformers supports without extra code",
            ) from problem
        first = str(problem).strip().partition("\n")[0]
        raise ModelError(f"{folder / 'config.json'} cannot be used: {first}", fix="upgrade transformers") from problem


def _is_of_hub(name: str) -> bool:
    return name.count("/") == 1 and not name.startswith((".", "/", "~")) and not Path(name).exists()


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"
