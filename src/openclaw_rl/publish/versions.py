"""Versions on disk: whether a folder still contains what its step wrote, and a version's ancestors."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.core.adapter import Adapter, digest_of_folder, files_of
from openclaw_rl.core.manifest import Manifest, read_manifest
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import AdapterError
from openclaw_rl.store.rows import VersionRow

_HEADER = struct.Struct("<Q")


def verified(adapter: Adapter) -> Manifest:
    """The manifest of an intact folder. Blocks; raises AdapterError with what is damaged."""
    fix = f"roll back with `openclaw-rl rollback`, or restore {adapter.folder} from a backup"
    if not adapter.folder.is_dir():
        raise AdapterError(f"the folder of version {adapter.version} is missing: {adapter.folder}", fix=fix)
    weights = files_of(adapter.folder)[1]
    if not (adapter.folder / weights).exists():
        held = sorted(path.name for path in adapter.folder.glob("*.bin"))
        instead = f"; {held[0]} is a pickle, which is never opened" if held else ""
        raise AdapterError(f"version {adapter.version} cannot be read: it has no {weights}{instead}", fix=fix)
    try:
        manifest = read_manifest(adapter.folder)
        cut = missing_bytes(adapter.folder / weights)
        digest = digest_of_folder(adapter.folder)
    except (OSError, ValueError) as problem:
        raise AdapterError(f"version {adapter.version} cannot be read: {problem}", fix=fix) from problem
    if cut:
        raise AdapterError(f"the weights of version {adapter.version} are truncated: {cut} bytes are missing", fix=fix)
    if digest != adapter.digest or digest != manifest.digest:
        raise AdapterError(
            f"version {adapter.version} was changed after training: its files have digest {digest[:12]}, "
            f"not {adapter.digest[:12]}",
            fix=fix,
        )
    if manifest.version != adapter.version:
        raise AdapterError(f"{adapter.folder} holds version {manifest.version}, not {adapter.version}", fix=fix)
    return manifest


def without_weights(version: PolicyVersion) -> AdapterError:
    """The error for a request of a version that was pruned."""
    return AdapterError(
        f"the weights of version {version} were pruned",
        fix=f"stop the server and restore them with `openclaw-rl replay --version {version} --restore`, "
        "or choose a newer version",
    )


def missing_bytes(weights: Path) -> int:
    """How many bytes a safetensors file lacks, by its header. Raises OSError, or ValueError for a broken header."""
    size = weights.stat().st_size
    with weights.open("rb") as stream:
        head = stream.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return _HEADER.size - len(head)
        (length,) = _HEADER.unpack(head)
        if length > size:
            return int(length + _HEADER.size - size)
        header = json.loads(stream.read(length))
    if not isinstance(header, dict):
        raise ValueError(f"{weights.name} has no header")
    try:
        ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
    except (KeyError, IndexError, TypeError) as problem:
        raise ValueError(f"{weights.name} has a broken header") from problem
    return max(0, _HEADER.size + int(length) + max(ends, default=0) - size)


def ancestors(rows: Sequence[VersionRow], version: PolicyVersion) -> list[VersionRow]:
    """The ancestors of a version, nearest first; the base model may be missing."""
    by_version = {row.version: row for row in rows}
    found: dict[PolicyVersion, VersionRow] = {}
    row = by_version.get(version)
    while row is not None and row.parent is not None and row.parent not in found:
        row = by_version.get(row.parent)
        if row is not None:
            found[row.version] = row
    return list(found.values())


def path_to(rows: Sequence[VersionRow], current: PolicyVersion) -> list[PolicyVersion]:
    """The served version and what it was made from, newest first, down to the scope's first."""
    path = [current, *(row.version for row in ancestors(rows, current))]
    last = next((row.parent for row in rows if row.version == path[-1]), None)
    return path if last is None else [*path, last]
