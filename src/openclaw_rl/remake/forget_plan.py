"""The remaining work after the rows of a forgetting are erased, and the certificate of the finished work.

The plan contains names only while they are needed. The certificate contains no erased ids, only salted digests:
only a reader who knows an id can find it there.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from openclaw_rl.core.disk import write_whole
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.remake.steps import PastStep, past_step
from openclaw_rl.store.forget.selection import ForgetSelection, ForgetTarget
from openclaw_rl.store.rows import VersionRow, VersionStatus
from openclaw_rl.store.tables import versions
from openclaw_rl.store.tables.versions import lineage
from openclaw_rl.train.folders import orphans

FOLDER = "certificates"
REACH = (
    "This is about the folder of this installation, and about the files of records that are counted here. Records "
    "elsewhere and copies that others made (backups, snapshots) are as they were."
)


@dataclass(frozen=True, slots=True)
class RemovedVersion:
    """A removed version and its digest."""

    version: str
    digest: str


@dataclass(frozen=True, slots=True)
class RebuiltVersion:
    """A version made again: which it replaces, its parent, and the number of samples; None if none were left."""

    was: str
    version: str | None
    parent: str
    samples: int
    digest: str | None


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was forgotten. Ids are SHA-256 of the salt and the id.

    `records` are the files of records that were cleaned; those left now contain something else or cannot be written.
    `records_elsewhere` are outside the home folder and were left as they are.
    """

    id: str
    asked_at: str
    kind: str
    name: str
    salt: str
    removed: dict[str, int]
    turns: tuple[str, ...]
    sessions: tuple[str, ...]
    versions_removed: tuple[RemovedVersion, ...]
    rebuilt: tuple[RebuiltVersion, ...] = ()
    records: int = 0
    records_left: int = 0
    records_not_found: int = 0
    records_elsewhere: tuple[str, ...] = ()
    damaged_stores_removed: int = 0
    finished_at: str | None = None
    served: dict[str, str] = field(default_factory=dict)
    at_gate: tuple[str, ...] = ()
    reach: str = REACH


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """The remaining work. `gone` and `unsaid` are the turns to take out of records, also of those outside the
    home folder with `has_records`; `folders` are names of versions, and `made` says which replaces which.
    """

    certificate: Certificate
    gone: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    past: tuple[PastStep, ...] = ()
    made: dict[str, str] = field(default_factory=dict)
    has_records: bool = False

    def without_names(self) -> ForgetPlan:
        """The plan once folders and records are clean."""
        return replace(self, gone=(), unsaid=(), folders=())

    def now(self, version: PolicyVersion) -> str:
        """The name of a version's replacement, or its own."""
        name = str(version)
        while name in self.made:
            name = self.made[name]
        return name


def plan_of(
    sql: sqlite3.Connection,
    what: ForgetTarget,
    going: ForgetSelection,
    *,
    name: str,
    at_s: float,
    has_records: bool = False,
) -> ForgetPlan:
    """The plan, made while the rows and folders still exist."""
    rows = versions.everything(sql)
    gone = {row.version for row in going.versions}
    heads = [versions.current(sql, scope) for scope in dict.fromkeys(row.version.scope for row in rows)]
    ahead = sql.execute("SELECT scope, ahead FROM pins WHERE ahead IS NOT NULL")
    heads += [PolicyVersion(str(scope), int(number)) for scope, number in ahead]  # what training continues from
    heads += [row.version for row in rows if row.status is VersionStatus.CANDIDATE]
    learned = {*going.turns, *going.unsaid, *going.unread}
    again = [row for row in lineage(rows, heads) if row.version in gone and row.version.scope != going.scope]
    return ForgetPlan(
        certificate=_certificate(what, going, name, at_s),
        gone=going.turns,
        unsaid=going.unsaid,
        folders=(
            *(str(row.version) for row in going.versions if row.folder is not None),
            *_unknown(versions.home_of(sql), rows, learned.union(going.thinned), gone),
        ),
        past=tuple(past_step(row, learned) for row in again),
        has_records=has_records,
    )


def _unknown(
    home: Path, rows: Sequence[VersionRow], learned: Collection[str], gone: Collection[PolicyVersion]
) -> Iterator[str]:
    """The folders of versions unknown to the store (a crash may leave one) that also learned from it."""
    tainted = {*gone}
    for version, manifest in sorted(
        orphans(home, {row.version for row in rows}).items(), key=lambda item: item[0].number
    ):
        if manifest is None:
            continue
        has_read = not set(learned).isdisjoint((*manifest.turns, *manifest.rehearsed))
        if has_read or manifest.parent in tainted or manifest.upon in tainted:
            tainted.add(version)
            yield str(version)


def certificate_path(home: Path, certificate: Certificate) -> Path:
    """Where it lies."""
    return home / FOLDER / f"forgotten-{certificate.asked_at[:10]}-{certificate.id}.json"


def is_about(certificate: Certificate, what: ForgetTarget) -> bool:
    """Whether a certificate is about exactly this forgetting."""
    given = {"session": what.session, "user": what.user, "turn": what.turn, "episode": what.episode}.get(
        certificate.kind
    )
    return given is not None and certificate.name == _digest(certificate.salt, given)


def write_certificate(home: Path, certificate: Certificate) -> Path:
    """Writes it atomically, readable only by its owner. Raises OSError."""
    path = certificate_path(home, certificate)
    write_whole(path, msgspec.json.format(msgspec.json.encode(certificate), indent=1) + b"\n")
    return path


def moment(at_s: float) -> str:
    """A time in a form for people and programs."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")


def _certificate(what: ForgetTarget, going: ForgetSelection, name: str, at_s: float) -> Certificate:
    salt = secrets.token_hex(16)
    kinds = {"session": what.session, "user": what.user, "turn": what.turn, "before": what.before_s}
    kinds["episode"] = what.episode
    kind, given = next((kind, given) for kind, given in kinds.items() if given is not None)
    removed = {"turns": len(going.turns), "turns_without_what_followed": len(going.unsaid)}
    removed |= {"turns_without_sample": len(going.unread), "hints": len(going.hints), "sessions": len(going.sessions)}
    removed |= {"episodes": len(going.episodes)}
    return Certificate(
        id=name,
        asked_at=moment(at_s),
        kind=kind,
        name=moment(given) if isinstance(given, float | int) else _digest(salt, given),
        salt=salt,
        removed=removed | going.counts | {"versions": len(going.versions)},
        turns=_digests(salt, going.turns),
        sessions=_digests(salt, going.sessions),
        versions_removed=tuple(_removed(row, going.scope, salt) for row in going.versions),
    )


def _removed(row: VersionRow, scope: str | None, salt: str) -> RemovedVersion:
    """The scope of a forgotten user contains their name."""
    is_theirs = row.version.scope == scope
    name = f"{_digest(salt, row.version.scope)}.{row.version.number}" if is_theirs else str(row.version)
    return RemovedVersion(name, row.digest)


def _digests(salt: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(_digest(salt, name) for name in names)


def _digest(salt: str, name: str) -> str:
    return hashlib.sha256(salt.encode() + name.encode("utf-8", "surrogatepass")).hexdigest()


def summary(what: ForgetSelection) -> dict[str, int]:
    """Counts of what is removed, for people."""
    return {
        "turns": len(what.turns),
        "turns that stay, without what followed them": len(what.unsaid),
        "turns that stay, without their sample": len(what.unread),
        "hints": len(what.hints),
        "sessions": len(what.sessions),
        "episodes": len(what.episodes),
        "versions that saw it": len(what.versions),
        **{name.replace("_", " "): count for name, count in what.counts.items()},
    }
