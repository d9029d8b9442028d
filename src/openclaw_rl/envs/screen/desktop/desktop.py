"""A desktop in a box: display, window manager and accessibility on a separate session bus, without a network."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.envs.box.sandbox import Boxes, BoxLimits, BoxSpec, ExecResult, Sandbox
from openclaw_rl.envs.screen.screen import BrowserError

INSIDE = Path(__file__).parent / "inside"
NEEDED = {
    "Xvfb": "xvfb",
    "openbox": "openbox",
    "xdotool": "xdotool",
    "dbus-daemon": "dbus",
    "/usr/libexec/at-spi-bus-launcher": "at-spi2-core",
    "/usr/lib/x86_64-linux-gnu/girepository-1.0/Atspi-2.0.typelib": "gir1.2-atspi-2.0",
}
HOME = "/root"
WIDTH, HEIGHT = 1024, 640
ENVIRONMENT = {
    "DISPLAY": ":7",
    "SIZE": f"{WIDTH}x{HEIGHT}",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/tmp/run/bus",
    "XDG_RUNTIME_DIR": "/tmp/run",
    "XDG_DATA_DIRS": "/usr/share",
    "GTK_MODULES": "gail:atk-bridge",
    "GSETTINGS_BACKEND": "memory",
    "SAL_USE_VCLPLUGIN": "gtk3",
    "PYTHONPATH": "/opt/desktop",
}
LIMITS = BoxLimits(memory_mb=1_024, processes=256, disk_mb=256)
START_S = 90.0
LOOK_S = 30.0
MOST_PICTURE_BYTES = 16_000_000


class Desktop:
    """One desktop. Its failures raise BoxError."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self._lock = asyncio.Lock()

    @classmethod
    async def create(cls, boxes: Boxes) -> Desktop:
        """An empty desktop in a new box."""
        missing = missing_programs()
        if missing:
            raise BrowserError("a desktop needs programs that are not here", fix=f"apt-get install {' '.join(missing)}")
        desktop = cls(await boxes.create(BoxSpec(workdir=HOME, limits=LIMITS)))
        try:
            await desktop._start()
        except BaseException:
            await desktop.aclose()
            raise
        return desktop

    async def _start(self) -> None:
        for name in ("start.sh", "eye.py", "pyautogui.py"):
            await self.box.write(f"/opt/desktop/{name}", await asyncio.to_thread((INSIDE / name).read_bytes))
        done = await self.run(["bash", "/opt/desktop/start.sh"], timeout_s=START_S)
        if not done.is_ok:
            said = (done.stderr.text or done.stdout.text).strip()[-400:]
            raise BrowserError(f"the desktop does not start ({done.exit_status}): {said}")

    async def run(self, command: str | Sequence[str], *, timeout_s: float) -> ExecResult:
        """The result of a command on the desktop."""
        return await self.box.exec(command, timeout_s=timeout_s, cwd=HOME, env=ENVIRONMENT)

    async def launch(self, command: str) -> None:
        """Starts a program that keeps running."""
        quiet = f"setsid {command} > /tmp/run/app.log 2>&1 < /dev/null &"
        await self.run(["bash", "-c", quiet], timeout_s=20)

    async def seen(self, what: str) -> bytes:
        """What eye.py sees: `tree` as XML, `picture` as PNG."""
        ask = f"echo {what} > /tmp/run/ask && read -r -t {LOOK_S:.0f} said < /tmp/run/answer && echo $said"
        async with self._lock:
            done = await self.run(["bash", "-c", ask], timeout_s=LOOK_S + 5)
            said = done.stdout.text.strip()
            if said != "ok":
                raise BrowserError(
                    f"the desktop shows no {what}: {said or done.stderr.text.strip()[:200] or 'no answer'}"
                )
            return await self.box.read("/tmp/run/seen", most_bytes=MOST_PICTURE_BYTES)

    async def reset(self) -> None:
        """Ends all programs, resets the box, and starts again."""
        await self.box.reset()
        await self._start()

    async def aclose(self) -> None:
        """Ends everything."""
        await self.box.aclose()


def missing_programs() -> list[str]:
    """The Debian packages that a desktop needs and this machine lacks."""
    return [
        package
        for name, package in NEEDED.items()
        if not (Path(name).exists() if name.startswith("/") else shutil.which(name))
        and not (name.endswith(".typelib") and [*Path("/usr/lib").glob("*/girepository-1.0/Atspi-2.0.typelib")])
    ]
