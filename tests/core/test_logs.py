"""The log as lines of JSON."""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys

from openclaw_rl.core.logs import JsonFormatter


def line_of(message: str, *args: object, error: bool = False) -> dict[str, object]:
    exc = None
    if error:
        try:
            raise ValueError("broke\nin two")
        except ValueError:
            exc = sys.exc_info()
    record = logging.LogRecord("openclaw_rl.part", logging.INFO, __file__, 1, message, args, exc)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, object] = json.loads(text)
    return found


def test_named_values_are_fields_and_words_within_them_are_not() -> None:
    line = line_of("judged turn=%s score=%s at %.1f %% hints=%d: %s", "t1", None, 0.5, 2, "version=9 of mine\nand more")
    time = line.pop("time")
    assert isinstance(time, str) and time.endswith("+00:00")
    assert line == {
        "level": "INFO",
        "name": "openclaw_rl.part",
        "message": "judged turn=t1 score=None at 0.5 % hints=2: version=9 of mine\nand more",
        "turn": "t1",
        "score": "None",
        "hints": 2,
    }


def test_numbers_that_json_has_not_and_tracebacks_are_text() -> None:
    line = line_of("step version=%s loss=%s level=%s", "shared.1", math.nan, "mine", error=True)
    assert (line["version"], line["loss"], line["level"]) == ("shared.1", "nan", "INFO")
    assert "ValueError: broke\nin two" in str(line["error"])


def test_what_is_logged_before_the_form_is_known_and_what_ends_the_program_are_lines_too() -> None:
    script = (
        "import logging, warnings\n"
        "from openclaw_rl.core.logs import kept_until_known\n"
        "known = kept_until_known(logging.INFO)\n"
        "logging.getLogger('a').warning('early %s', 'words')\n"
        "known(True)\n"
        "import os; os.write(2, b'  5%\\r100%\\npast the log\\n\\n')\n"
        "warnings.warn('a warning')\n"
        "raise SystemError('the end')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["level"] for line in lines] == ["WARNING", *["INFO"] * 3, "WARNING", "CRITICAL"]
    assert [line["message"] for line in lines[:4]] == ["early words", "  5%", "100%", "past the log"]
    assert {line["name"] for line in lines[1:4]} == {"stderr"} and "SystemError: the end" in lines[-1]["error"]
