"""How well a newcomer finds their way: files and functions on the path of one turn, names, rooms and settings.

A real server on the bundled model answers a turn, is corrected, learns and serves what it learned; every function that
is entered meanwhile, over all its processes, is noted with the moment of its first entry. Start-up is left out. The
last line is one line of JSON.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import signal
import tempfile
from collections import Counter
from pathlib import Path

from openai.types.chat import ChatCompletionMessageParam

from benchmarks.common import finish, progress
from openclaw_rl.core.message import Json
from openclaw_rl.core.version import BASE
from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.server import Server, serving
from openclaw_rl.owner.settings_text import settings_text

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "openclaw_rl"
PAGE = ROOT / "docs" / "one-turn.md"
SHORT = 40  # lines
WITHIN_S, POLL_S = 240.0, 0.2
QUESTION = "Ivan has 6 shirts. Ivan buys 7 more and gives 7 of them to David. How many shirts does Ivan have left?"
CORRECTION = "Please write that in plain sentences, without markdown."
_NAMED = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", re.MULTILINE)
Entered = dict[tuple[str, str], int]  # file and function, to the moment of its first entry in nanoseconds


def named(page: Path = PAGE) -> list[tuple[str, str]]:
    """The files and functions that the page names, in its order."""
    return [(file, function) for file, function in _NAMED.findall(page.read_text("utf-8"))]


async def entered() -> Entered:
    """What is entered from a turn's request until the version that learned from it has answered one."""
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-house-") as folder:
        home, notes = Path(folder) / "home", Path(folder) / "notes"
        home.mkdir()
        notes.mkdir()
        hooks = os.pathsep.join((str(Path(__file__).parent / "entered"), os.environ.get("PYTHONPATH", "")))
        environment = {"PYTHONPATH": hooks, "OPENCLAW_RL_ENTERED": str(notes)}
        async with serving(home, model="bundled", environment=environment) as server:
            processes = [server.pid, *_below(server.pid)]
            for process in processes:
                os.kill(process, signal.SIGUSR1)
            await asyncio.sleep(1.0)
            await _turn(server)
            processes = [server.pid, *_below(server.pid)]
            for process in processes:
                os.kill(process, signal.SIGUSR2)
            async with asyncio.timeout(30.0):
                while len(list(notes.glob("*.json"))) < len(processes):  # noqa: ASYNC110 - other processes write them
                    await asyncio.sleep(POLL_S)
            return _read(notes)


async def _turn(server: Server) -> None:
    """A question, a correction, and another question once what was learned is served."""
    async with Client(server.base_url, server.key, await served_model(server.base_url, server.key)) as client:
        first = await client.say(
            [{"role": "user", "content": QUESTION}], session="one", temperature=0.0, max_tokens=200
        )
        talk: list[ChatCompletionMessageParam] = [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": CORRECTION},
        ]
        await client.say(talk, session="one", temperature=0.0, max_tokens=200)
        async with asyncio.timeout(WITHIN_S):
            while not await _has_learned(client):  # noqa: ASYNC110 - another process learns
                await asyncio.sleep(POLL_S)
        await client.say([{"role": "user", "content": QUESTION}], session="two", temperature=0.0, max_tokens=200)


async def _has_learned(client: Client) -> bool:
    rows = await client.versions()
    return any(row["status"] == "live" and row["version"] != str(BASE) for row in rows)


def _below(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text("ascii").split()
    return [found for child in map(int, children) for found in (child, *_below(child))]


def _read(notes: Path) -> Entered:
    found: Entered = {}
    for path in notes.glob("*.json"):
        for file, function, at in json.loads(path.read_text("utf-8")):
            name = (str(file), str(function).replace(".<locals>", ""))
            found[name] = min(int(at), found.get(name, int(at)))
    return found


def out_of_order(found: Entered, names: list[tuple[str, str]]) -> list[str]:
    """Which of the named functions were never entered, or before the one named in front of them."""
    wrong, latest = [], 0
    for name in names:
        at = found.get(name)
        if at is None:
            wrong.append(f"{name[0]} {name[1]} was not entered")
        elif at < latest:
            wrong.append(f"{name[0]} {name[1]} was entered before what stands in front of it")
        latest = max(latest, at or 0)
    return wrong


def names_twice() -> dict[str, list[str]]:
    """Class names that more than one module defines."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def sizes() -> dict[str, Json]:
    """Modules, their lines, and how many are short."""
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    rooms = Counter(path.relative_to(PACKAGE).parts[0] for path in lines if path.parent != PACKAGE)
    return {
        "modules": len(lines),
        "lines": sum(lines.values()),
        "short_modules": sum(0 < count < SHORT for count in lines.values()),
        "rooms": len(rooms),
    }


def main() -> None:
    """Prints the figures."""
    progress("a turn is answered, corrected, learned from and answered again; this takes about a minute")
    found, names = asyncio.run(entered()), named()
    files = sorted({file for file, _ in found})
    for file in files:
        progress(f"  entered: {file}")
    finish(
        {
            "files_named": len(dict.fromkeys(file for file, _ in names)),
            "out_of_order": out_of_order(found, names),
            "files_entered": len(files),
            "class_names_twice": len(names_twice()),
            "settings": len(re.findall(r"^# \w+ (?:=|is unset)", settings_text(), re.MULTILINE)),
            "settings_advanced": len(re.findall(r"^# \w+ (?:=|is unset)", settings_text(advanced=True), re.MULTILINE)),
            **sizes(),
        }
    )


if __name__ == "__main__":
    main()
