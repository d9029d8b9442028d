"""Rows read from the pages of a damaged SQLite file, whether or not the tree above them can still be followed.

A lost or changed byte high in a table's tree hides every row below it from SQLite, though their pages are intact. So
pages are read one by one: those that the tree reaches belong to its table, others to the table whose shape their rows
have. Source of the layout: the file format that SQLite documents (pages, cells, records, write-ahead log).
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

Value = int | float | str | bytes | None
HEADER = 100  # bytes of the file's own header, on page 1
TABLE_LEAF, TABLE_INNER, INDEX_LEAF, INDEX_INNER = 0x0D, 0x05, 0x0A, 0x02
LEAVES, INNER = (TABLE_LEAF, INDEX_LEAF), (TABLE_INNER, INDEX_INNER)
WIDTHS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes of an integer by its serial type
WAL_HEADER, FRAME_HEADER = 32, 24
USUAL_SIZE = 4096
BROKEN = (IndexError, struct.error, ValueError, OSError)  # what reading a damaged page can raise


@dataclass(frozen=True, slots=True)
class PageRow:
    """One row as it is in a page; `rowid` is None in the tree of an index or of a table without one."""

    rowid: int | None
    values: tuple[Value, ...]


class DatabasePages:
    """The pages of a database file, with those of its write-ahead log, until `close`. Raises OSError when made."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        head = os.pread(self._file, HEADER, 0).ljust(HEADER, b"\0")
        size = int.from_bytes(head[16:18], "big")
        size = 65536 if size == 1 else size
        is_size = size >= 512 and size & (size - 1) == 0
        self.page_size = size if is_size else USUAL_SIZE  # if the header is lost
        self._usable = self.page_size - head[20]
        log = path.with_name(path.name + "-wal")
        self._newer = _frames(log.read_bytes(), self.page_size) if log.is_file() else {}
        self.count = max([-(-os.fstat(self._file).st_size // self.page_size), *self._newer])

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def page(self, number: int) -> bytes:
        """The bytes of a page, counted from 1. Raises IndexError if there is none, or OSError.

        The last page of a truncated file is shorter than the others: rows in its first part are complete.
        """
        found = self._newer.get(number)
        if found is None and number > 0:
            found = os.pread(self._file, self.page_size, (number - 1) * self.page_size)
        if not found:
            raise IndexError(f"there is no page {number}")
        return found

    def kind(self, number: int) -> int:
        """The type byte of a page; 0 if it is not a page of a tree."""
        try:
            kind = self.page(number)[HEADER if number == 1 else 0]
        except BROKEN:
            return 0
        return kind if kind in (*LEAVES, *INNER) else 0

    def children(self, number: int) -> list[int]:
        """The pages under an inner one, as far as they can be determined."""
        found: list[int] = []
        with contextlib.suppress(*BROKEN):
            page, at = self.page(number), HEADER if number == 1 else 0
            found = [int.from_bytes(page[cell : cell + 4], "big") for cell in self._cells(page, at)]
            found.append(int.from_bytes(page[at + 8 : at + 12], "big"))
        return [child for child in found if 1 < child <= self.count]

    def records(self, number: int) -> Iterator[PageRow]:
        """The rows of a page that can be read; others are skipped."""
        try:
            page, at = self.page(number), HEADER if number == 1 else 0
            kind, cells = page[at], self._cells(page, at)
        except BROKEN:
            return
        if kind == TABLE_INNER:
            return
        for cell in cells:
            try:
                yield self._record(page, cell, kind)
            except BROKEN:
                continue

    def free_pages(self) -> set[int]:
        """The free pages; rows in them were deleted and must stay so."""
        free: set[int] = set()
        with contextlib.suppress(*BROKEN):
            trunk = int.from_bytes(self.page(1)[32:36], "big")
            while trunk and trunk not in free:
                free.add(trunk)
                page = self.page(trunk)
                following, held = struct.unpack_from(">II", page)
                free.update(struct.unpack_from(f">{held}I", page, 8))
                trunk = following
        return free

    def _cells(self, page: bytes, at: int) -> list[int]:
        first = at + (12 if page[at] in INNER else 8)
        (count,) = struct.unpack_from(">H", page, at + 3)
        found = struct.unpack_from(f">{count}H", page, first)
        return [cell for cell in found if first + 2 * count <= cell < self.page_size]

    def _record(self, page: bytes, at: int, kind: int) -> PageRow:
        rowid = None
        if kind == INDEX_INNER:
            at += 4
        length, at = _varint(page, at)
        if kind == TABLE_LEAF:
            rowid, at = _varint(page, at)
            rowid -= (rowid >> 63) << 64
        return PageRow(rowid, _values(self._payload(page, at, length, kind)))

    def _payload(self, page: bytes, at: int, length: int, kind: int) -> bytes:
        """All bytes of a record, including those on overflow pages."""
        usable = self._usable
        most = usable - 35 if kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23
        if length <= most:
            here = length
        else:
            least = (usable - 12) * 32 // 255 - 23
            here = least + (length - least) % (usable - 4)
            here = here if here <= most else least
        parts, left = [page[at : at + here]], length - here
        following = int.from_bytes(page[at + here : at + here + 4], "big") if left else 0
        while left:
            if len(parts) > self.count:
                raise ValueError("the overflow of a record is circular")
            more = self.page(following)
            if len(more) < min(left + 4, usable):
                raise ValueError("the overflow of a record is cut off")
            parts.append(more[4 : 4 + min(left, usable - 4)])
            left -= len(parts[-1])
            following = int.from_bytes(more[:4], "big")
        found = b"".join(parts)
        if len(found) != length:
            raise ValueError("a record is cut off")
        return found


@dataclass(frozen=True, slots=True)
class Tree:
    """A table: the root page of its tree (0 if that is lost), and whether a row may be one of its rows.

    With `is_known_by_shape`, rows of pages that no tree reaches count as its own if they fit.
    """

    root: int
    fits: Callable[[PageRow], bool]
    is_known_by_shape: bool = True


def rows_of(file: DatabasePages, trees: Mapping[str, Tree]) -> Iterator[tuple[str, PageRow]]:
    """Every readable row with its table: first those the trees reach, then those of pages that nothing reaches."""
    reached: dict[int, str] = {}
    for name, tree in trees.items():
        _reach(file, tree.root, name, reached)
    for number, name in reached.items():
        yield from ((name, record) for record in file.records(number) if trees[name].fits(record))
    free = file.free_pages()
    shapes = {name: tree for name, tree in trees.items() if tree.is_known_by_shape}
    for number in range(2, file.count + 1):
        if number in reached or number in free or file.kind(number) == 0:
            continue
        for record in file.records(number):
            owner = next((name for name, tree in shapes.items() if tree.fits(record)), None)
            if owner is not None:
                yield owner, record


def _reach(file: DatabasePages, root: int, name: str, reached: dict[int, str]) -> None:
    waiting = [root]
    while waiting:
        number = waiting.pop()
        kind = file.kind(number)
        if number in reached or kind == 0:
            continue
        reached[number] = name
        if kind in INNER:
            waiting += file.children(number)


def _values(payload: bytes) -> tuple[Value, ...]:
    """The columns of a record."""
    size, at = _varint(payload, 0)
    kinds: list[int] = []
    while at < size:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    if at != size:
        raise ValueError("the head of a record is cut off")
    found: list[Value] = []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        found.append(value)
    if at != len(payload):
        raise ValueError("a record has another length than its columns")
    return tuple(found)


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    """A column of this serial type, and where the next one begins."""
    if kind in (0, 8, 9):
        return (None if kind == 0 else kind - 8), at
    if kind in (10, 11):
        raise ValueError(f"serial type {kind} is never written")
    width = WIDTHS.get(kind, 8) if kind < 12 else (kind - 12) // 2
    held = payload[at : at + width]
    if len(held) != width:
        raise ValueError("a column is cut off")
    if kind == 7:
        return float(struct.unpack(">d", held)[0]), at + width
    if kind < 7:
        return int.from_bytes(held, "big", signed=True), at + width
    return (held.decode("utf-8") if kind % 2 else held), at + width


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    value = 0
    for place in range(8):
        byte = data[at + place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    return value << 8 | data[at + 8], at + 9


def _frames(log: bytes, page_size: int) -> dict[int, bytes]:
    """The newest committed form of each page in a write-ahead log, up to the first incomplete frame."""
    if len(log) < WAL_HEADER or int.from_bytes(log[:4], "big") & ~1 != 0x377F0682:
        return {}
    order = ">" if int.from_bytes(log[:4], "big") & 1 else "<"
    sums = _checksum(log[:24], order, (0, 0))
    if sums != struct.unpack(">II", log[24:32]) or int.from_bytes(log[8:12], "big") != page_size:
        return {}
    committed: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    for at in range(WAL_HEADER, len(log) - FRAME_HEADER - page_size + 1, FRAME_HEADER + page_size):
        number, size = struct.unpack_from(">II", log, at)
        page = log[at + FRAME_HEADER : at + FRAME_HEADER + page_size]
        sums = _checksum(page, order, _checksum(log[at : at + 8], order, sums))
        if log[at + 8 : at + 16] != log[16:24] or sums != struct.unpack_from(">II", log, at + 16):
            break
        pending[number] = page
        if size:  # the last frame of a transaction
            committed |= pending
            pending = {}
    return committed


def _checksum(data: bytes, order: str, start: tuple[int, int]) -> tuple[int, int]:
    first, second = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, two in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second
