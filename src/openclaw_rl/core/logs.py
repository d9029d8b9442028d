"""How the log is written: as lines of text, or as lines of JSON for programs that collect logs."""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from logging.handlers import MemoryHandler
from types import TracebackType

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
INHERITED = "OPENCLAW_RL_LOG_FORMAT"  # in the environment of the processes that a server starts
FILTERED_S = 2.0  # time for the last lines
_WAITING = 10_000  # lines kept until the format is known
_PLACE = re.compile(r"(?:\b([A-Za-z_]\w*)=)?%(?:[-+ #0]*\d*(?:\.\d+)?)([a-zA-Z%])")


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: `time`, `level`, `name`, `message`, and each `name=%s` of the message as a field.

    So `turn` and `version` are separate fields in every line that has them. A traceback is in `error`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its line end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "name": record.name,
            "message": record.getMessage(),
        }
        for name, value in _facts(record):
            line.setdefault(name, value if isinstance(value, bool | int) or _is_finite(value) else str(value))
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up_logging(level: int = logging.INFO, *, text: str = TEXT) -> None:
    """Makes the log of a process that a server started use the server's format."""
    _write_as(os.environ.get(INHERITED) == "json", level, text)


def kept_until_known(level: int) -> Callable[[bool], None]:
    """Buffers the log until the returned function is called with whether the log is JSON."""
    waiting = MemoryHandler(_WAITING, flushLevel=logging.CRITICAL + 1)
    root = logging.getLogger()
    root.addHandler(waiting)
    root.setLevel(level)

    def known(is_json: bool) -> None:
        root.removeHandler(waiting)
        if is_json:
            os.environ[INHERITED] = "json"
            _filter_stderr()
        waiting.setTarget(_write_as(is_json, level, TEXT))
        waiting.close()

    return known


def _write_as(is_json: bool, level: int, text: str) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if is_json else logging.Formatter(text))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    if is_json:  # other output would be plain text between JSON lines
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
    return handler


def _filter_stderr() -> None:
    """Sends standard error, of this process and its children, through a process that turns it into lines of JSON.

    Libraries print without the log: progress, warnings, the last lines of a crash. Another process reads them, so that
    none are lost if one of ours dies.
    """
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "openclaw_rl.core.logs"]
    helper = subprocess.Popen(command, stdin=reader, stdout=2, start_new_session=True)
    os.dup2(writer, 2)
    os.close(reader)
    os.close(writer)

    def finished() -> None:
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            helper.wait(FILTERED_S)
        except subprocess.TimeoutExpired:  # a child process still writes
            return

    atexit.register(finished)


def main() -> None:
    """Copies lines of JSON, and turns other lines into JSON. Ends with its input, ignoring signals."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        for text in line.decode("utf-8", "replace").replace("\r", "\n").splitlines():
            if text.strip():
                print(text if _is_json(text) else _wrapped(text), flush=True)


def _is_json(text: str) -> bool:
    try:
        return text.startswith("{") and isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _wrapped(text: str) -> str:
    return JsonFormatter().format(logging.LogRecord("stderr", logging.INFO, "", 0, "%s", (text,), None))


def _log_uncaught(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        traceback.print_exception(kind, problem, trace)
        return
    logging.getLogger(__name__).critical("the program ended: %s", problem, exc_info=(kind, problem, trace))


def _facts(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """The named values of a message, by their names in its format."""
    if not isinstance(record.args, tuple) or not isinstance(record.msg, str):
        return
    values = iter(record.args)
    for name, kind in _PLACE.findall(record.msg):
        if kind == "%":
            continue
        value = next(values, None)
        if name:
            yield name, value


def _is_finite(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)  # JSON has no other numbers


if __name__ == "__main__":
    main()
