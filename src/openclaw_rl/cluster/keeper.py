"""Runs one command for an actor, and ends all its processes when the actor is gone.

Its text is run on the node with `python -c`, so it uses only the standard library. Ray kills an actor's children when
the actor ends, but not their children; so this process detaches from the actor first.
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
    """Reads the command from stdin, reports its pid and later how it ended; when stdin closes, ends everything."""
    if os.fork():
        os._exit(0)
    os.setsid()
    asked = json.loads(sys.stdin.readline())
    # It must end after its process, which would ignore an ignored signal, too, but does not inherit a handler.
    signal.signal(signal.SIGTERM, lambda *_: None)
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
    """Reports how the process ended; then ends the processes it left behind."""
    code = child.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    say({"ended": f"signal {-code}" if code < 0 else f"exit code {code}"})


def end(child: subprocess.Popen[bytes]) -> None:
    """Asks the process and its children to end, and ends them if they do not."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def say(words: dict[str, object]) -> None:
    """Sends a line to the actor, if it still exists."""
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
