"""An MCP server that runs in a box: two shells of that box carry its input and output."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator
from typing import Any

from openclaw_rl.envs.box.sandbox import Sandbox, Shell
from openclaw_rl.envs.tools.mcp_servers import McpServer
from openclaw_rl.errors import BoxError, TaskError

START_S = 20.0
WHOLE_EPISODE_S = 86_400.0
PIECE = 48_000  # bytes read at once: less than the output that a shell keeps
MOST_MESSAGE_BYTES = 8_000_000
NO_COMMAND = 251
# The pipes are where both shells can open them; `cat` buffers the server's output until it is read.
START = """trap '' PIPE
command -v {command} >/dev/null || exit {no_command}
folder=$(mktemp -d) && mkfifo "$folder/i" "$folder/o" || exit 1
env {env} {command} {args} <"$folder/i" >"$folder/o" 2>"$folder/errors" &
exec 8>"$folder/i" && printf '%s' "$folder"
"""
READ = "IFS= LC_ALL=C read -r -n {piece} line <&9 && printf '%s' \"$line\""


@contextlib.asynccontextmanager
async def box_transport(box: Sandbox, server: McpServer) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of a server, for the SDK's client. TaskError if its command is not in the box."""
    import anyio

    to_client, incoming = anyio.create_memory_object_stream[Any](16)
    outgoing, from_client = anyio.create_memory_object_stream[Any](0)
    writer = await box.open_shell()
    reader: Shell | None = None
    try:
        folder = await _started(writer, server)
        reader = await box.open_shell()
        opened = await reader.run(f"exec 9<{shlex.quote(folder)}/o && rm {shlex.quote(folder)}/[io]", timeout_s=START_S)
        if opened.exit_status != 0 or opened.killed_by is not None:
            raise TaskError(f"the MCP server {server.name} does not start: {opened.output.text.strip()[-500:]}")
        reading = asyncio.create_task(_read_all(reader, to_client))
        writing = asyncio.create_task(_write_all(writer, from_client, to_client))
        try:
            yield incoming, outgoing
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)
    finally:
        for stream in (to_client, incoming, outgoing, from_client):
            stream.close()
        for shell in (writer, reader):
            if shell is not None:
                with contextlib.suppress(BoxError):  # a box that is gone has no shells
                    await shell.aclose()


async def _started(shell: Shell, server: McpServer) -> str:
    command = START.format(
        command=shlex.quote(server.command),
        args=shlex.join(server.args),
        env=shlex.join(f"{name}={value}" for name, value in server.env.items()),
        no_command=NO_COMMAND,
    )
    done = await shell.run(command, timeout_s=START_S)
    if done.exit_status == NO_COMMAND:
        raise TaskError(f"the MCP server {server.name} needs {server.command}, which is not in the box")
    if done.exit_status != 0 or done.killed_by is not None:
        raise TaskError(f"the MCP server {server.name} does not start: {done.output.text.strip()[-500:]}")
    return done.output.text.strip()


async def _read_all(shell: Shell, to_client: Any) -> None:
    """Passes on each line of the server, until it ends or prints too much."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    command, line = READ.format(piece=PIECE), b""
    with to_client:  # closed when the server ends: so that the session stops waiting for an answer
        while len(line) <= MOST_MESSAGE_BYTES:
            try:
                done = await shell.run(command, timeout_s=WHOLE_EPISODE_S)
            except BoxError:
                return
            if done.exit_status != 0 or done.killed_by is not None:
                return
            piece = done.output.head + done.output.tail
            line += piece
            if len(piece) == PIECE:
                continue
            message, line = line, b""
            try:
                await to_client.send(SessionMessage(jsonrpc_message_adapter.validate_json(message, by_name=False)))
            except ValueError as problem:  # a line that is not a message: the session gets the error, and continues
                await to_client.send(problem)


async def _write_all(shell: Shell, from_client: Any, to_client: Any) -> None:
    """Passes each message to the server, until it accepts no more."""
    with to_client:
        async for given in from_client:
            text = given.message.model_dump_json(by_alias=True, exclude_unset=True)
            pieces = [text[at : at + PIECE // 2] for at in range(0, len(text), PIECE // 2)]
            for number, piece in enumerate(pieces, 1):
                end = "\\n" if number == len(pieces) else ""
                done = await shell.run(f"printf '%s{end}' {shlex.quote(piece)} >&8", timeout_s=START_S)
                if done.exit_status != 0 or done.killed_by is not None:
                    return
