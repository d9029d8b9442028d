"""Isolated browsers and the places in them: one context per episode."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from openclaw_rl.envs.box.cgroups import ControlGroup, find_groups
from openclaw_rl.envs.box.sandbox import BoxLimits
from openclaw_rl.envs.screen.screen import BrowserError

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright

log = logging.getLogger(__name__)

# The headless shell draws no window: it makes a place in a third of the time (docs/screens.md).
NAMES = (
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
)
ARGUMENTS = (
    "--host-resolver-rules=MAP * ~NOTFOUND",  # a second barrier, also if the network cannot be taken away
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--js-flags=--max-old-space-size=512",
    "--disable-gpu",
    "--mute-audio",
    "--no-first-run",
    "--disable-features=Translate,OptimizationHints,MediaRouter",
)
# Joins the control group, gives up the network, and executes the browser.
WRAPPER = """#!/bin/sh
for group in $SCREEN_GROUPS; do echo $$ > "$group" || exit 97; done
unset SCREEN_GROUPS
exec {words} "$@"
"""
LAUNCH_S = 30.0
CLOSE_S = 10.0


@dataclass(frozen=True, slots=True)
class BrowserOptions:
    """The number of browsers, their limits, and the size of a screen."""

    executable: str = ""  # searched for if it is empty
    most_browsers: int = 2
    contexts: int = 16  # episodes at once in each browser
    lifetime: int = 400  # episodes after which a browser is restarted
    memory_mb: int = 3_000  # of each browser with its pages, if a control group can be made
    width: int = 640
    height: int = 480
    load_s: float = 20.0  # to load a page
    action_s: float = 15.0  # to respond to an action


@dataclass(slots=True, eq=False)
class _Running:
    """One browser."""

    browser: Browser
    pid: int | None
    group: ControlGroup | None
    folder: Path
    begun: int = 0
    open: set[BrowserContext] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class BrowserPlace:
    """A separate context in a browser."""

    context: BrowserContext
    browser: Browser
    pid: int | None


class Browsers:
    """Gives contexts to episodes and starts browsers as needed. The next call replaces a browser that died; its
    episodes
    have failed. At most `most_browsers * contexts` episodes run at a time, the others wait."""

    def __init__(self, options: BrowserOptions | None = None) -> None:
        self.options = options or BrowserOptions()
        self.started = 0
        self._free = asyncio.Semaphore(self.options.most_browsers * self.options.contexts)
        self._lock = asyncio.Lock()
        self._playwright: Playwright | None = None
        self._running: list[_Running] = []
        self._groups = find_groups(f"{os.getpid()}-screens-{secrets.token_hex(4)}")

    @property
    def limits_in_force(self) -> Mapping[str, str]:
        """Each limit, and what enforces it."""
        has_walls = shutil.which("bwrap") is not None
        held = self._groups is not None and "memory" in self._groups.controllers
        return MappingProxyType(
            {
                "network": "a network namespace without one" if has_walls else "refused names and refused requests",
                "files": "read-only" if has_walls else "not held",
                "memory": "control group" if held else "not held but for scripts",
            }
        )

    @property
    def pids(self) -> list[int]:
        """The processes of the browsers that are running."""
        return [one.pid for one in self._running if one.pid is not None and one.browser.is_connected()]

    async def open(self) -> BrowserPlace:
        """A place for one episode. BrowserError if no browser can be started."""
        from playwright.async_api import Error

        await self._free.acquire()
        try:
            for attempt in (1, 2):
                async with self._lock:
                    one = await self._one_with_room()
                try:
                    context = await asyncio.wait_for(self._context(one), LAUNCH_S)
                except (Error, TimeoutError) as problem:
                    await self._drop(one)
                    if attempt == 2:
                        raise BrowserError(f"a browser gives no place: {_first_line(problem)}") from problem
                    continue
                return BrowserPlace(context, one.browser, one.pid)
        except BaseException:
            self._free.release()
            raise
        raise AssertionError("the loop returns or raises")

    async def _context(self, one: _Running) -> BrowserContext:
        one.begun += 1
        context = await one.browser.new_context(
            viewport={"width": self.options.width, "height": self.options.height},
            accept_downloads=False,
            service_workers="block",
            locale="en-US",
            timezone_id="UTC",
            reduced_motion="reduce",
        )
        one.open.add(context)
        return context

    async def give_back(self, place: BrowserPlace) -> None:
        """Ends an episode's context. If it does not end, its browser is ended with all its contexts."""
        from playwright.async_api import Error

        one = next((one for one in self._running if place.context in one.open), None)
        if one is None:  # its browser is gone, and has released the place
            return
        one.open.discard(place.context)
        self._free.release()
        try:
            await asyncio.wait_for(place.context.close(), CLOSE_S)
        except TimeoutError:
            log.warning("browser ended pid=%s reason=a page cannot be closed episodes=%d", one.pid, len(one.open))
            await self._drop(one)
        except Error as problem:
            log.info("context ended with its browser pid=%s: %s", one.pid, _first_line(problem))
        if not one.open and one.begun >= self.options.lifetime and one in self._running:
            await self._drop(one)

    async def _one_with_room(self) -> _Running:
        for one in [one for one in self._running if not one.browser.is_connected()]:
            await self._drop(one)
        young = [one for one in self._running if one.begun < self.options.lifetime]
        least = min(young, key=lambda one: len(one.open), default=None)
        if least is not None and (not least.open or len(self._running) >= self.options.most_browsers):
            return least
        if least is not None and len(least.open) < self.options.contexts:
            return least
        return await self._start()

    async def _drop(self, one: _Running) -> None:
        """Ends a browser and releases its places."""
        if one not in self._running:
            return
        self._running.remove(one)
        for _ in one.open:
            self._free.release()
        one.open.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(one.browser.close(), CLOSE_S)
        await asyncio.to_thread(shutil.rmtree, one.folder, True)
        if one.group is not None:
            one.group.remove()

    async def _start(self) -> _Running:
        from playwright.async_api import Error

        executable = _executable(self.options.executable)
        if self._playwright is None:
            self._playwright = await _playwright()
        folder = Path(tempfile.mkdtemp(prefix="openclaw-rl-screen-"))
        group = self._group()
        wrapper = folder / "browser"
        wrapper.write_text(WRAPPER.format(words=" ".join(_walls(executable))))
        wrapper.chmod(0o700)
        doors = "" if group is None else " ".join(str(top / "cgroup.procs") for top in set(group.folders.values()))
        try:
            browser = await self._playwright.chromium.launch(
                executable_path=wrapper,
                args=list(ARGUMENTS),
                chromium_sandbox=False,  # it would need rights that our isolation does not give; see docs/screens.md
                timeout=LAUNCH_S * 1000,
                env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8", "SCREEN_GROUPS": doors},
            )
        except Error as problem:
            shutil.rmtree(folder, True)
            if group is not None:
                group.remove()
            raise BrowserError(
                f"{executable} does not start: {_first_line(problem)}", fix="run it by hand"
            ) from problem
        self.started += 1
        one = _Running(browser, await _pid(browser), group, folder)
        self._running.append(one)
        return one

    def _group(self) -> ControlGroup | None:
        if self._groups is None:
            return None
        limits = BoxLimits(memory_mb=self.options.memory_mb, disk_mb=1, processes=4_000)
        try:
            return self._groups.make(f"browser-{secrets.token_hex(4)}", limits)
        except OSError:
            return None

    async def aclose(self) -> None:
        """Ends every browser."""
        for one in [*self._running]:
            await self._drop(one)
        if self._playwright is not None:
            await self._playwright.stop()
            self._playwright = None
        if self._groups is not None:
            self._groups.remove()


async def _playwright() -> Playwright:
    try:
        from playwright.async_api import async_playwright
    except ImportError as problem:
        raise BrowserError("playwright is not installed", fix="pip install 'openclaw-rl[screen]'") from problem
    return await async_playwright().start()


async def _pid(browser: Browser) -> int | None:
    session = await browser.new_browser_cdp_session()
    facts = await session.send("SystemInfo.getProcessInfo")
    await session.detach()
    return next((int(one["id"]) for one in facts["processInfo"] if one["type"] == "browser"), None)


def _executable(given: str) -> str:
    found = given if given and Path(given).exists() else None
    if not given:
        found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise BrowserError(
            f"there is no browser {given!r}" if given else "no Chromium is installed",
            fix="install your system's package `chromium-headless-shell` or `chromium`, or name an executable",
        )
    return found


def _walls(executable: str) -> list[str]:
    """The command that starts it without a network, with only its own files writable."""
    if shutil.which("bwrap") is None:
        return [executable]
    own = tempfile.gettempdir()
    binds = ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--bind", own, own]
    return ["bwrap", *binds, "--unshare-net", "--die-with-parent", "--", executable]


def _first_line(problem: BaseException) -> str:
    return (str(problem) or type(problem).__name__).strip().splitlines()[0][:300]
