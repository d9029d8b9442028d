"""A version's description in its folder: `manifest.json`, written before the folder gets its name, never later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.core.version import PolicyVersion, parse_version

FILE_NAME = "manifest.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """The origin of a version: its parent, its step, the turns consumed, and its settings."""

    version: PolicyVersion
    parent: PolicyVersion
    step: str
    turns: tuple[str, ...]
    samples: int
    digest: str
    made_s: float  # seconds since the epoch
    metrics: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Json] = field(default_factory=dict)
    rehearsed: tuple[str, ...] = ()  # turns of earlier steps that this one read again
    upon: PolicyVersion | None = None  # the shared version that a user's or agent's version is based on

    def __post_init__(self) -> None:
        if self.version.is_base:
            raise ValueError("the base model has no manifest")


def has_versions(home: Path) -> bool:
    """Whether the home folder contains any version, known to a store or not."""
    return any(versions_folder(home).glob(f"*/{FILE_NAME}"))


def versions_folder(home: Path) -> Path:
    """The folder of an installation's versions."""
    return home / "versions"


def version_folder(home: Path, version: PolicyVersion) -> Path:
    """The folder of one version."""
    return versions_folder(home) / str(version)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the file. Raises OSError."""
    body = {
        "format": FORMAT,
        "version": str(manifest.version),
        "parent": str(manifest.parent),
        "step": manifest.step,
        "turns": list(manifest.turns),
        "rehearsed": list(manifest.rehearsed),
        "samples": manifest.samples,
        "digest": manifest.digest,
        "made_s": manifest.made_s,
        "metrics": dict(manifest.metrics),
        "settings": dict(manifest.settings),
        "upon": None if manifest.upon is None else str(manifest.upon),
    }
    (folder / FILE_NAME).write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", "utf-8")


def read_manifest(folder: Path) -> Manifest:
    """The content of the file. Raises OSError if it cannot be read, ValueError if it is not a manifest."""
    body = json.loads((folder / FILE_NAME).read_text("utf-8"))
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise ValueError(f"{folder / FILE_NAME} is not a manifest of format {FORMAT}")
    try:
        return Manifest(
            version=parse_version(body["version"]),
            parent=parse_version(body["parent"]),
            step=str(body["step"]),
            turns=tuple(str(turn) for turn in body["turns"]),
            samples=int(body["samples"]),
            digest=str(body["digest"]),
            made_s=float(body["made_s"]),
            metrics={str(name): float(value) for name, value in body["metrics"].items()},
            settings=dict(body["settings"]),
            rehearsed=tuple(str(turn) for turn in body.get("rehearsed", [])),
            upon=None if body.get("upon") is None else parse_version(body["upon"]),
        )
    except (KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"{folder / FILE_NAME} is incomplete: {problem!r}") from problem
