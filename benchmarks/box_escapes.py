"""Ways out of a box, tried as commands in it. A command prints ESCAPED where it got out, or reached what it must not.

{secret}, {port}, {udp}, {abstract}, {socket}, {pid} and {word} stand for what the ground outside has.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.envs.box.sandbox import Sandbox

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Ground:
    """What stands outside: a secret in a file, sockets that listen, a process."""

    folder: Path
    word: str
    port: int
    udp: int
    abstract: str
    pid: int

    def fill(self, command: str) -> str:
        """A command with the facts of this ground."""
        facts = {
            "{secret}": str(self.folder / "secret"),
            "{folder}": str(self.folder),
            "{socket}": str(self.folder / "socket"),
            "{port}": str(self.port),
            "{udp}": str(self.udp),
            "{abstract}": self.abstract,
            "{pid}": str(self.pid),
            "{word}": self.word,
        }
        for name, value in facts.items():
            command = command.replace(name, value)
        return command


@contextmanager
def ground() -> Iterator[Ground]:
    """The ground, for a while. Everybody on this machine may read the secret: only walls keep it."""
    word = uuid.uuid4().hex
    os.environ["SECRET_OF_THE_BENCHMARK"] = word
    with (
        tempfile.TemporaryDirectory(prefix="bench-box-") as name,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as unix,
        tempfile.NamedTemporaryFile(prefix=f"shm-{word}", dir="/dev/shm"),
    ):
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "secret").write_text(word)
        (folder / "secret").chmod(0o666)
        udp.bind(("127.0.0.1", 0))
        abstract.bind(f"\0bench-{word}")
        unix.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        abstract.listen()
        unix.listen()
        sentinel = subprocess.Popen(["sleep", "100000"], env={"SENTINEL": word})
        try:
            port, number = tcp.getsockname()[1], udp.getsockname()[1]
            yield Ground(folder, word, port, number, f"bench-{word}", sentinel.pid)
        finally:
            sentinel.kill()
            sentinel.wait()


def _python(script: str) -> str:
    return f"python3 - <<'PYTHON' 2>/dev/null\n{script}\nPYTHON"


def _connects(family: str, address: str) -> str:
    return _python(
        f"import socket\ns = socket.socket(socket.{family})\ns.settimeout(5)\ns.connect({address})\nprint('ESCAPED')"
    )


def _syscall(call: str) -> str:
    return _python(f"import ctypes\nlibc = ctypes.CDLL(None)\nif {call} >= 0: print('ESCAPED')")


# Those of CONTROLS get out of a box without walls, which the benchmark shows: they are real attempts.
COMMANDS: dict[str, str] = {
    "network: a listener on this machine's loopback": _connects("AF_INET", '("127.0.0.1", {port})'),
    "network: a socket in the abstract name space": _connects("AF_UNIX", '"\\0{abstract}"'),
    "network: a socket in a folder of this machine": _connects("AF_UNIX", '"{socket}"'),
    "network: a route to anywhere": "[ $(wc -l </proc/net/route) -gt 1 ] && echo ESCAPED",
    "network: another interface than the box's loopback": "tail -n +3 /proc/net/dev | grep -vq ' lo:' && echo ESCAPED",
    "network: packets of its own making": _python(
        "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)\nprint('ESCAPED')"
    ),
    "network: the raw protocol": _python(
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1)\nprint('ESCAPED')"
    ),
    "files: a file everybody may read": "grep -q {word} {secret} && echo ESCAPED",
    "files: a file everybody may write": "echo changed > {secret}",
    "files: the passwords of this machine": "test -s /etc/shadow && echo ESCAPED",
    "files: the accounts of this machine": "grep -q '^\\(daemon\\|mail\\|www-data\\):' /etc/passwd && echo ESCAPED",
    "files: a search of everything": "grep -rqs {word} / --exclude-dir=proc --exclude-dir=sys && echo ESCAPED",
    "files: a program of this machine written": "echo >> /usr/bin/env && echo ESCAPED",
    "files: /usr mounted for writing": "mount -o remount,rw,bind /usr && echo ESCAPED",
    "files: the disk through a node of its own": "mknod /tmp/disk b 254 0 && head -c 1 /tmp/disk && echo ESCAPED",
    "files: memory through a node of its own": "mknod /tmp/mem c 1 1 && head -c 1 /tmp/mem && echo ESCAPED",
    "files: the disks in /dev": "ls /dev/[sv]d* /dev/nvme* 2>/dev/null | grep -q . && echo ESCAPED",
    "files: a hard link to a program": "ln /usr/bin/env /app/env && echo >> /app/env && echo ESCAPED",
    "files: out through the root of the first process": "ls -d /proc/1/root{folder} && echo ESCAPED",
    "files: out through any process's root": "ls -d /proc/*/root{folder} 2>/dev/null | grep -q . && echo ESCAPED",
    "files: out through any process's folder": "ls -d /proc/*/cwd{folder} 2>/dev/null | grep -q . && echo ESCAPED",
    "files: out through a file left open": _python(
        "import os\n"
        "for n in range(3, 4096):\n"
        "    try: os.fstat(n)\n"
        "    except OSError: continue\n"
        "    print('ESCAPED', os.readlink(f'/proc/self/fd/{n}'))"
    ),
    "files: out by another root": _python("import os\nos.mkdir('/app/x')\nos.chroot('/app/x')\nprint('ESCAPED')"),
    "files: opened by number": _syscall("libc.syscall(304, 3, b'\\0' * 16, 0)"),
    "files: dots without end": "grep -q {word} ../../../../../../../../..{secret} && echo ESCAPED",
    "proc: what runs when a program crashes": "echo '|/app/x' > /proc/sys/kernel/core_pattern && echo ESCAPED",
    "proc: what loads modules": "echo /app/x > /proc/sys/kernel/modprobe && echo ESCAPED",
    "proc: the kernel's trigger": "echo h > /proc/sysrq-trigger && echo ESCAPED",
    "proc: the kernel's memory": "head -c 1 /proc/kcore && echo ESCAPED",
    "proc: the kernel's messages": "dmesg && echo ESCAPED",
    "proc: control groups mounted": "mkdir /app/c; mount -t cgroup -o memory c /app/c && echo ESCAPED",
    "proc: another proc mounted": "mkdir /app/p; mount -t proc p /app/p && echo ESCAPED",
    "proc: /sys": "test -e /sys/kernel && echo ESCAPED",
    "processes: this machine's are seen": "ls -d /proc/{pid} && grep -qs sleep /proc/{pid}/cmdline && echo ESCAPED",
    "processes: one of this machine is killed": "kill -9 {pid}",
    "processes: one of this machine is traced": _syscall("libc.ptrace(16, {pid}, 0, 0)"),
    "processes: every number is signalled": "for n in $(seq 2 40000); do [ $n = $$ ] || kill -9 $n; done 2>/dev/null",
    "processes: the box's first one": "kill -9 1; kill -TERM 1",
    "processes: shared memory of this machine": "ls /dev/shm | grep -q {word} && echo ESCAPED",
    "privileges: another user name space": "unshare -U true && echo ESCAPED",
    "privileges: a box in the box": "bwrap --unshare-all --bind / / true && echo ESCAPED",
    "privileges: any capability": "grep '^Cap[EPB]' /proc/self/status | grep -vq '0000000000000000' && echo ESCAPED",
    "privileges: another user": _python("import os\nos.setuid(1000)\nprint('ESCAPED')"),
    "privileges: a program that runs as its owner": "su -c true nobody && echo ESCAPED",
    "privileges: the clock": "date -s '2001-01-01' && echo ESCAPED",
    "privileges: the name of this machine": _syscall("libc.sethostname(b'x', 1)"),
    "privileges: a key press on a terminal": "exec 9<>/dev/tty && echo ESCAPED",
    "environment: of this process": "env | grep -q {word} && echo ESCAPED",
    "environment: of any process in sight": "cat /proc/*/environ 2>/dev/null | grep -qa {word} && echo ESCAPED",
}
CONTROLS = (
    "network: a listener on this machine's loopback",
    "network: a socket in the abstract name space",
    "network: a socket in a folder of this machine",
    "files: a file everybody may read",
    "files: the accounts of this machine",
    "files: out through any process's root",
    "files: dots without end",
    "processes: this machine's are seen",
    "processes: shared memory of this machine",
    "proc: /sys",
    "environment: of any process in sight",
)


async def attempt(box: Sandbox, command: str, at: Ground) -> str:
    """Why an attempt counts as an escape; nothing where the box held."""
    done = await box.exec(at.fill(command), timeout_s=TIMEOUT_S)
    if "ESCAPED" in done.stdout.text:
        return done.stdout.text.strip()[:200]
    return await harm(box, at)


async def harm(box: Sandbox, at: Ground) -> str:
    """What was harmed outside, or whether the box itself no longer answers."""
    secret = await asyncio.to_thread((at.folder / "secret").read_text)
    if secret != at.word:
        return "a file outside was changed"
    try:
        os.kill(at.pid, 0)
    except ProcessLookupError:
        return "a process outside was killed"
    alive = await box.exec("echo alive", timeout_s=TIMEOUT_S)
    return "" if alive.stdout.text == "alive\n" else "the box no longer answers"
