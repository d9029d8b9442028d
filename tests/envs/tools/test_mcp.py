"""MCP servers, run for real: made with the official SDK or by hand, in boxes, on this machine and over HTTP."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from openclaw_rl.envs.box.sandbox import Boxes, BoxSpec
from openclaw_rl.envs.open import EnvOptions, open_env
from openclaw_rl.envs.task import Action, Failure
from openclaw_rl.envs.tasks.sources import find_sources
from openclaw_rl.envs.tools.mcp import McpTools
from openclaw_rl.envs.tools.mcp_servers import McpServer
from openclaw_rl.envs.tools.provider import CallStatus
from openclaw_rl.errors import BoxError, TaskError
from openclaw_rl.evals.server import free_port

SERVERS = Path(__file__).parent / "servers"
PATIENT_S = 30.0

pytestmark = pytest.mark.slow
pytest.importorskip("mcp")


@pytest.fixture
async def sums(plain: Boxes) -> AsyncIterator[McpTools]:
    """The SDK's server in a box."""
    box = await plain.create(BoxSpec())
    await box.write("server.py", (SERVERS / "sums.py").read_bytes())
    tools = McpTools(McpServer("sums", "python3", ("server.py",)), box, most_characters=1000)
    await tools.start()
    yield tools
    await tools.aclose()


async def said(tools: McpTools, name: str, timeout_s: float = PATIENT_S, **arguments: object) -> tuple[CallStatus, str]:
    done = await tools.call(Action(name, arguments), timeout_s=timeout_s)  # type: ignore[arg-type]
    return done.status, done.text


async def test_the_tools_of_a_server_are_listed_and_called(sums: McpTools) -> None:
    assert [tool.name for tool in sums.tools][:3] == ["add", "keep", "long"]
    assert sums.tools[0].description == "Add two numbers."
    assert sums.tools[0].parameters["required"] == ["a", "b"]
    assert await said(sums, "add", a=1, b=2) == (CallStatus.OK, "3")
    assert await said(sums, "keep", amount=3) == (CallStatus.OK, "the total is 3")
    assert await said(sums, "keep", amount=3) == (CallStatus.OK, "the total is 6")


async def test_errors_of_a_tool_are_shown_as_they_came(sums: McpTools) -> None:
    status, text = await said(sums, "fail", why="no é")
    assert status is CallStatus.RAISED and "no é" in text
    status, text = await said(sums, "add", a="x")
    assert status is CallStatus.RAISED and "valid integer" in text
    assert (await said(sums, "no_such_tool"))[0] in (CallStatus.RAISED, CallStatus.REFUSED)
    assert await said(sums, "add", a=1, b=2) == (CallStatus.OK, "3")


async def test_long_results_arrive_whole_and_are_shown_cut(sums: McpTools) -> None:
    status, text = await said(sums, "long", size=150_000)
    assert status is CallStatus.OK and "[... 149000 characters left out ...]" in text and text.strip("é")[0] == "\n"
    assert await said(sums, "size", text="é\n'" * 50_000) == (CallStatus.OK, "150000")


async def test_a_message_that_is_far_too_long_costs_the_server_and_not_the_episode(sums: McpTools) -> None:
    status, _ = await said(sums, "flood", 5.0)
    assert status is CallStatus.LOST
    assert await said(sums, "add", a=1, b=2) == (CallStatus.OK, "3")


async def test_what_is_not_a_message_is_passed_over(sums: McpTools) -> None:
    assert await said(sums, "babble") == (CallStatus.OK, "babbled")


async def test_a_tool_that_takes_too_long_is_given_up_and_its_server_is_kept(sums: McpTools) -> None:
    await said(sums, "keep", amount=3)
    assert await said(sums, "wait", 0.5, seconds=30) == (CallStatus.TIMEOUT, "[stopped, it took longer than 0.5 s]")
    assert await said(sums, "keep", amount=1) == (CallStatus.OK, "the total is 4")


@pytest.mark.parametrize("name", ["die", "hang"])
async def test_a_server_that_dies_or_hangs_is_started_again(sums: McpTools, name: str) -> None:
    await said(sums, "keep", amount=3)
    status, text = await said(sums, name, 1.0)
    assert status is CallStatus.LOST and "the next call starts it again" in text
    assert await said(sums, "keep", amount=1) == (CallStatus.OK, "the total is 1")


async def test_a_server_that_does_not_start_is_a_broken_task(plain: Boxes) -> None:
    box = await plain.create(BoxSpec())
    await box.write("bad.py", b"raise SystemExit('sorry')")
    with pytest.raises(TaskError, match=r"no-such-program, which is not in the box"):
        await McpTools(McpServer("s", "no-such-program"), box).start()
    with pytest.raises(TaskError, match="cannot be used"):
        await McpTools(McpServer("s", "python3", ("bad.py",)), box).start()


async def test_a_server_on_this_machine_is_used_where_whoever_makes_the_environment_says_so() -> None:
    tools = McpTools(McpServer("sums", sys.executable, (str(SERVERS / "sums.py"),), on_host=True), None)
    await tools.start()
    assert await said(tools, "add", a=1, b=2) == (CallStatus.OK, "3")
    assert (await said(tools, "die", 5.0))[0] is CallStatus.LOST
    await tools.aclose()


@pytest.fixture
def http() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The same server over streamable HTTP."""
    port = free_port()
    process = subprocess.Popen([sys.executable, str(SERVERS / "sums.py"), "http", str(port)], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}/mcp", process
    process.kill()
    process.wait()


async def test_a_server_over_http_is_called_and_its_end_is_the_machines_failure(
    http: tuple[str, subprocess.Popen[bytes]],
) -> None:
    url, process = http
    tools = McpTools(McpServer("sums", url=url), None)
    await tools.start()
    assert await said(tools, "add", a=1, b=2) == (CallStatus.OK, "3")
    process.kill()
    process.wait()
    status, _ = await said(tools, "add", 5.0, a=1, b=2)
    assert status is CallStatus.LOST
    await tools.aclose()
    with pytest.raises(BoxError, match=r"See that http://127.*answers"):
        await McpTools(McpServer("sums", url=url), None).start()


TASK = {
    "task.toml": """[environment]
[[environment.mcp_servers]]
name = "notes"
transport = "stdio"
command = "python3"
args = ["/srv/notes.py"]
[verifier]
timeout_sec = 20.0
""",
    "instruction.md": "Keep a note named a which says hello. Then answer how many characters it has.",
    "environment/Dockerfile": "FROM debian:12\nCOPY notes.py /srv/notes.py\nWORKDIR /app\n",
    "environment/notes.py": (SERVERS / "bare.py").read_text(),
    "tests/test.sh": (
        '[ "$(cat /app/a)" = hello ] && [ "$(cat /logs/agent/answer.txt)" = 5 ] && r=1\n'
        "echo ${r:-0} > /logs/verifier/reward.txt\n"
    ),
    "solution/solve.sh": "printf hello > /app/a; mkdir -p /logs/agent; printf 5 > /logs/agent/answer.txt\n",
}


async def test_a_task_in_harbors_layout_names_its_servers_and_is_judged_by_what_they_left(
    isolated: Boxes, tmp_path: Path
) -> None:
    for name, text in TASK.items():
        (tmp_path / "keep" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "keep" / name).write_text(text)
    (source,) = find_sources(tmp_path)
    env = open_env("tools", source, isolated, options=EnvOptions(command_s=PATIENT_S))
    seen = await env.reset(source.tasks["keep"])
    assert seen.info.failure is None, seen.info.reason
    assert [tool.name for tool in seen.tools] == ["note", "answer"]
    assert (await env.evaluate()).reward == 0.0
    result = await env.step([Action("note", {"name": "a", "text": "hello"}), Action("answer", {"value": 5})])
    assert result.observation.parts[0].text == "5 characters kept"
    assert (await env.evaluate()).is_success
    # opened by one task and closed by another, as a server of environments does
    await asyncio.create_task(env.aclose())


async def test_a_task_whose_server_is_missing_fails_as_the_environments(isolated: Boxes, tmp_path: Path) -> None:
    for name, text in TASK.items():
        (tmp_path / "keep" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "keep" / name).write_text(text.replace("/srv/notes.py", "/srv/other.py", 1))
    (tmp_path / "keep" / "environment" / "Dockerfile").write_text("FROM debian:12\n")
    (source,) = find_sources(tmp_path)
    env = open_env("tools", source, isolated)
    seen = await env.reset(source.tasks["keep"])
    assert seen.info.failure is Failure.ENVIRONMENT and "notes cannot be used" in seen.info.reason
    assert (await env.evaluate()).failure is Failure.ENVIRONMENT
    await env.aclose()
