"""The process of one sink: `python -m openclaw_rl.telemetry.worker KIND`, started by the feeder.

It reads lines of JSON, first the options, then lists of records, and answers each with `ok` or with what went wrong.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable

from openclaw_rl.core.logs import set_up_logging
from openclaw_rl.telemetry.feeder import OK
from openclaw_rl.telemetry.sinks import SINKS, RecordSink
from openclaw_rl.telemetry.spans import span_sink

OTEL = "otel"
CLOSE_S = 10.0  # a library that has not ended by then is abandoned
_OPENERS: dict[str, Callable[[dict[str, str]], RecordSink]] = {**SINKS, OTEL: span_sink}


def main() -> None:
    """Serves one sink until stdin closes."""
    set_up_logging(logging.WARNING, text=f"{sys.argv[1]}: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a library's output must not mix with the answers
    lines: queue.Queue[str | None] = queue.Queue(maxsize=4)  # the feeder waits for each answer
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    options = lines.get()
    if options is None:
        return
    sink: RecordSink | None = None
    try:
        sink = _OPENERS[sys.argv[1]](json.loads(options))
        print(OK, file=answers)
        while (line := lines.get()) is not None:
            print(_taken(sink, line), file=answers)
    except Exception as problem:  # the edge of the process: it is reported to the feeder
        print(_words(problem), file=answers)
    finally:
        if sink is not None:
            sink.close()
    os._exit(0)


def _taken(sink: RecordSink, line: str) -> str:
    try:
        sink.take(json.loads(line))
    except Exception as problem:  # one bad record must not stop the others
        return _words(problem)
    return OK


def _words(problem: Exception) -> str:
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:300]


def _read(lines: queue.Queue[str | None]) -> None:
    for line in sys.stdin:
        lines.put(line)
    threading.Timer(CLOSE_S, lambda: os._exit(1)).start()
    lines.put(None)


if __name__ == "__main__":
    main()
