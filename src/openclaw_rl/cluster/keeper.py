"""Runs one command for an actor, and ends all of it once that actor is gone, however it went.

Its text is run on the node by `python -c`, so it needs the standard library alone. Ray kills an actor's children when
the actor ends, and theirs would go on without anybody; so this leaves the actor's children first.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

END_S = 10.0


def main() -> None:
    """Reads the command from stdin, says the process's id and later how it ended; at stdin's end all is ended."""
    if os.fork():
        os._exit(0)
    os.setsid()
    asked = json.loads(sys.stdin.readline())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends after what it keeps
    try:
        child = subprocess.Popen(
            asked["command"],
            env=os.environ | asked["environment"],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
        )
    except OSError as problem:
        say({"problem": f"{asked['command'][0]} cannot be started: {problem}"})
        sys.stdin.read()
    else:
        say({"pid": child.pid})
        threading.Thread(target=watch, args=(child,), daemon=True).start()
        sys.stdin.read()  # until the actor closes it, or is gone
        end(child)
    shutil.rmtree(asked["folder"], ignore_errors=True)
    os._exit(0)


def watch(child: subprocess.Popen[bytes]) -> None:
    """Says how the process ended; what it started and left behind is ended then."""
    code = child.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    say({"ended": f"signal {-code}" if code < 0 else f"exit code {code}"})


def end(child: subprocess.Popen[bytes]) -> None:
    """Asks the process and its children to end, and ends them where they do not."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def say(words: dict[str, object]) -> None:
    """A line for the actor, where it is still there."""
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
