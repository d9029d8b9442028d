"""`openclaw-rl connect` against a running server, as a person would run it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from openclaw_rl.evals.server import Server, serving

OTHERWISE = "side: connection test (of openclaw-rl connect; otherwise main: "


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A server with the bundled model that does not learn."""
    home = tmp_path / "home"
    home.mkdir()
    async with serving(home, model="bundled", options=("--no-learn",), environment={"OMP_NUM_THREADS": "1"}) as running:
        yield running


async def _connect(server: Server, *words: str, key: str | None = None) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; the client's home is the server's."""
    environment = {**os.environ, "HOME": str(server.home), "COLUMNS": "500", "SGLANG_API_KEY": key or server.key}
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "openclaw_rl", "connect", *words, "--home", str(server.home)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    out, err = await child.communicate()
    return child.returncode or 0, out.decode(), err.decode()


async def test_openclaw_is_connected_and_the_server_recognises_its_turns(server: Server) -> None:
    path = server.home / ".openclaw" / "openclaw.json"
    code, _, said = await _connect(server, "openclaw")
    assert code == 0, said
    provider = json.loads(path.read_text("utf-8"))["models"]["providers"]["openclaw-rl"]
    assert provider["baseUrl"] == server.base_url and provider["apiKey"] == server.key
    assert "test turn over /v1/chat/completions: side" in said and OTHERWISE in said
    assert "session from the Runtime line" in said

    code, _, said = await _connect(server, "openclaw", "--no-test")
    assert code == 0 and "is already correct" in said
    assert [each.name for each in path.parent.iterdir()] == ["openclaw.json"]

    code, printed, _ = await _connect(server, "openclaw", "--print", "--extension")
    assert code == 0
    assert json.loads(printed)["plugins"]["entries"]["openclaw-rl"]["hooks"] == {"allowConversationAccess": True}

    code, _, said = await _connect(server, "openclaw", "--no-test", key="another")
    assert code == 2 and "does not take this API key" in said

    code, _, said = await _connect(server, "openclaw", "--undo")
    assert code == 0 and "took away" in said and not path.exists()

    code, printed, said = await _connect(server, "claude-code")
    assert code == 0 and f"ANTHROPIC_BASE_URL={server.base_url.removesuffix('/v1')}\n" in printed
    assert "test turn over /v1/messages: side" in said and OTHERWISE in said
    assert "claude-code needs 64000 at least" in said  # the bundled model's context is short

    profile = server.home / ".codex" / "openclaw-rl.config.toml"
    code, _, said = await _connect(server, "codex")
    assert code == 0 and "test turn over /v1/responses: side" in said and OTHERWISE in said, said
    assert tomllib.loads(profile.read_text("utf-8"))["model_provider"] == "openclaw-rl"
    profile.write_text("model = 'mine'\n", "utf-8")
    code, _, said = await _connect(server, "codex", "--no-test")
    assert code == 2 and "was not written by this command" in said
    assert profile.read_text("utf-8") == "model = 'mine'\n"
    await _other_clients_files_are_written_and_restored(server)
    await _an_image_is_counted_in_the_status(server)


async def _an_image_is_counted_in_the_status(server: Server) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    body = {"messages": [{"role": "user", "content": [image]}], "max_tokens": 1}
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {server.key}"}) as http:
        async with http.post(f"{server.base_url}/chat/completions", json=body) as answer:
            assert answer.headers["x-openclaw-rl-placeholders"] == "image=1"
        async with http.get(f"{server.base_url}/rl/status") as answer:
            assert (await answer.json())["placeholders"] == {"image": 1}


async def _other_clients_files_are_written_and_restored(server: Server) -> None:
    settings = server.home / "settings.json"
    settings.write_text('{"permissions": {"allow": ["Bash(ls)"]}, "env": {"MINE": "1"}}', "utf-8")
    code, printed, said = await _connect(server, "claude-code", "--file", str(settings), "--no-test")
    held = json.loads(settings.read_text("utf-8"))
    assert (
        code == 0 and printed == "" and held["env"]["MINE"] == "1" and held["env"]["ANTHROPIC_AUTH_TOKEN"] == server.key
    )
    code, _, said = await _connect(server, "claude-code", "--file", str(settings), "--undo")
    assert json.loads(settings.read_text("utf-8")) == {"permissions": {"allow": ["Bash(ls)"]}, "env": {"MINE": "1"}}

    path = server.home / ".config" / "opencode" / "opencode.json"
    code, printed, said = await _connect(server, "opencode", "--no-test")
    assert code == 0 and printed == "" and f"wrote {path}" in said
    assert json.loads(path.read_text("utf-8"))["provider"]["openclaw-rl"]["options"]["baseURL"] == server.base_url
    code, printed, _ = await _connect(server, "mini-swe-agent", "--print")
    assert (
        code == 0
        and f"OPENAI_API_BASE='{server.base_url}'" in printed
        and not (path.parents[1] / "mini-swe-agent").exists()
    )
    profile = server.home / ".codex" / "openclaw-rl.config.toml"
    code, _, said = await _connect(server, "codex", "--undo")
    assert code == 0 and "has no entry of this command" in said and profile.exists()  # it is the user's by now
    listed = server.home / ".continue" / "config.yaml"
    code, _, said = await _connect(server, "continue", "--no-test")
    assert code == 0 and "OpenClaw-RL" in listed.read_text("utf-8")
    code, _, said = await _connect(server, "continue", "--undo")
    assert code == 0 and "took away" in said and not listed.exists()
    code, printed, said = await _connect(server, "cline", "--undo")
    assert code == 0 and "nothing was written to a file" in said


@pytest.mark.parametrize(("words", "said"), [(("nobody",), "there is no client"), ((), "no client is named")])
async def test_a_client_that_is_not_known_is_answered_with_those_that_are(words: tuple[str, ...], said: str) -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "openclaw_rl", "connect", *words),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "500"},
    )
    _, err = await child.communicate()
    assert child.returncode == 2 and said in err.decode() and "librechat" in err.decode()
