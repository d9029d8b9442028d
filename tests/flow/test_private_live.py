"""The command as strangers meet it: what stays out of its log and its files, and who is not learned from."""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
from flow_parts import Judging, Served, headers, start

from openclaw_rl.core.message import Json
from openclaw_rl.core.rights import Right
from openclaw_rl.home.keys import add_key

MARKER = "zanzibarcinnamon"
SECRET = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q" * 2
# What a toy is told here it cannot heed; it is to be learned from all the same.
CONFIG = (
    "[teach]\ndemonstrations = false\n[train]\nbatch_size = 1\nmin_batch = 1\n"
    "[trainer]\nrank = 4\nupdates = 4\nnice = 0\n"
    '[judge]\nvotes = 1\nurl = "{url}"\nmodel = "j"\n'
)


async def _talk(http: aiohttp.ClientSession, session: str, *words: str, key: str | None = None) -> list[str]:
    """A conversation in which each word follows the reply before it; the ids of its turns."""
    told, turns = list[Json](), []
    given = headers() if key is None else {"Authorization": f"Bearer {key}"}
    for word in words:
        told.append({"role": "user", "content": word})
        body = {"messages": told, "max_tokens": 200, "temperature": 0.0}
        async with http.post("/v1/chat/completions", json=body, headers={**given, "X-Session-Id": session}) as answer:
            assert answer.status == 200, await answer.text()
            turns.append(answer.headers["x-openclaw-rl-turn"])
            told.append((await answer.json())["choices"][0]["message"])
    return turns


async def _turn(server: Served, name: str, *, until: set[str]) -> dict[str, Json]:
    """A turn, once it is in one of these states."""
    deadline = time.monotonic() + 60
    while True:
        row = await server.get(f"/v1/rl/turns/{name}")
        if str(row["state"]) in until:
            return row
        assert time.monotonic() < deadline, row
        await asyncio.sleep(0.02)


async def test_what_is_private_stays_out_of_log_and_files_and_only_who_may_teaches(
    tmp_path: Path, running: list[Served], judging: Judging
) -> None:
    judging.hint = f"Speak of {MARKER} in plain words."
    home = tmp_path / "home"
    server = start(home, config=CONFIG.format(url=judging.url))
    running.append(server)
    key = add_key(home, "guest", frozenset({Right.CHAT}))  # while it runs
    ask = "What is 12 + 30? Show your work."
    async with aiohttp.ClientSession(server.url) as http:
        own = await _talk(http, "mine", f"{ask} {MARKER}", f"Shorter, please: {MARKER}")
        guests = await _talk(http, "theirs", ask, f"No, please say {MARKER}", key=key)
        secret = await _talk(http, "secret", f"{ask} My key is {SECRET}.", "Thanks")
    taught = await _turn(server, own[0], until={"ready", "trained", "dropped"})
    assert taught["state"] != "dropped", taught["explained"]
    for name, reason, words in (
        (guests[0], "may_not_teach", "does not have the right to teach"),
        (secret[0], "redacted", "1 secret, and its ids are not kept"),
        (secret[1], "redacted", "masked before it was stored"),
    ):
        row = await _turn(server, name, until={"dropped"})
        assert row["reason"] == reason and words in "; ".join(row["explained"])  # type: ignore[arg-type]
    assert server.end() == 0
    log = server.log.read_text("utf-8", "replace")
    assert "judged turn=" in log and MARKER not in log and SECRET not in log
    files = [path for path in home.rglob("*") if not path.is_symlink()]
    assert [path for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    assert not any(SECRET.encode() in path.read_bytes() for path in files if path.is_file())


def test_a_public_address_without_tls_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "openclaw_rl", "serve", "--home", str(tmp_path / "h"), "--host", "0.0.0.0"]
    done = subprocess.run([*command, "--api-key", "k"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "0.0.0.0 can be reached from other machines" in done.stderr and "--tls-cert" in done.stderr
