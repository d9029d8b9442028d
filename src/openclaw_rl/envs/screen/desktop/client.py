"""A client of OSWorld's guest protocol: it drives our desktops and VMs with OSWorld's server alike."""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp

from openclaw_rl.core.message import Json
from openclaw_rl.envs.screen.screen import BrowserError

CALL_S = 150.0


class GuestClient:
    """Calls of one guest. BrowserError if it does not answer, or says that it failed."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_S))

    async def screenshot(self) -> bytes:
        """The screen as a PNG."""
        return await self._call("GET", "/screenshot")

    async def tree(self) -> str:
        """The accessibility tree as XML."""
        found = await self._json("GET", "/accessibility")
        text = found.get("AT") if isinstance(found, dict) else None
        if not isinstance(text, str):
            raise BrowserError(f"{self.url} gives no accessibility tree")
        return text

    async def execute(self, command: str | Sequence[str], *, shell: bool = False) -> dict[str, Json]:
        """`output`, `error` and `returncode` of a command."""
        words: Json = command if isinstance(command, str) else [*command]
        found = await self._json("POST", "/execute", {"command": words, "shell": shell})
        if not isinstance(found, dict):
            raise BrowserError(f"{self.url} answers a command with {str(found)[:100]}")
        return found

    async def python(self, code: str) -> None:
        """Runs Python with pyautogui in the guest; BrowserError if it fails there."""
        lines = f"import pyautogui, time; pyautogui.FAILSAFE = False; {code}"
        found = await self.execute(["python3", "-c", lines])
        if found.get("returncode") not in (0, None):
            raise BrowserError(f"the guest could not do {code[:100]!r}: {str(found.get('error'))[-300:]}")

    async def file(self, path: str) -> bytes | None:
        """The content of a file; None if there is none."""
        form = aiohttp.FormData({"file_path": path})
        return await self._call("POST", "/file", form=form, missing=True)

    async def upload(self, path: str, data: bytes) -> None:
        """Writes a file."""
        form = aiohttp.FormData({"file_path": path})
        form.add_field("file_data", data, filename="data")
        await self._call("POST", "/setup/upload", form=form)

    async def setup(self, what: str, parameters: dict[str, Json]) -> None:
        """One of the protocol's calls that prepare a task: launch, open_file, activate_window, close_window."""
        await self._call("POST", f"/setup/{what}", json=parameters)

    async def _json(self, method: str, path: str, body: dict[str, Json] | None = None) -> Json:
        import json

        try:
            found: Json = json.loads(await self._call(method, path, json=body))
        except ValueError as problem:
            raise BrowserError(f"{self.url}{path} answers with what is not JSON") from problem
        return found

    async def _call(
        self,
        method: str,
        path: str,
        *,
        json: dict[str, Json] | None = None,
        form: aiohttp.FormData | None = None,
        missing: bool = False,
    ) -> bytes:
        try:
            async with self._session.request(method, self.url + path, json=json, data=form) as answer:
                data = await answer.read()
                if answer.status == 404 and missing:
                    return None  # type: ignore[return-value]
                if answer.status >= 400:
                    raise BrowserError(
                        f"{self.url}{path} answers {answer.status}: {data[:300].decode('utf-8', 'replace')}"
                    )
                return data
        except (TimeoutError, aiohttp.ClientError, OSError) as problem:
            raise BrowserError(f"{self.url}{path} does not answer: {problem or type(problem).__name__}") from problem

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._session.close()
