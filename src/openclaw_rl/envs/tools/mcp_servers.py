"""The MCP servers that a task names, in the form of Harbor's task.toml and of clients' settings files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openclaw_rl.core.message import Json
from openclaw_rl.envs.task import Task
from openclaw_rl.errors import TaskError

KEY = "mcp_servers"
OVER_HTTP = ("streamable-http", "http", "sse")


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server: a command with its arguments, or an address.

    A command runs in the episode's box. `on_host` runs it on this machine instead, with all your rights: no task
    can ask for that, only the code that makes the environment.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    is_sse: bool = False
    on_host: bool = False


def servers_of(task: Task) -> tuple[McpServer, ...]:
    """The servers in a task's metadata: a list of tables with names, or tables by name. TaskError if one is invalid."""
    given = task.metadata.get(KEY, [])
    tables = [{"name": name, **_table(table)} for name, table in given.items()] if isinstance(given, dict) else given
    if not isinstance(tables, list):
        raise TaskError(f"`{KEY}` is {given!r}: a list of servers is needed")
    servers = tuple(_server(_table(table)) for table in tables)
    names = [server.name for server in servers]
    if len(set(names)) < len(names):
        raise TaskError(f"`{KEY}` names a server twice: {', '.join(names)}")
    if not task.resources.network and any(server.url for server in servers):
        raise TaskError(f"task {task.id} names an MCP server by its address, but asks for no network")
    return servers


def _server(table: Mapping[str, Json]) -> McpServer:
    name, command, url = (_text(table, key) for key in ("name", "command", "url"))
    transport = _text(table, "transport") or ("stdio" if command else "streamable-http")
    if not name or transport not in ("stdio", *OVER_HTTP) or not (command if transport == "stdio" else url):
        raise TaskError(f"the MCP server {dict(table)!r} is not valid: it needs a name, and a command or a url")
    args, env = table.get("args", []), _table(table.get("env", {}))
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise TaskError(f"the MCP server {name}: `args` is a list of texts")
    words = tuple(str(arg) for arg in args)
    if transport == "stdio":
        return McpServer(name, command, words, {key: str(value) for key, value in env.items()})
    return McpServer(name, url=url, is_sse=transport == "sse")


def _table(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise TaskError(f"{value!r} is not a table")
    return value


def _text(table: Mapping[str, Json], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise TaskError(f"`{key}` of an MCP server is {value!r}: a text is needed")
    return value
