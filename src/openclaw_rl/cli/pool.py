"""`openclaw-rl pool`: serves environments, shows a pool's status, and drains it."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from openclaw_rl.cli.common import print_table, run_in_order, say
from openclaw_rl.envs.box.probe import BoxKind
from openclaw_rl.errors import ConfigError

if TYPE_CHECKING:
    from openclaw_rl.cluster.pools import PoolsOptions
    from openclaw_rl.envs.pool.pool import PoolOptions
    from openclaw_rl.serve.settings import ServeSettings

app = typer.Typer(
    no_args_is_help=True,
    help="Environments for agents, served over HTTP: one server for all kinds, several servers for one run. "
    "`openclaw-rl pool serve --tasks FOLDER` starts one; point rollouts at the address that it prints.",
)
DEFAULT_PORT = 30100
PoolHome = Annotated[
    Path | None,
    typer.Option("--home", help="The pool's folder: its key and its journal. [default: ~/.openclaw-rl/pool]"),
]
Url = Annotated[str | None, typer.Argument(help="The pool's address. [default: the pool that runs on --home]")]
Key = Annotated[
    str | None,
    typer.Option("--api-key", envvar="OPENCLAW_RL_POOL_KEY", help="[default: the one in the pool's folder]"),
]

Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        help="A folder with tasks of any known format, or MODULE:FUNCTION that returns sources. May be repeated.",
    ),
]
Memory = Annotated[
    int | None,
    typer.Option(
        "--memory-mb",
        help="How much memory the tasks of all leases may request; 0: not counted. [default: twice this machine's]",
        min=0,
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", help="A further kind, NAME=MODULE:FUNCTION; the function opens it as open_env does."),
]
OwnKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        envvar="OPENCLAW_RL_POOL_KEY",
        help="The key clients must send. [default: one is made and kept in the folder]",
    ),
]
PlainPublic = Annotated[
    bool, typer.Option("--plain-public", help="Allow listening without TLS on an address that others can reach.")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="A Ray cluster, `auto` or HOST:PORT, on whose nodes the pools run; docs/cluster.md."
    ),
]


@app.command()
def serve(
    *,
    tasks: Tasks = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port; 0 for any free one.")] = DEFAULT_PORT,
    capacity: Annotated[
        int | None, typer.Option("--capacity", help="How many leases at a time. [default: 4 a core]", min=1)
    ] = None,
    memory_mb: Memory = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes that run environments. [default: 1 a core]", min=1)
    ] = None,
    queue: Annotated[int, typer.Option("--queue", help="How many requests may wait for a lease.", min=0)] = 256,
    ttl_s: Annotated[
        float, typer.Option("--ttl", help="Seconds after which a lease ends if it is not renewed.", min=1.0)
    ] = 60.0,
    box: Annotated[
        BoxKind, typer.Option("--box", help="How boxes are made. `plain` does not isolate anything.")
    ] = BoxKind.AUTO,
    kind: Kinds = None,
    home: PoolHome = None,
    api_key: OwnKey = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="A PEM file with a certificate chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="The PEM file with its private key.")] = None,
    plain_public: PlainPublic = False,
    cluster: Cluster = None,
    pools: Annotated[int, typer.Option("--pools", help="How many pools, on the cluster's nodes.", min=1)] = 1,
) -> None:
    """Serve environments: leases that expire, commands that are done once, boxes that contain what runs in them.

    Clients need the key, which is in the file api_key of the folder. After Ctrl-C the server grants no more leases,
    waits up to 30 seconds for the others to end, and exits; after a second Ctrl-C it exits at once. A server that was
    killed cleans up at its next start. docs/pool.md describes the protocol.
    """
    from openclaw_rl.cluster.pools import PoolsOptions, words_of
    from openclaw_rl.core.logs import set_up_logging
    from openclaw_rl.envs.pool.pool import PoolOptions, default_capacity, default_memory_mb
    from openclaw_rl.serve.settings import ServeSettings

    set_up_logging()
    options = PoolOptions(
        capacity=capacity or default_capacity(),
        memory_mb=default_memory_mb() if memory_mb is None else memory_mb,
        workers=workers or os.cpu_count() or 1,
        queue=queue,
        ttl_s=ttl_s,
        box=box,
        kinds=_kinds(kind or []),
    )
    if cluster:
        given = {"capacity": capacity, "memory-mb": memory_mb, "workers": workers, "queue": queue, "ttl": ttl_s}
        words = words_of(given | {"box": box.value}, kind or [])
        placed = PoolsOptions(pools, tuple(tasks or ()), words, {}, float(workers or 1))
        where = ServeSettings(host=host, port=port, plain_public=plain_public)
        _serve_on_cluster(_folder(home), cluster, placed, where, api_key)
        return
    where = ServeSettings(
        host=host, port=port, tls_cert=str(tls_cert or ""), tls_key=str(tls_key or ""), plain_public=plain_public
    )
    _serve(_folder(home), tuple(tasks or ()), options, where, api_key=api_key)


def _serve(
    folder: Path, tasks: tuple[str, ...], options: PoolOptions, where: ServeSettings, *, api_key: str | None
) -> None:
    from openclaw_rl.envs.pool.server import serve_pool
    from openclaw_rl.home.exposure import check_exposure, close_folder, tls_of
    from openclaw_rl.home.folder import Address, forget_address, kept_key, note_address

    check_exposure(where)
    close_folder(folder)
    key, tls = api_key or kept_key(folder), tls_of(where)
    is_noted = False

    def announce(url: str) -> None:
        nonlocal is_noted
        is_noted = True
        note_address(folder, Address(url, os.getpid()))
        place = "given on the command line" if api_key else f"in {folder / 'api_key'}"
        say.print(f"environments at {url}; the key is {place}", soft_wrap=True, markup=False)

    try:
        asyncio.run(
            serve_pool(folder, tasks, options, key=key, host=where.host, port=where.port, tls=tls, announce=announce)
        )
    finally:
        if is_noted:  # otherwise it is another server's
            forget_address(folder)


def _serve_on_cluster(
    folder: Path, cluster: str, options: PoolsOptions, where: ServeSettings, api_key: str | None
) -> None:
    """Pools on the nodes of a cluster, until a signal comes."""
    from openclaw_rl.cluster.pools import serve_pools
    from openclaw_rl.home.exposure import check_exposure, close_folder
    from openclaw_rl.home.folder import Address, forget_address, kept_key, note_address

    check_exposure(where)
    folder.mkdir(parents=True, exist_ok=True)
    close_folder(folder)
    key = api_key or kept_key(folder)

    def announce(urls: list[str]) -> None:
        note_address(folder, Address(urls[0], os.getpid()))
        place = "given on the command line" if api_key else f"in {folder / 'api_key'}"
        say.print(f"environments at {', '.join(urls)}; the key is {place}", soft_wrap=True, markup=False)

    options = replace(options, environment={"OPENCLAW_RL_POOL_KEY": key})
    try:
        run_in_order(serve_pools(cluster, options, host=where.host, port=where.port, announce=announce))
    finally:
        forget_address(folder)


@app.command()
def status(
    url: Url = None,
    *,
    home: PoolHome = None,
    api_key: Key = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a pool's state: its places, its queue, its workers, and what happened since it started."""
    found = _asked(url, home, api_key, "GET", "/v1/pool", body=None)
    if as_json:
        print(json.dumps(found))
        return
    _show(found)


@app.command()
def drain(
    url: Url = None,
    *,
    home: PoolHome = None,
    api_key: Key = None,
    undo: Annotated[bool, typer.Option("--undo", help="Grant leases again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a pool grant no more leases: those in force continue, and clients move to other pools.

    Stop the server once `pool status` shows no lease: then no episode is lost.
    """
    found = _asked(url, home, api_key, "POST", "/v1/drain", body={"on": not undo})
    if as_json:
        print(json.dumps(found))
        return
    say.print(f"the pool is {found['state']}; {found['taken']} leases in force")


def _folder(home: Path | None) -> Path:
    from openclaw_rl.config import read_config

    return home.expanduser() if home is not None else read_config().home / "pool"


def _kinds(words: list[str]) -> dict[str, str]:
    kinds = {}
    for word in words:
        name, _, where = word.partition("=")
        if not name or ":" not in where:
            raise ConfigError(f"--kind {word} names no kind", fix="write NAME=MODULE:FUNCTION")
        kinds[name] = where
    return kinds


def _asked(
    url: str | None, home: Path | None, api_key: str | None, method: str, path: str, *, body: object
) -> dict[str, object]:
    """A pool's answer."""
    from openclaw_rl.envs.pool.client import PoolClient
    from openclaw_rl.envs.pool.wire import read_json
    from openclaw_rl.home.folder import address_of, check_key

    folder = _folder(home)
    if url is None:
        address = address_of(folder)
        if address is None:
            raise ConfigError(
                f"no pool runs on {folder}",
                fix="start one with `openclaw-rl pool serve`, or give the address of one on another machine",
            )
        url = address.url
    key = api_key or check_key(folder)
    if key is None:
        raise ConfigError(
            f"the key of the pool at {url} is not known",
            fix="give --api-key, or set OPENCLAW_RL_POOL_KEY, to the contents of the file api_key in its folder",
        )

    async def ask() -> bytes:
        async with PoolClient([url], key=key, patience_s=2.0) as client:
            return await client.servers[0].ask(method, path, body)

    return read_json(asyncio.run(ask()))


def _show(found: dict[str, object]) -> None:
    import msgspec

    from openclaw_rl.envs.pool.status import PoolStatus

    status = msgspec.convert(found, type=PoolStatus)
    table = Table("what", "now", show_header=False)
    table.add_row("state", status.state)
    table.add_row("leases", f"{status.taken} of {status.capacity}" + _named(status.leases))
    table.add_row("waiting", f"{status.waiting} of {status.queue_most}" + _named(status.queue))
    table.add_row("memory", f"{status.memory_taken_mb} of {status.memory_mb or 'any number of'} MB asked for")
    table.add_row("workers", ", ".join(f"{one.pid} with {one.leases} leases" for one in status.workers) or "none runs")
    table.add_row("prepared", f"{len(status.prepared)} tasks")
    table.add_row("kinds", ", ".join(status.kinds))
    table.add_row("tasks", ", ".join(f"{count} in {name}" for name, count in status.sources.items()) or "none")
    table.add_row("since start", ", ".join(f"{count} {name}" for name, count in status.counts.items() if count))
    print_table(table)


def _named(counts: dict[str, int]) -> str:
    return f" ({', '.join(f'{name}: {count}' for name, count in counts.items())})" if counts else ""
