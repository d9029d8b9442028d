"""A real Ray cluster of several nodes on this machine: each node is a separate process group that can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

STORE = 100_000_000  # bytes of each node's object store
START_S = 300.0
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "0",
}


@dataclass
class RayNodes:
    """Nodes by number, the head's first; `add` and `kill` them."""

    folder: Path
    address: str
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add(self, cpus: int, *options: str) -> int:
        """Adds a node, which joins soon; returns its number. The head is ready on return."""
        joins = ["--head", "--port", self.address.rpartition(":")[2], "--temp-dir", str(self.folder)]
        joins += ["--include-dashboard", "false"]
        joins = joins if not self.nodes else ["--address", self.address]
        words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *joins, "--num-cpus", str(cpus)]
        words += ["--object-store-memory", str(STORE), "--disable-usage-stats"]
        self.nodes.append(self._started([*words, *options], len(self.nodes)))
        if len(self.nodes) == 1:
            self.wait(0)
        return len(self.nodes) - 1

    def _started(self, words: list[str], number: int) -> subprocess.Popen[bytes]:
        with self._log(number).open("wb") as log:
            return subprocess.Popen(words, env=os.environ | ENVIRONMENT, stdout=log, stderr=log, start_new_session=True)

    def _log(self, number: int) -> Path:
        return self.folder / f"node{number}.log"

    def kill(self, number: int) -> None:
        """Kills all of a node's processes at once, like a power failure."""
        for pid in self.pids(number):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._end_group(number)
        self.nodes[number].wait()

    def _end_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.nodes[number].pid, signal.SIGKILL)

    def pids(self, number: int) -> list[int]:
        """The processes of a node."""
        first = self.nodes[number].pid
        return [first, *descendants(first)]

    def with_a_place(self) -> int:
        """A node other than the head's that runs one of our processes now."""
        return next(
            number
            for number in range(1, len(self.nodes))
            if self.nodes[number].poll() is None
            and any(Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::Node") for pid in self.pids(number))
        )

    def close(self) -> None:
        """Ends all nodes."""
        for number in reversed(range(len(self.nodes))):
            self.kill(number)

    def wait(self, number: int) -> None:
        """Returns when a node is part of the cluster; restarts one that Ray gives up on a busy machine."""
        until = time.monotonic() + START_S
        while b"Ray runtime started" not in (said := self._log(number).read_bytes()):
            if time.monotonic() > until or (self.nodes[number].poll() is not None and b"timed out" not in said):
                raise RuntimeError(f"node {number} did not start: {said.decode('utf-8', 'replace')[-2000:]}")
            if self.nodes[number].poll() is not None:
                self._end_group(number)
                words = self.nodes[number].args
                assert isinstance(words, list)
                self.nodes[number] = self._started(words, number)
            time.sleep(0.1)


def descendants(pid: int) -> list[int]:
    """The descendants of a process."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs: a killed orphan may remain as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def ray_nodes(*cpus: int) -> Iterator[RayNodes]:
    """A cluster with a node for each number of CPUs, the head's first."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    # Ray puts sockets there, whose paths must be short
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        nodes = RayNodes(Path(folder), f"{own_address()}:{port}")
        try:
            for count in cpus:
                nodes.add(count)
            for number in range(1, len(cpus)):
                nodes.wait(number)
            yield nodes
        finally:
            nodes.close()


def own_address() -> str:
    """This machine's address as Ray determines it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("8.8.8.8", 80))
            return str(one.getsockname()[0])
        except OSError:
            return "127.0.0.1"
