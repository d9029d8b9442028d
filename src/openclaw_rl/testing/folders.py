"""A used home folder: turns in every state, and two versions, one made from the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from openclaw_rl.core.adapter import CONFIG, TRAINER_FACTS, TRAINER_STATE, WEIGHTS, Adapter, digest_of_folder, seal
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.manifest import Manifest, version_folder, write_manifest
from openclaw_rl.core.message import Json, Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.testing.turns import a_sample, a_turn

LONG = "A long text that is kept once. " * 100


Fill = Callable[[Path, PolicyVersion], None]


def a_small_adapter(folder: Path, version: PolicyVersion) -> None:
    """Files in place of an adapter's, with valid headers."""
    header = b'{"w":{"dtype":"U8","shape":[32],"data_offsets":[0,32]}}'
    body = bytes(range(version.number, version.number + 32))
    (folder / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + body)
    (folder / CONFIG).write_text('{"peft_type": "LORA", "r": 4}\n', "utf-8")


def an_adapter(folder: Path, number: int, rank: int = 4) -> Adapter:
    """The adapter of a version of everybody's, in a folder of its own below this one; no weights are in it."""
    made = folder / str(number)
    if not made.exists():
        made.mkdir()
        (made / CONFIG).write_text(json.dumps({"r": rank}))
        (made / WEIGHTS).write_bytes(bytes([number]))
    return Adapter(made, digest_of_folder(made), PolicyVersion(SHARED, number))


def with_state(folder: Path, version: PolicyVersion) -> None:
    """A small adapter, and next to it the sealed trainer's state."""
    a_small_adapter(folder, version)
    (folder / TRAINER_STATE).write_bytes(b"moments")
    facts: dict[str, Json] = {"format": 1, "version": str(version), "steps": version.number}
    (folder / TRAINER_FACTS).write_text(json.dumps({**facts, "seal": seal(folder, facts)}), "utf-8")


async def lived_in(home: Path, *, sessions: int = 2, fill: Fill = a_small_adapter) -> None:
    """Seven turns in each session: two trained, the others ready, judged, paired, served and dropped.

    `fill` writes the files of a version into its folder.
    """
    store = await Store.open(home)
    for session in range(sessions):
        for name in ("one", "two", "ready", "judged", "paired", "served"):
            await _turn(store, f"{name}{session}", session, upto=name)
        await store.drop(await _turn(store, f"dropped{session}", session, upto="served"), DropReason.EMPTY)
    for number, name in ((1, "one"), (2, "two")):
        await add_version(store, home, number, fill, tuple(f"{name}{session}" for session in range(sessions)))
    await store.aclose()


async def _turn(store: Store, name: str, session: int, *, upto: str) -> str:
    asked = (message(Role.SYSTEM, LONG), message(Role.USER, f"Question {name}?"))
    turn = a_turn(name, asked, f"Answer {name}.", session=f"key:s{session}", at_s=1000.5)
    await store.add_turn(turn, chain=name, prefix=name)
    if upto == "served":
        return name
    await store.pair(NextState(name, (message(Role.USER, "Please, no."),), NextStateSource.USER))
    if upto == "paired":
        return name
    await store.judge(Verdict(name, -1, VerdictSource.VOTES))
    if upto != "judged":
        await store.admit(a_sample(turn))
    return name


async def add_version(store: Store, home: Path, number: int, fill: Fill, turns: tuple[str, ...]) -> None:
    """A version of these turns, made from the one before it, and now served."""
    version, parent = PolicyVersion(SHARED, number), PolicyVersion(SHARED, number - 1)
    folder = version_folder(home, version)
    folder.mkdir(parents=True)
    fill(folder, version)
    digest = digest_of_folder(folder)
    write_manifest(folder, Manifest(version, parent, f"step{number}", turns, len(turns), digest, 5.0))
    row = VersionRow(version, parent, folder, digest, VersionStatus.CANDIDATE, "", 5.0, turns)
    await store.commit_step(StepRecord(f"step{number}", 4.0, 5.0, turns, (), {"loss": 0.5}, row))
    await store.settle(version, VersionStatus.LIVE, "passed the gate", {})
    await store.set_current(version, why="passed the gate")
