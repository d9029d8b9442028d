"""A taught server and a browser for the tests of the page, each started once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from page_parts import PageServer, settled, start, teach
from screen_parts import screen_attempt

from openclaw_rl.core.message import Json
from openclaw_rl.core.rights import KnownKey, Right
from openclaw_rl.serve.door.auth import Keys, key_digest
from openclaw_rl.serve.parts import ForgettingControl, OwnerControl, ServeParts
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.selection import ForgetTarget
from openclaw_rl.ui.page import add_page

ROOT = Path(__file__).parent.parent.parent
sys.path.append(str(ROOT / "tests" / "serve"))  # the page stands on the doubles that serving is tested with
from serve_doubles import Serving, a_renderer, serving  # noqa: E402

GUEST = KnownKey("guest", key_digest("guests"), frozenset({Right.CHAT}))
CLERK = KnownKey("clerk", key_digest("clerks"), frozenset({Right.ADMIN}))
AXE, AXE_VERSION = ROOT / "build" / "axe", "4.14.1"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """A server that has learned a wish."""
    server = start(tmp_path_factory.mktemp("page") / "home")
    try:
        yield teach(server)
    finally:
        server.end()


@pytest.fixture(scope="session")
def screened(taught: PageServer) -> str:
    """The id of an attempt on a screen."""
    return screen_attempt(taught)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    program = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with playwright.sync_playwright() as made:
        opened = made.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core, fetched once into build/."""
    script = AXE / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is needed to fetch axe-core")
        AXE.mkdir(parents=True, exist_ok=True)
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-save")
        subprocess.run(
            [npm, "install", *quiet, f"axe-core@{AXE_VERSION}"], cwd=AXE, check=True, capture_output=True, timeout=300
        )
    return script.read_text("utf-8")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """An empty store."""
    opened = await Store.open(tmp_path)
    yield opened
    await opened.aclose()


@pytest.fixture
def others() -> list[KnownKey]:
    """The keys beside the owner's; a test may take one out."""
    return [GUEST, CLERK]


@pytest.fixture
async def paged(store: Store, others: list[KnownKey]) -> AsyncIterator[Serving]:
    """A server with the page, over a scripted engine. The keys: `secret` (owner), `guests` (chat), `clerks` (admin)."""
    made: list[str] = []

    async def settings() -> list[dict[str, Json]]:
        return [{"name": "carry", "value": "weights", "default": "weights", "from": "default"}]

    async def keys() -> list[dict[str, Json]]:
        return [{"name": name} for name in made]

    async def add(name: str, rights: frozenset[Right]) -> str:
        made.append(name)
        return f"sk-{name}"

    async def revoke(name: str) -> None:
        made.remove(name)

    async def preview(what: ForgetTarget) -> dict[str, int]:
        return {"turns": 1}

    async def begin(what: ForgetTarget, has_records: bool) -> str:
        return "forgotten-1"

    async def standing() -> list[dict[str, Json]]:
        return []

    def change(parts: ServeParts) -> ServeParts:
        known = Keys({"owner": "secret"}, lambda: others)
        owner = OwnerControl(settings, keys, add, revoke, "weights")
        return replace(parts, keys=known, owner=owner, forgetting=ForgettingControl(preview, begin, standing))

    async with serving(a_renderer(), store, change=change, page=add_page) as server:
        yield server


@pytest.fixture
async def http(paged: Serving) -> AsyncIterator[aiohttp.ClientSession]:
    """A program with the owner's key."""
    async with aiohttp.ClientSession(paged.url, headers={"Authorization": "Bearer secret"}) as session:
        yield session


@pytest.fixture
def as_taught(taught: PageServer) -> None:
    """Whatever the test before did: training goes on, nothing is under way or pinned, what it learned is served."""
    taught.call("POST", "/v1/rl/unfreeze")
    found = taught.call("GET", "/v1/rl/versions")
    if found["pins"]:
        taught.call("POST", "/v1/rl/unpin", {})
    settled(taught, versions=1)
    found = taught.call("GET", "/v1/rl/versions")
    if found["current"] == {"shared": "shared.0"}:
        taught.call("POST", "/v1/rl/rollback", {"version": "shared.1"})
