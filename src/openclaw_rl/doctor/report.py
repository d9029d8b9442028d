"""What `openclaw-rl doctor` checks: the installation, the store, and the running server if there is one."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import msgspec

from openclaw_rl.config import Config, read_config
from openclaw_rl.core.adapter import digest_of_folder, problem_with_state
from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.finding import Finding, Level
from openclaw_rl.core.manifest import has_versions
from openclaw_rl.core.message import Json
from openclaw_rl.doctor.install import installation_findings, libraries
from openclaw_rl.doctor.learning import Loop, learning_findings, story
from openclaw_rl.envs.box.probe import probe
from openclaw_rl.errors import ConfigError, OpenClawRLError, StoreError
from openclaw_rl.home.folder import address_of
from openclaw_rl.home.reach import server_status
from openclaw_rl.judge.status import JudgeStatus
from openclaw_rl.store import connection
from openclaw_rl.store.codec import damaged
from openclaw_rl.store.rows import VersionStatus
from openclaw_rl.store.tables import ledger, spent, versions
from openclaw_rl.store.tables.overview import overview
from openclaw_rl.train.status import TrainStatus

DAY_S = 86400
MEND_VERSION = (
    "put its folder back from a copy; or stop the server and run `openclaw-rl check --repair`, which has the nearest "
    "whole version before it served"
)
MEND_STATE = (
    "put its files back from a copy; or stop the server and run `openclaw-rl check --repair`, which puts them aside: "
    "training then continues from the version's weights"
)
ADAPTERS_LOOKED_AT = 8  # the newest that may be served
JUDGE_TIMEOUT = aiohttp.ClientTimeout(total=5)


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All findings."""

    home: Path
    is_live: bool
    story: str
    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing needs attention."""
        return not any(item.level is Level.MEND for item in self.findings)

    def as_json(self) -> dict[str, Json]:
        """The report for programs."""
        return {
            "healthy": self.is_healthy,
            "live": self.is_live,
            "home": str(self.home),
            "story": self.story,
            "findings": findings_json(self.findings),
            "libraries": dict(libraries()),
        }


def findings_json(findings: tuple[Finding, ...]) -> list[Json]:
    """Findings as JSON."""
    plain: list[Json] = [msgspec.to_builtins(asdict(item)) for item in findings]
    return plain


async def examine(home: Path | None, file: Path | None = None) -> DoctorReport:
    """The report on an installation. It changes nothing, and a broken part does not hide the others."""
    overrides: dict[str, Json] = {"home": None if home is None else str(home)}
    try:
        config = read_config(file, overrides=overrides)
    except ConfigError as problem:
        config = Config(home=home) if home is not None else Config()
        settings = Finding(Level.MEND, "settings", problem.problem, problem.fix)
    else:
        settings = Finding(Level.OK, "settings", "all settings are valid")
    is_live = address_of(config.home) is not None
    found = [settings, *await asyncio.to_thread(installation_findings, config, is_live=is_live)]
    found += await asyncio.to_thread(_stored, config.home)
    found.append(await _boxes())
    if is_live:
        told, learned = await _asked_server(config.home)
    else:
        told, learned = await _looked_up(config)
    return DoctorReport(config.home, is_live, told, (*found, *learned))


async def _asked_server(home: Path) -> tuple[str, list[Finding]]:
    """The running server's status."""
    try:
        status = await server_status(home)
        found = msgspec.convert(status.get("diagnosis"), list[Finding])
    except (OpenClawRLError, msgspec.ValidationError) as problem:
        said = problem.problem if isinstance(problem, OpenClawRLError) else "the running server is of another version"
        fix = problem.fix if isinstance(problem, OpenClawRLError) else "start it again"
        return "a server runs, but does not tell how it is", [Finding(Level.MEND, "serve", said, fix)]
    return str(status.get("story", "")), [Finding(Level.OK, "serve", "a server is running and answers"), *found]


async def _looked_up(config: Config) -> tuple[str, list[Finding]]:
    """The findings from the store if no server runs."""
    found = [Finding(Level.NOTE, "serve", "no server is running on this folder", "openclaw-rl serve")]
    found += await _judge(config)
    if not _is_unused(config.home) and connection.absence(config.home / connection.NAME):
        return "the store cannot be read", found
    if _is_unused(config.home):
        return "nothing has been served yet", found
    try:
        facts, loop = await asyncio.to_thread(_facts, config)
    except (StoreError, sqlite3.Error):
        return "the store cannot be read", found  # the store's own check says why
    return story(facts, loop), [*found, *learning_findings(facts, loop)]


def _facts(config: Config) -> tuple[StoreFacts, Loop]:
    """The facts in the store, and what is known of stages that do not run."""
    with closing(connection.open_to_look(config.home / connection.NAME)) as sql:
        facts = StoreFacts(ledger.counts(sql), overview(sql))
        limit = config.judge.daily_calls
        calls = spent.calls_on(sql, int(time.time() // DAY_S)) if limit else 0
    judge = JudgeStatus(calls_today=calls, calls_limit=limit)
    return facts, Loop(judge, train=TrainStatus(ready=facts.count("ready"), needed=config.train.needed))


def _stored(home: Path) -> list[Finding]:
    """Whether the store is intact, and the adapters are as the steps wrote them."""
    path = home / connection.NAME
    if _is_unused(home):
        return []
    absent = connection.absence(path)
    if absent:
        return [Finding(Level.MEND, "store", absent, connection.MAKE_STORE)]
    try:
        with closing(connection.open_to_look(path)) as sql:
            form = int(sql.execute("PRAGMA user_version").fetchone()[0])
            if form > connection.SCHEMA_VERSION:
                said = f"{path} was written by a newer version of openclaw-rl"
                return [Finding(Level.MEND, "store", said, "upgrade openclaw-rl")]
            said = str(sql.execute("PRAGMA quick_check(1)").fetchone()[0])
            if said != "ok":
                raise damaged(said, path)
            if form < connection.SCHEMA_VERSION:
                return [
                    Finding(Level.NOTE, "store", "the store is of an older form; the next start brings it up to date")
                ]
            return [Finding(Level.OK, "store", f"{path} is whole"), *_adapters(sql)]
    except (sqlite3.Error, UnicodeDecodeError) as problem:
        plain = connection.in_plain_words(problem, path)
        return [Finding(Level.MEND, "store", plain.problem, plain.fix)]
    except StoreError as problem:
        return [Finding(Level.MEND, "store", problem.problem, problem.fix)]


def _is_unused(home: Path) -> bool:
    """Whether there is neither a store nor anything that belongs to one."""
    return not (home / connection.NAME).exists() and not has_versions(home)


def _adapters(sql: sqlite3.Connection) -> list[Finding]:
    """The newest adapters, and those that are served; of the served ones also the trainer's state."""
    live = [row for row in versions.everything(sql) if row.status is VersionStatus.LIVE and row.folder is not None]
    live = [row for row in live if row.pruned_s is None]
    served = [row for row in live if versions.current(sql, row.version.scope) == row.version][-ADAPTERS_LOOKED_AT:]
    looked = [row for row in live if row in live[-ADAPTERS_LOOKED_AT:] or row in served]
    found = []
    for row in looked:
        assert row.folder is not None
        try:
            digest = digest_of_folder(row.folder)
        except OSError as missing:
            said = f"the adapter of version {row.version} cannot be read: {missing.strerror}"
            found.append(Finding(Level.MEND, "publish", said, MEND_VERSION))
            continue
        if digest != row.digest:
            said = f"the adapter of version {row.version} is not what its step wrote (digest {digest[:24]})"
            found.append(Finding(Level.MEND, "publish", said, MEND_VERSION))
        elif row in served and (problem := problem_with_state(row.folder)) is not None:
            said = f"the trainer's state of version {row.version} is damaged: {problem}"
            found.append(Finding(Level.MEND, "train", said, MEND_STATE))
    return found or [Finding(Level.OK, "publish", f"{len(looked)} adapters looked at, all as written")]


async def _boxes() -> Finding:
    """Whether agents' commands can be isolated from this machine; conversations need no boxes."""
    found = await probe()
    fix = "only tasks of agents need boxes: install bubblewrap and allow user namespaces, or use docker or podman"
    return Finding(Level.OK if found.kind is not None else Level.NOTE, "boxes", found.text, fix)


async def _judge(config: Config) -> list[Finding]:
    """Whether a configured judge answers at its address."""
    url = config.judge.url
    if not url:
        return []
    headers = {"Authorization": f"Bearer {config.judge.api_key}"} if config.judge.api_key else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=JUDGE_TIMEOUT, headers=headers) as session,
            session.get(url.rstrip("/") + "/models") as answer,
        ):
            status = answer.status
    except (aiohttp.ClientError, TimeoutError, ValueError) as problem:
        said = f"the judge at {url} does not answer: {problem or type(problem).__name__}"
        return [Finding(Level.MEND, "judge", said, "check whether it runs, and judge.url")]
    if status in (401, 403):
        return [
            Finding(
                Level.MEND,
                "judge",
                f"the judge at {url} refuses the key",
                "put the right key into the environment variable JUDGE_API_KEY and restart the server",
            )
        ]
    return [Finding(Level.OK, "judge", f"the judge at {url} answers")]
