"""Finishes a forgetting: folders, records, the store's free pages, and the versions to make again.

Each part can be interrupted anywhere and repeated: the row in the store records the progress.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from openclaw_rl.config import Config
from openclaw_rl.core.inside import HANDED_BACK, is_inside, put_aside, remove
from openclaw_rl.core.manifest import Manifest, version_folder, versions_folder
from openclaw_rl.core.message import Json
from openclaw_rl.core.to_end import to_end
from openclaw_rl.core.version import PolicyVersion, parse_version
from openclaw_rl.errors import OpenClawRLError, StoreError
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.remake.forget_plan import Certificate, ForgetPlan, RebuiltVersion, moment, write_certificate
from openclaw_rl.remake.restore import grounded
from openclaw_rl.remake.steps import REPLAYED, PastStep, RetakeResult, StartWeights, StepReplayer, folder_in
from openclaw_rl.store.connection import NAME, open_writer
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget import book as forgettings
from openclaw_rl.store.forget.book import WHY_GIVEN_UP, Forgetting, Phase
from openclaw_rl.store.forget.erase import compact
from openclaw_rl.store.lock import FolderLock
from openclaw_rl.store.pictures import sweep
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.train import folders

log = logging.getLogger(__name__)
SCRATCH = "rebuilding.tmp"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
UNSAID = ("next_state", "votes", "score", "hint", "source", "mean", "feedback")


def read_plan(held: Forgetting) -> ForgetPlan:
    """The plan of a forgetting that is not done."""
    return msgspec.json.decode(held.plan, type=ForgetPlan)


def plan_text(plan: ForgetPlan) -> str:
    """Writes the plan that `read_plan` reads."""
    return msgspec.json.encode(plan).decode()


def finish_erasing(home: Path, *, lock: FolderLock | None = None) -> None:
    """Removes the folders, cleans the records and rewrites the store's file, if that is still to be done.

    Blocks; nobody may have the folder open but the caller, who gives the `lock` if it is held. Raises StoreError.
    """
    if not forgettings.is_due(home):
        return
    own = FolderLock(home) if lock is None else None
    try:
        while (held := _due(home)) is not None:
            if held.phase is Phase.CLEANING:
                _clean(home, held)
            compact(home / NAME)
            _note(home, replace(_again(home, held), phase=Phase.REBUILDING))
            log.info("erased forgetting=%s", held.id)
    finally:
        if own is not None:
            own.free()


async def finish_beside(store: Store, home: Path) -> None:
    """As `finish_erasing`, for the process that holds the folder and its open store. Raises StoreError."""
    for held in await store.forgettings.all():
        if held.phase is Phase.CLEANING:
            await asyncio.to_thread(_clean, home, held)
    due = [held for held in await store.forgettings.all() if held.phase is Phase.COMPACTING]
    if due:
        seconds = await store.forgettings.compact()
        log.info("rewrote the store seconds=%.3f", seconds)
    for held in due:
        await store.forgettings.note(replace(held, phase=Phase.REBUILDING))
        log.info("erased forgetting=%s", held.id)


async def rebuild(
    store: Store, config: Config, model: Path, *, served: ServedVersions | None = None
) -> list[Certificate]:
    """Makes the affected versions again, without what was forgotten. Raises OpenClawRLError.

    They then wait at the gate. Returns the certificates that this completes. `served` is what a running server
    serves: it changes if the version to continue from had been pruned.
    """
    done: list[Certificate] = []
    while (held := await store.forgettings.unfinished()) is not None:
        if held.phase is not Phase.REBUILDING:
            raise StoreError(
                "a forgetting has not been finished: some of it is not erased yet",
                fix="restart the server; it erases the rest first",
            )
        done.append(await _rebuilt(store, config, model, held, served=served))
    return done


@dataclass(slots=True)
class RebuildBlockers:
    """Why versions cannot be made again now; empty if nothing prevents it."""

    problem: str = ""


async def rebuild_in_time(
    store: Store, config: Config, model: Path, remaking: RebuildBlockers, *, served: ServedVersions | None = None
) -> None:
    """As `rebuild`, tried again with growing pauses if it cannot be done now."""
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            await rebuild(store, config, model, served=served)
        except OpenClawRLError as problem:
            log.error("versions cannot be made again without what was forgotten: %s", problem)
            remaking.problem = str(problem)
        else:
            remaking.problem = ""
            return
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def certified(store: Store, home: Path, certificate: Certificate) -> Certificate:
    """Writes the certificate with the versions now served to the home folder; the forgetting is done."""
    rows = await store.versions()
    scopes = dict.fromkeys(row.version.scope for row in rows)
    made = {item.version for item in certificate.rebuilt}
    now = replace(
        certificate,
        served={scope: str(await store.current(scope)) for scope in scopes},
        at_gate=tuple(
            str(row.version) for row in rows if row.status is VersionStatus.CANDIDATE and str(row.version) in made
        ),
    )
    await asyncio.to_thread(write_certificate, home, now)
    held = next(item for item in await store.forgettings.all() if item.id == certificate.id)
    await store.forgettings.note(replace(held, phase=Phase.DONE, plan=plan_text(ForgetPlan(now))))
    return now


async def _rebuilt(
    store: Store, config: Config, model: Path, held: Forgetting, *, served: ServedVersions | None
) -> Certificate:
    taking = StepReplayer(model, config.trainer, config.home / SCRATCH)
    try:
        plan, given_up = await grounded(store, config.home, read_plan(held), taking, served)
        if given_up:
            held = replace(held, plan=plan_text(plan))
            await store.forgettings.replan(held, given_up)
        await asyncio.to_thread(_remove_given_up, config.home, await store.versions())
        for past in read_plan(held).past:
            plan = read_plan(held)
            if str(past.version) not in plan.made:
                held = await _made_again(store, config.home, held, past, taking)
    finally:
        await taking.aclose()
    return await certified(store, config.home, replace(read_plan(held).certificate, finished_at=moment(time.time())))


def _remove_given_up(home: Path, rows: Sequence[VersionRow]) -> None:
    """Removes what is left of replaced versions: it names turns, and is no longer needed."""
    for row in rows:
        if row.why == WHY_GIVEN_UP:
            remove(home, version_folder(home, row.version))


async def _made_again(store: Store, home: Path, held: Forgetting, past: PastStep, taking: StepReplayer) -> Forgetting:
    """The plan after one more version was made again, or left out if nothing was left to learn."""
    plan, rows = read_plan(held), await store.versions()
    parent = parse_version(plan.now(past.parent))
    upon = None if past.upon is None else parse_version(plan.now(past.upon))
    below = None if upon is None or upon.is_base else upon
    ground = StartWeights(folder_in(rows, parent), folder_in(rows, below))
    of_scope = [row.version.number for row in rows if row.version.scope == past.version.scope]
    version = await asyncio.to_thread(_next_version, home, past, parent, max(of_scope, default=0))
    batches = [found for batch in past.batches if (found := await store.effects.samples(batch))]
    stands = next((row.upon for row in rows if row.version == parent), None)
    started_s = time.time()
    taken: RetakeResult | None = None
    if batches or (past.had == 0 and stands != below):
        folder = await asyncio.to_thread(folders.fresh_folder, home, version)
        taken = await taking.take(past, batches, ground, folder, version)
    if taken is None:
        after = _with(plan, past, RebuiltVersion(str(past.version), None, str(parent), 0, None), str(parent))
        held = replace(held, plan=plan_text(after))
        await asyncio.to_thread(folders.remove, home, version)
        await store.forgettings.note(held)
        return held
    step = uuid.uuid4().hex
    manifest = _manifest(past, taken, parent, below, step)
    final = await to_end(asyncio.to_thread(folders.finish, taken.adapter.folder, manifest))
    row = VersionRow(
        version, parent, final, manifest.digest, VersionStatus.CANDIDATE, "", manifest.made_s, taken.turns,
        dict(taken.metrics), taken.rehearsed, below,
    )  # fmt: skip
    entry = RebuiltVersion(str(past.version), str(version), str(parent), manifest.samples, manifest.digest)
    held = replace(held, plan=plan_text(_with(plan, past, entry, str(version))))
    record = StepRecord(step, started_s, time.time(), (), (), taken.metrics, row, version.scope)
    await store.forgettings.remade(held, past.version, record)
    log.info("made again version=%s in place of=%s samples=%d", version, past.version, manifest.samples)
    return held


def _next_version(home: Path, past: PastStep, parent: PolicyVersion, last: int) -> PolicyVersion:
    """The version to make in place of a past one. First removes what a crash left of an earlier attempt."""
    scope = past.version.scope
    version = PolicyVersion(scope, last + 1)
    left = folders.orphans(home, ()).get(version)
    read = {turn for batch in past.batches for turn in batch}
    if left is not None and left.parent == parent and read.issuperset((*left.turns, *left.rehearsed)):
        folders.remove(home, version)
    return PolicyVersion(scope, folders.next_number(home, scope, last))


def _manifest(
    past: PastStep, taken: RetakeResult, parent: PolicyVersion, upon: PolicyVersion | None, step: str
) -> Manifest:
    settings: dict[str, Json] = {} if past.trainer is None else {"trainer": json.loads(past.trainer)}
    if past.is_fresh:
        settings[REPLAYED] = [list(batch) for batch in past.batches]
    return Manifest(
        version=taken.adapter.version,
        parent=parent,
        step=step,
        turns=taken.turns,
        samples=len(taken.turns) + len(taken.rehearsed),
        digest=taken.adapter.digest,
        made_s=time.time(),
        metrics=taken.metrics,
        settings=settings,
        upon=upon,
        rehearsed=taken.rehearsed,
    )


def _with(plan: ForgetPlan, past: PastStep, entry: RebuiltVersion, now: str) -> ForgetPlan:
    certificate = replace(plan.certificate, rebuilt=(*plan.certificate.rebuilt, entry))
    return replace(plan, certificate=certificate, made=plan.made | {str(past.version): now})


def _due(home: Path) -> Forgetting | None:
    return _asked(home, lambda found: found.phase in (Phase.CLEANING, Phase.COMPACTING))


def _again(home: Path, held: Forgetting) -> Forgetting:
    found = _asked(home, lambda item: item.id == held.id)
    assert found is not None
    return found


def _asked(home: Path, is_it: Callable[[Forgetting], bool]) -> Forgetting | None:
    sql = open_writer(home / NAME)
    try:
        return next((item for item in forgettings.everything(sql) if is_it(item)), None)
    finally:
        sql.close()


def _note(home: Path, held: Forgetting) -> None:
    sql = open_writer(home / NAME)
    try:
        sql.execute("PRAGMA synchronous=FULL")
        forgettings.update(sql, held)
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        sql.close()


def _clean(home: Path, held: Forgetting) -> None:
    """Removes the folders and takes the turns out of records; the plan then needs no names."""
    plan = read_plan(held)
    for name in plan.folders:
        remove(
            home, versions_folder(home) / Path(name).name
        )  # an older plan contains whole paths, which may have moved
    asides = put_aside(home)  # unreadable files cannot be cleaned
    for path in asides:
        remove(home, path)
    log.info("removed the folders of forgetting=%s", held.id)
    for name in (SCRATCH, HANDED_BACK):
        remove(home, home / name)
    sql = open_writer(home / NAME)
    try:
        sweep(home, sql)
        paths = forgettings.exported_to(sql)
    finally:
        sql.close()
    there = [path for path in paths if path.is_file()]
    elsewhere = [] if plan.has_records else [path for path in there if not is_inside(home, path)]
    ours = [path for path in there if path not in elsewhere]
    left = [path for path in ours if not _clean_records(path, set(plan.gone), set(plan.unsaid))]
    certificate = replace(
        plan.certificate,
        records=len(ours) - len(left),
        records_left=len(left),
        records_not_found=len(paths) - len(there),
        records_elsewhere=tuple(str(path) for path in elsewhere),
        damaged_stores_removed=len(asides),
    )
    after = replace(plan.without_names(), certificate=certificate)
    _note(home, replace(held, phase=Phase.COMPACTING, plan=plan_text(after)))


def _clean_records(path: Path, gone: Collection[str], unsaid: Collection[str]) -> bool:
    """Takes turns out of a file of records; False if it is not ours any more, or cannot be written."""
    fresh = path.with_name(path.name + ".part")
    try:
        with path.open(encoding="utf-8") as lines, fresh.open("w", encoding="utf-8") as kept:
            fresh.chmod(0o600)
            for line in lines:
                record = json.loads(line)
                name, made_of = record["turn_id"], record.get("turn_ids", ())  # in the formats of other trainers
                if made_of and any(each in gone or each in unsaid for each in made_of):
                    continue
                if name in unsaid:
                    kept.write(json.dumps(record | dict.fromkeys(UNSAID) | {"hints": []}) + "\n")
                elif name not in gone:
                    kept.write(line)
        fresh.replace(path)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        log.error("%s cannot be cleaned of what was forgotten: %s", path, problem)
        return False
    return True
