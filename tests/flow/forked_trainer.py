"""A trainer's process without its seconds of imports: `trainer.launcher` for tests that make versions again.

One process per session has imported what a trainer needs, and forks one for each that is launched. Every trainer is
still a process of its own that runs `openclaw_rl.trainers.worker` on the pipes of its owner. That one starts from
nothing is shown by the tests of the trainer's process and of whole servers.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLACE = "FORKED_TRAINERS"  # the socket of the process that forks them
LAUNCHER = shlex.join([sys.executable, "-I", "-S", str(Path(__file__).resolve())])
SETTING = f"launcher = {json.dumps(LAUNCHER)}"  # in the table [trainer]


@contextmanager
def trainers_ready(place: Path) -> Iterator[None]:
    """Whatever uses LAUNCHER meanwhile gets its trainer by a fork."""
    command = [sys.executable, __file__, "--listen", str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        process.stdin.close()


def _listen(place: str) -> None:
    """Forks until stdin closes."""
    import transformers.models.qwen3.modeling_qwen3  # noqa: F401

    from openclaw_rl.trainers import lora  # noqa: F401
    from openclaw_rl.weights.forms import code_library

    code_library()
    import peft  # noqa: F401

    gc.collect()
    gc.freeze()  # a trainer that collects does not copy what it shares
    with socket.socket(socket.AF_UNIX) as asked:
        asked.bind(place)
        asked.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([asked, sys.stdin], [], [])[0]:
            with asked.accept()[0] as owner:
                _fork(owner)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _fork(owner: socket.socket) -> None:
    """A trainer on the pipes and in the surroundings of the process that asks; `owner` closes with it."""
    told, pipes, _, _ = socket.recv_fds(owner, 1 << 20, 3)
    if os.fork():
        for each in pipes:
            os.close(each)
        return
    try:
        from openclaw_rl.trainers import worker

        for number, each in enumerate(pipes):
            os.dup2(each, number)
            os.close(each)
        words, folder, surroundings = json.loads(told)
        os.environ.clear()
        os.environ.update(surroundings)
        os.chdir(folder)
        assert words == ["-m", worker.__name__]
        worker.main()
    finally:
        os._exit(1)


def _launched() -> None:
    """Stands in for a trainer until it is gone."""
    with socket.socket(socket.AF_UNIX) as forking:
        forking.connect(os.environ[PLACE])
        told = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(forking, [told], [0, 1, 2])
        for number in (0, 1):
            os.close(number)
        forking.recv(1)


if __name__ == "__main__":
    if sys.argv[1] == "--listen":
        _listen(sys.argv[2])
    else:
        _launched()
