"""The official `openai` client for Node over real HTTP: tests/node asks, and what it is answered is scripted here."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from serve_doubles import Serving

from openclaw_rl.core.completion import Finish

ROOT = Path(__file__).parent.parent.parent
SOURCE, SCRATCH = ROOT / "tests" / "node", ROOT / "build" / "node-client"
NODE = "24.21.0"  # the client wants 22 or later
INSTALL_S = 600.0
CALLS = (
    "<think>\nfirst the file\n</think>\n\nI read it.\n"
    '<tool_call>\n{"name": "read", "arguments": {"path": "a ü"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "read", "arguments": {"path": "b"}}\n</tool_call>'
)
CALLED = [["read", {"path": "a ü"}], ["read", {"path": "b"}]]


def _installed() -> Path:
    """Node and the client in a folder that is kept; skips where there is no npm to fetch them with."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is needed to fetch Node and its openai client; it comes with any Node (apt-get install npm)")
    system = {"linux": "linux", "darwin": "darwin"}[sys.platform]
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine().lower()]
    package = f"node-{system}-{machine}"
    node, mark = SCRATCH / "node_modules" / package / "bin" / "node", SCRATCH / "installed"
    wanted = f"{NODE}\n{(SOURCE / 'package.json').read_text('utf-8')}"
    SCRATCH.mkdir(parents=True, exist_ok=True)
    shutil.copy(SOURCE / "client.mjs", SCRATCH / "client.mjs")
    if not (node.exists() and mark.is_file() and mark.read_text("utf-8") == wanted):
        shutil.copy(SOURCE / "package.json", SCRATCH / "package.json")
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-save")
        done = subprocess.run(
            [npm, "install", *quiet, f"{package}@{NODE}"],
            cwd=SCRATCH,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
        assert done.returncode == 0 and node.exists(), (done.stdout + done.stderr)[-2000:]
        mark.write_text(wanted, "utf-8")
    return node


def _script(server: Serving) -> list[int]:
    """The answers in the order in which the client asks; how many tokens each has."""
    said = [server.says("hello there"), server.says("hello there"), server.says(CALLS), server.says("done")]
    said += [server.says("heSTOPno"), server.says("hello there")]
    said += [server.says("hello there"), server.says(CALLS), server.says("done"), server.says("hello there")]
    said += [server.says("hello there", waits_at=2), server.says("hello there", waits_at=2)]
    return [len(ids) for ids in said]


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_the_node_client_gets_what_the_python_client_gets(server: Serving) -> None:
    node = await asyncio.to_thread(_installed)
    sizes = _script(server)
    process = await asyncio.create_subprocess_exec(
        str(node),
        str(SCRATCH / "client.mjs"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "BASE_URL": f"{server.url}/v1", "API_KEY": "secret"},
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    told = json.loads(out)
    for _ in sizes:
        await server.book.committed.get()
    _check_chat(told, sizes)
    _check_responses(told, sizes)
    turns = server.book.turns
    assert [turn.completion.finish for turn in turns[-2:]] == [Finish.CANCELLED] * 2
    for before, after in ((turns[2], turns[3]), (turns[7], turns[8])):
        assert after.prompt.continued >= len(before.prompt) + len(before.completion.tokens)
    assert told["unknownModel"] == {
        "kind": "NotFoundError",
        "status": 404,
        "code": "model_not_found",
        "param": "model",
    }
    assert (told["forced"]["kind"], told["forced"]["param"]) == ("BadRequestError", "tool_choice")
    assert told["unknownResponse"]["code"] == "previous_response_not_found"


def _check_chat(told: dict[str, dict[str, object]], sizes: list[int]) -> None:
    chat, stream = told["chat"], told["chatStream"]
    assert (chat["text"], chat["finish"]) == ("hello there", "stop")
    assert stream["text"] == "hello there" and stream["pieces"] == sizes[1] - 1
    for usage, size in ((chat["usage"], sizes[0]), (stream["usage"], sizes[1])):
        assert isinstance(usage, dict) and usage["completion_tokens"] == size
    assert told["chatCalls"] == {"finish": "tool_calls", "reasoning": "first the file", "calls": CALLED}
    assert told["chatLoop"] == "done"
    assert told["chatStop"] == ["he", "stop"] and told["chatLength"] == "length"


def _check_responses(told: dict[str, dict[str, object]], sizes: list[int]) -> None:
    response, stream = told["response"], told["responseStream"]
    assert (response["text"], response["status"]) == ("hello there", "completed")
    assert isinstance(response["usage"], dict) and response["usage"]["output_tokens"] == sizes[6]
    kinds, numbers = stream["kinds"], stream["numbers"]
    assert isinstance(kinds, list) and numbers == list(range(len(kinds)))
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    assert stream["types"] == ["reasoning", "message", "function_call", "function_call"]
    assert stream["calls"] == CALLED
    assert told["responseLoop"] == "done" == told["responseFetched"]
    assert told["responseLength"] == ["incomplete", "max_output_tokens"]
