"""What commands said in `benchmarks.owner`, in one file for reading: each message once, with where it came."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.owner_run import Run

MOST_LINES = 40  # of one message
# What differs from call to call and is no part of a message.
SAME = (
    (re.compile(r"/\S*?/build/owner/at"), "…"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d([.,]\d+)?)?(\+\d\d:\d\d)?"), "<time>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:<port>"),
    (re.compile(r"sk-openclaw-\S+"), "<key>"),
    (re.compile(r"(process|pid|seconds=|damaged-|made_at\D+|\"at_s\D+)\s*\d+(\.\d+)?"), r"\1 <number>"),
)


def write_messages(path: Path, runs: Sequence[Run]) -> None:
    """Writes the file: what is wrong first, then command by command."""
    lines = ["# What the commands say", ""]
    lines += ["Each message once, with the situations in which it came. `…` is the folder all of it lies in.", ""]
    wrong = [run for run in runs if run.complaints]
    lines += [f"## Wrong: {sum(len(run.complaints) for run in wrong)}", ""]
    lines += [f"- {run.situation} | `{run.command}` | {same(text)}" for run in wrong for text in run.complaints]
    by_command: dict[str, dict[tuple[int, str, str], list[Run]]] = {}
    for run in runs:
        if run.seconds:
            said = (run.code, same(run.stdout), same(run.stderr))
            by_command.setdefault(run.command, {}).setdefault(said, []).append(run)
    for command in sorted(by_command):
        lines += ["", f"## {command}"]
        for (code, stdout, stderr), found in by_command[command].items():
            situations = list(dict.fromkeys(run.situation for run in found))
            lines += ["", f"**Code {code}** — {_joined(situations)}", ""]
            lines += _quoted("stdout", stdout) + _quoted("stderr", stderr)
    path.write_text("\n".join(lines) + "\n", "utf-8")


def same(text: str) -> str:
    """The text without what differs from call to call."""
    for pattern, word in SAME:
        text = pattern.sub(word, text)
    return text.rstrip()


def _joined(situations: list[str]) -> str:
    shown = "; ".join(situations[:6])
    return shown if len(situations) <= 6 else f"{shown}; and {len(situations) - 6} more"


def _quoted(name: str, text: str) -> list[str]:
    if not text.strip():
        return []
    lines = text.splitlines()
    cut = [] if len(lines) <= MOST_LINES else [f"[{len(lines) - MOST_LINES} more lines]"]
    return [f"{name}:", "```text", *lines[:MOST_LINES], *cut, "```"]
