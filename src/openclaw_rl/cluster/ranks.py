"""A launcher of trainer ranks, like torchrun: the first rank runs here, the others on the nodes of a Ray cluster.

`python -m openclaw_rl.cluster.ranks --address auto --ranks 4 -m MODULE`. The first rank has this program's stdin and
stdout. All end when one does; then this ends with 1, or with the first rank's own code if that ended by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from openclaw_rl.cluster.client import Cluster, NodeHost
from openclaw_rl.cluster.roles import Group
from openclaw_rl.errors import OpenClawRLError

ROLE = "trainer"
HANDED_ON = ("OMP_", "TOKENIZERS_", "GLOO_", "NCCL_", "TORCH_", "PYTORCH_", "OPENCLAW_")


def main() -> None:
    """Starts the ranks, and exits with a code when one of them ends."""
    parser = argparse.ArgumentParser(prog="openclaw_rl.cluster.ranks", description=__doc__)
    parser.add_argument("--address", default="auto", help="the cluster: auto, or HOST:PORT")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--gpus-each", type=int, default=0)
    parser.add_argument("--cpus-each", type=float, default=1.0)
    parser.add_argument("--group", default="", help="the name of room that was reserved before")
    parser.add_argument("-m", dest="module", required=True, help="the module each rank runs, like Python's -m")
    given = parser.parse_args()
    group = Group(ROLE, given.ranks, given.gpus_each, given.cpus_each, True, given.group, is_found=bool(given.group))
    try:
        code = asyncio.run(launch(given.address, group, given.module))
    except OpenClawRLError as problem:
        sys.stderr.write(f"{problem}\n")
        code = 1
    sys.exit(code)


async def launch(address: str, group: Group, module: str) -> int:
    """Runs all ranks until one ends. Raises ConfigError, ClusterError."""
    cluster = await Cluster.join(address, [group])
    try:
        hosts = [cluster.host(group.role, number) for number in range(group.count)]
        places = await asyncio.gather(*(host.open() for host in hosts))
        meeting = {"MASTER_ADDR": places[0][0], "MASTER_PORT": str(places[0][1])}
        meeting |= {"WORLD_SIZE": str(group.count), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        held = {name: value for name, value in os.environ.items() if name.startswith(HANDED_ON)}
        command = [sys.executable, "-m", module]
        first = await asyncio.create_subprocess_exec(
            *command, env=os.environ | hosts[0].environment | meeting | {"RANK": "0"}
        )
        try:
            for number, host in enumerate(hosts[1:], 1):
                await host.start(command, held | meeting | {"RANK": str(number)})
            return await _one_ended(first, hosts)
        finally:
            if first.returncode is None:
                first.kill()
                await first.wait()
    finally:
        await cluster.aclose()


async def _one_ended(first: asyncio.subprocess.Process, hosts: list[NodeHost]) -> int:
    own = asyncio.ensure_future(first.wait())
    others = {asyncio.ensure_future(host.wait()): number for number, host in enumerate(hosts[1:], 1)}
    await asyncio.wait([own, *others], return_when=asyncio.FIRST_COMPLETED)
    if own.done():
        return own.result() if own.result() >= 0 else 1
    for other, number in others.items():
        if other.done():
            sys.stderr.write(f"rank {number} of the trainer ended: {other.result()}\n")
    return 1


if __name__ == "__main__":
    main()
