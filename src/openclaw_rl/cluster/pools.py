"""Pools of environments on a cluster's nodes, each with an address on this machine that outlives its node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.cluster.client import Cluster, NodeHost
from openclaw_rl.cluster.roles import Group
from openclaw_rl.errors import ClusterError, ConfigError

log = logging.getLogger(__name__)
ROLE = "pools"
START_S = 120.0  # until a pool answers on its node
PAUSE_S = 2.0
POLL_S = 0.2
PIECE = 1 << 16
HOME = "~/.openclaw-rl/pool-of-cluster-{number}"  # on the node: a killed pool is cleaned up there by the next


@dataclass(frozen=True, slots=True)
class PoolsOptions:
    """What to start: a number of pools with these task folders, further options of `pool serve` and environment."""

    count: int
    tasks: tuple[str, ...]
    words: tuple[str, ...]
    environment: Mapping[str, str]
    cpus: float = 1.0


class Relay:
    """A port of this machine that forwards to a pool; without a pool, connections are refused."""

    def __init__(self) -> None:
        self.leads_to: tuple[str, int] | None = None
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> int:
        """The port. Raises ConfigError if it cannot be listened on."""
        try:
            self._server = await asyncio.start_server(self._lead, host, port)
        except OSError as problem:
            raise ConfigError(f"{host}:{port} cannot be listened on: {problem}", fix="choose another port") from problem
        return int(self._server.sockets[0].getsockname()[1])

    async def aclose(self) -> None:
        """Ends all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if self.leads_to is not None:
                there = await asyncio.open_connection(*self.leads_to)
                await asyncio.gather(_copied(reader, there[1]), _copied(there[0], writer))
        except OSError as problem:
            log.info("a connection to a pool broke: %s", problem)
        finally:
            self._open.discard(task)
            writer.close()


async def serve_pools(
    address: str, options: PoolsOptions, *, host: str, port: int, announce: Callable[[list[str]], None]
) -> None:
    """Serves until cancelled: a pool that ends, or whose node is lost, is started again if there is room.

    `announce` gets the pools' URLs when all answer; the first listens on `port`, the others on the next ports.
    Raises ConfigError, ClusterError.
    """
    relays = [Relay() for _ in range(options.count)]
    try:
        ports = [await relay.listen(host, port + at if port else 0) for at, relay in enumerate(relays)]
        cluster = await Cluster.join(address, [Group(ROLE, options.count, cpus=options.cpus)])
        try:
            hosts = [cluster.host(ROLE, number) for number in range(options.count)]
            for number, (one, relay) in enumerate(zip(hosts, relays, strict=True)):
                await _start(one, relay, number, options)
            announce([f"http://{f'[{host}]' if ':' in host else host}:{one}" for one in ports])
            async with asyncio.TaskGroup() as group:
                for number, (one, relay) in enumerate(zip(hosts, relays, strict=True)):
                    group.create_task(_keep(one, relay, number, options))
        finally:
            await cluster.aclose()
    finally:
        await asyncio.gather(*(relay.aclose() for relay in relays))


async def _keep(host: NodeHost, relay: Relay, number: int, options: PoolsOptions) -> None:
    while True:
        how = await host.wait()
        relay.leads_to = None
        log.warning("pool %d ended (%s); it is started again", number, how)
        while True:
            try:
                await _start(host, relay, number, options)
                break
            except ClusterError as problem:
                log.warning("%s", problem)
                await asyncio.sleep(PAUSE_S)


async def _start(host: NodeHost, relay: Relay, number: int, options: PoolsOptions) -> None:
    """Starts a pool on a node, and returns when it answers. Raises ClusterError."""
    address, port = await host.open()
    words = [sys.executable, "-m", "openclaw_rl", "pool", "serve", "--host", address, "--port", str(port)]
    words += ["--plain-public", "--home", HOME.format(number=number), *options.words]
    for tasks in options.tasks:
        folder = await asyncio.to_thread(_folder, tasks)
        words += ["--tasks", tasks if folder is None else str(await host.folder(folder))]
    await host.start(words, options.environment)
    until = asyncio.get_running_loop().time() + START_S
    while not await _answers(address, port):
        if host.has_ended or asyncio.get_running_loop().time() > until:
            how = f"ended with {host.has_ended}" if host.has_ended else f"does not answer after {START_S:g} s"
            await host.end()
            raise ClusterError(f"pool {number} at {address}:{port} {how}", fix="read its messages above")
        await asyncio.sleep(POLL_S)
    relay.leads_to = (address, port)
    log.info("pool %d is at %s:%d", number, address, port)


def _folder(tasks: str) -> Path | None:
    """The folder that is named; None if it is MODULE:FUNCTION."""
    folder = Path(tasks).expanduser()
    return folder.resolve() if folder.is_dir() else None


async def _answers(address: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


def words_of(given: Mapping[str, object], kinds: Sequence[str]) -> tuple[str, ...]:
    """Options of `pool serve` as arguments of a command, without those that were not given."""
    found = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
    return (*found, *(word for kind in kinds for word in ("--kind", kind)))
