"""OSWorld's guest HTTP protocol for our desktops: clients and tasks find what they would find in a VM."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Awaitable, Callable

from aiohttp import web

from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.sandbox import ExecResult
from openclaw_rl.envs.screen.desktop.desktop import HEIGHT, HOME, WIDTH, Desktop
from openclaw_rl.errors import BoxError

COMMAND_S = 120.0
MOST_FILE_BYTES = 64_000_000
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guest:
    """One desktop's server, on the loopback interface and a free port. Programs run inside the box."""

    def __init__(self, desktop: Desktop) -> None:
        self.desktop = desktop
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def open(self) -> Guest:
        """Listens."""
        app = web.Application(client_max_size=MOST_FILE_BYTES)
        for method, path, handler in self._routes():
            app.router.add_route(method, path, _answering(handler))
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def aclose(self) -> None:
        """Stops listening and ends the desktop."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        await self.desktop.aclose()

    def _routes(self) -> list[tuple[str, str, Handler]]:
        return [
            ("GET", "/screenshot", self._screenshot),
            ("GET", "/accessibility", self._accessibility),
            ("GET", "/platform", self._platform),
            ("GET", "/cursor_position", self._cursor),
            ("POST", "/screen_size", self._screen_size),
            ("POST", "/desktop_path", self._desktop_path),
            ("POST", "/list_directory", self._list),
            ("POST", "/execute", self._execute),
            ("POST", "/setup/execute", self._execute),
            ("POST", "/setup/launch", self._launch),
            ("POST", "/setup/open_file", self._open),
            ("POST", "/setup/upload", self._upload),
            ("POST", "/setup/activate_window", self._activate),
            ("POST", "/setup/close_window", self._close_window),
            ("POST", "/file", self._file),
        ]

    async def _screenshot(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(body=await self.desktop.seen("picture"), content_type="image/png")

    async def _accessibility(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response({"AT": (await self.desktop.seen("tree")).decode("utf-8", "replace")})

    async def _platform(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(text="Linux")

    async def _cursor(self, _request: web.Request) -> web.StreamResponse:
        done = await self._run(["xdotool", "getmouselocation", "--shell"])
        facts = dict(line.split("=", 1) for line in done.stdout.text.split() if "=" in line)
        return web.json_response([int(facts.get("X", 0)), int(facts.get("Y", 0))])

    async def _screen_size(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response({"width": WIDTH, "height": HEIGHT})

    async def _desktop_path(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response({"desktop_path": f"{HOME}/Desktop"})

    async def _list(self, request: web.Request) -> web.StreamResponse:
        path = _text(await _fields(request), "path")
        done = await self._run(["find", path, "-mindepth", "1", "-maxdepth", "1", "-printf", "%y %f\\n"])
        if not done.is_ok:
            return web.json_response({"error": f"{path} is not a folder"}, status=400)
        lines = [line.split(" ", 1) for line in done.stdout.text.splitlines()]
        children = [{"type": "directory" if kind == "d" else "file", "name": name} for kind, name in lines]
        return web.json_response(
            {"directory_tree": {"type": "directory", "name": posixpath.basename(path), "children": children}}
        )

    async def _execute(self, request: web.Request) -> web.StreamResponse:
        asked = await _fields(request)
        done = await self._run(_command(asked))
        answer = {
            "status": "success",
            "output": done.stdout.text,
            "error": done.stderr.text,
            "returncode": done.exit_status,
        }
        if done.killed_by is not None:
            answer = {"status": "error", "message": f"ended by {done.killed_by} after {done.duration_s:.0f} s"}
        return web.json_response(answer, status=200 if done.killed_by is None else 500)

    async def _launch(self, request: web.Request) -> web.StreamResponse:
        command = _command(await _fields(request))
        await self.desktop.launch(shlex.join(command))
        return web.Response(text=f"{command[0]} was started")

    async def _open(self, request: web.Request) -> web.StreamResponse:
        path = _text(await _fields(request), "path")
        await self.desktop.launch(shlex.join(["mousepad", path]))  # no desktop environment here knows file types
        return web.Response(text=f"{path} was opened")

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        path, data = form.get("file_path"), form.get("file_data")
        if not isinstance(path, str) or not isinstance(data, web.FileField):
            return web.json_response({"error": "file_path and file_data are needed"}, status=400)
        await self.desktop.box.write(_absolute(path), data.file.read())
        return web.Response(text="the file was written")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        path = form.get("file_path")
        if not isinstance(path, str):
            return web.json_response({"error": "file_path is needed"}, status=400)
        done = await self._run(["test", "-f", _absolute(path)])
        if not done.is_ok:
            return web.json_response({"error": f"there is no file {path}"}, status=404)
        data = await self.desktop.box.read(_absolute(path), most_bytes=MOST_FILE_BYTES)
        return web.Response(body=data, content_type="application/octet-stream")

    async def _activate(self, request: web.Request) -> web.StreamResponse:
        return await self._window(request, ["windowactivate", "--sync"])

    async def _close_window(self, request: web.Request) -> web.StreamResponse:
        return await self._window(request, ["windowclose"])

    async def _window(self, request: web.Request, verb: list[str]) -> web.StreamResponse:
        asked = await _fields(request)
        by = "--class" if asked.get("by_class") else "--name"
        done = await self._run(["xdotool", "search", "--onlyvisible", by, _text(asked, "window_name")])
        found = done.stdout.text.split()
        if not found:
            return web.json_response({"error": "there is no such window"}, status=404)
        await self._run(["xdotool", *verb, found[0]])
        return web.Response(text="done")

    async def _run(self, command: list[str]) -> ExecResult:
        return await self.desktop.run(command, timeout_s=COMMAND_S)


def _answering(handler: Handler) -> Handler:
    """A handler whose errors become the protocol's answer: an object with `status` and `message`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except ValueError as problem:
            return web.json_response({"status": "error", "message": str(problem)}, status=400)
        except (TimeoutError, BoxError) as problem:
            return web.json_response({"status": "error", "message": str(problem)}, status=503)

    return answer


async def _fields(request: web.Request) -> dict[str, Json]:
    found = await request.json() if request.can_read_body else {}
    if not isinstance(found, dict):
        raise ValueError("the body is not an object")
    return found


def _text(asked: dict[str, Json], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"`{name}` is needed, a text")
    return value


def _command(asked: dict[str, Json]) -> list[str]:
    """The arguments of a command; with `shell` it is one text for bash. `python` is the system's python3."""
    command = asked.get("command")
    if asked.get("shell"):
        return ["bash", "-c", command if isinstance(command, str) else shlex.join(map(str, command or []))]  # type: ignore[arg-type]
    words = (
        shlex.split(command)
        if isinstance(command, str)
        else [str(word) for word in command]
        if isinstance(command, list)
        else []
    )
    if not words:
        raise ValueError("`command` is needed")
    words = [HOME + word[1:] if word.startswith("~/") else word for word in words]
    return ["python3", *words[1:]] if words[0] == "python" else words


def _absolute(path: str) -> str:
    path = HOME + path[1:] if path.startswith("~") else path
    return posixpath.normpath(posixpath.join(HOME, path))
