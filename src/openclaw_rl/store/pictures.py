"""Screenshots of episodes: PNG files in the home folder, a folder for each episode, outside the store's own file.

A picture belongs to a step in the store. `sweep` removes those that belong to none; above the most bytes the oldest
pictures are removed. Writes are not synced to disk: a power cut may lose the last ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import struct
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.core.disk import FRESH, unwritable, write_whole
from openclaw_rl.core.inside import remove
from openclaw_rl.errors import RequestError
from openclaw_rl.store.codec import plain
from openclaw_rl.store.threads import Reader, Transaction, Writer

FOLDER = "pictures"
MOST_PICTURE_BYTES = 4 << 20  # of one
MOST_SIDE = 8192  # pixels
DEFAULT_BYTES = 512 << 20  # of all
ROOM = 0.9  # of the most bytes: how much is left after old ones were removed
TRIES = 2  # a concurrent sweep may remove an empty folder or an unfinished file
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BEFORE, _AFTER = ".png", ".after.png"


@dataclass(frozen=True, slots=True)
class PictureName:
    """Names a picture: the screen before a step or, with `is_after`, after it."""

    episode: str
    step: int
    is_after: bool = False

    @property
    def path(self) -> Path:
        """Its file, relative to the folder of pictures. The path does not contain the episode's id."""
        return Path(_folder_of(self.episode)) / f"{self.step}{_AFTER if self.is_after else _BEFORE}"


class PictureBook:
    """The pictures of an installation. `most_bytes` of all of them together; 0 keeps none."""

    def __init__(self, home: Path, writer: Writer, reader: Reader, *, most_bytes: int = DEFAULT_BYTES) -> None:
        self._home = home
        self._writer = writer
        self._reader = reader
        self._most_bytes = most_bytes
        self._bytes: int | None = None  # of all; None if it must be counted
        self._counting = asyncio.Lock()

    async def keep(self, name: PictureName, data: bytes) -> None:
        """Keeps a PNG; it replaces another one of the same name.

        Raises RequestError: 413 for one that is too large, 400 for one that is damaged, 404 if the episode took no such
        step, 409 if none are kept. Raises DiskError if it cannot be written; then nothing of it is left.
        """
        if not self._most_bytes:
            raise RequestError("this server keeps no pictures", fix="set store.pictures_mb", status=409)
        if len(data) > min(MOST_PICTURE_BYTES, self._most_bytes):
            most = min(MOST_PICTURE_BYTES, self._most_bytes)
            raise RequestError(
                f"the picture has {len(data)} bytes", fix=f"send at most {most}: a smaller one", status=413
            )
        problem = await asyncio.to_thread(png_problem, data)
        if problem:
            raise RequestError(f"the picture is not a whole PNG: {problem}", fix="send the bytes of a PNG as the body")
        await self._writer.do(lambda tx: self._place(tx, name, data))
        async with self._counting:
            await asyncio.to_thread(self._make_room, name, len(data))

    async def read(self, name: PictureName) -> bytes | None:
        """The PNG; None if there is none."""
        try:
            return await asyncio.to_thread((self._home / FOLDER / name.path).read_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return None

    async def of(self, episode: str) -> frozenset[PictureName]:
        """The pictures of an episode."""
        folder = self._home / FOLDER / _folder_of(episode)
        files = await asyncio.to_thread(lambda: [*folder.iterdir()] if folder.is_dir() else [])
        held = (_step_of(file) for file in files)
        return frozenset(PictureName(episode, *step) for step in held if step is not None)

    async def sweep(self) -> int:
        """Removes those of no step, as the function `sweep`; returns how many."""
        found = await self._reader.do(lambda sql: sweep(self._home, sql))
        async with self._counting:
            self._bytes = None
        return found

    def _place(self, tx: Transaction, name: PictureName, data: bytes) -> None:
        """Runs in the thread that also erases rows: a picture is placed before they go and swept, or not at all."""
        asked = "SELECT 1 FROM episode_steps WHERE episode = ? AND place = ?"
        if tx.sql.execute(asked, (plain(name.episode), name.step)).fetchone() is None:
            raise RequestError(
                f"episode {name.episode} has taken no step {name.step}",
                fix="send a picture after the step's reply; steps count from 0",
                status=404,
                param="step",
            )
        path = self._home / FOLDER / name.path
        for left in range(TRIES - 1, -1, -1):
            try:
                write_whole(path, data)
                return
            except OSError as problem:
                with suppress(OSError):
                    path.parent.rmdir()  # if it is the first one
                if left and isinstance(problem, FileNotFoundError):
                    continue
                raise unwritable(path, problem) from problem

    def _make_room(self, kept: PictureName, size_bytes: int) -> None:
        if self._bytes is not None and self._bytes + size_bytes <= self._most_bytes:
            self._bytes += size_bytes  # too many if one replaced another: then they are counted again sooner
            return
        held = sorted(_sizes(self._home / FOLDER))
        total = sum(size for _, _, size in held)
        for _, path, size in held if total > self._most_bytes else []:
            if total <= ROOM * self._most_bytes:
                break
            if path != self._home / FOLDER / kept.path:
                with suppress(OSError):  # it is tried again with the next one
                    path.unlink()
                    total -= size
                    path.parent.rmdir()  # if it was the last one
        self._bytes = total


def sweep(home: Path, sql: sqlite3.Connection) -> int:
    """Removes pictures that belong to no step in the store, and unfinished files; returns how many pictures.

    Raises StoreError if one cannot be removed.
    """
    strays = [*stray_pictures(home, sql)]
    for path in strays:
        remove(home, path)
    for folder in {path.parent for path in strays}:
        with suppress(OSError):  # others are in it
            folder.rmdir()
    return sum(path.suffix != FRESH for path in strays)


def stray_pictures(home: Path, sql: sqlite3.Connection) -> Iterator[Path]:
    """The files in the folder of pictures that belong to no step in the store."""
    place = home / FOLDER
    held: dict[str, list[Path]] = {}
    for item in sorted(place.iterdir()) if place.is_dir() else []:
        is_folder = item.is_dir() and not item.is_symlink()
        held[item.name] = sorted(item.iterdir()) if is_folder else [item]
    if not held:
        return
    # Only now: a file that was found was placed after its step was stored.
    names = (str(row[0]) for row in sql.execute("SELECT DISTINCT episode FROM episode_steps"))
    known = {folder: name for name in names if (folder := _folder_of(name)) in held}
    for folder, files in held.items():
        episode = known.get(folder, "")
        rows = sql.execute("SELECT place FROM episode_steps WHERE episode = ?", (episode,))
        steps = {int(row[0]) for row in rows}
        for path in files:
            step = _step_of(path)
            if step is None or step[0] not in steps:
                yield path


def damaged_pictures(home: Path) -> Iterator[tuple[Path, str]]:
    """Pictures that are not complete PNGs, and what is wrong with each."""
    for path in sorted((home / FOLDER).glob("*/*" + _BEFORE)):
        with suppress(FileNotFoundError):  # removed meanwhile
            problem = png_problem(path.read_bytes())
            if problem:
                yield path, problem


def count_of(home: Path, sql: sqlite3.Connection, turns: Collection[str]) -> int:
    """How many pictures the steps of these turns have."""
    if not (home / FOLDER).is_dir():
        return 0
    rows = sql.execute("SELECT DISTINCT turn, episode, place FROM episode_steps")
    steps = {(str(episode), int(place)) for turn, episode, place in rows if str(turn) in turns}
    names = (PictureName(episode, step, is_after) for episode, step in steps for is_after in (False, True))
    return sum((home / FOLDER / name.path).is_file() for name in names)


def png_problem(data: bytes) -> str:
    """What is wrong with a PNG, checked part by part; empty if nothing is. Its pixels are not decoded."""
    if not data.startswith(_SIGNATURE):
        return "it does not begin as one"
    at, kinds = len(_SIGNATURE), list[bytes]()
    while at < len(data) and b"IEND" not in kinds:
        if at + 12 > len(data):
            return "it is cut off"
        size, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + size
        if end > len(data):
            return "it is cut off"
        if zlib.crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            return f"its part {kind!r} is damaged"
        if not kinds:
            sides = struct.unpack_from(">II", data, at + 8) if kind == b"IHDR" and size == 13 else (0, 0)
            if not all(0 < side <= MOST_SIDE for side in sides):
                return f"its sides are {sides[0]} and {sides[1]} pixels, not 1 to {MOST_SIDE}"
        kinds.append(kind)
        at = end
    if b"IDAT" not in kinds or kinds[-1] != b"IEND":
        return "it is cut off"
    return "" if at == len(data) else "there is something after its end"


def _folder_of(episode: str) -> str:
    return hashlib.blake2b(plain(episode).encode(), digest_size=16).hexdigest()


def _step_of(path: Path) -> tuple[int, bool] | None:
    """The step of a file, and whether it shows the screen after it; None for a file that is not a picture."""
    for end in (_AFTER, _BEFORE):
        name = path.name.removesuffix(end)
        if name != path.name and name.isdecimal():
            return int(name), end == _AFTER
    return None


def _sizes(place: Path) -> Iterator[tuple[int, Path, int]]:
    """When each picture was written, where it is, and its bytes."""
    for path in place.glob("*/*" + _BEFORE):
        with suppress(FileNotFoundError):  # removed meanwhile
            facts = path.stat()
            yield facts.st_mtime_ns, path, facts.st_size
