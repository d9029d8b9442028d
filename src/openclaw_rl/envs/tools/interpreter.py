"""The tool `python`: an interpreter in a box that keeps its variables between calls."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from openclaw_rl.core.message import Tool
from openclaw_rl.envs.box.sandbox import KilledBy, Sandbox, Shell, ShellResult
from openclaw_rl.envs.task import Action
from openclaw_rl.envs.terminal.output import cut
from openclaw_rl.envs.tools import inside_python
from openclaw_rl.envs.tools.provider import CallResult, CallStatus, refused, tool_of
from openclaw_rl.errors import BoxError, TaskError

ATTEMPTS = 3  # an agent that fills its box with processes must not look like a failed box
START_S = 60.0  # includes the imports of the preloaded modules
GONE = 250  # the exit status of our line of bash if the Python does not answer
NO_PYTHON = 251
MOST_CODE_BYTES = 90_000  # of its JSON, quoted for bash; a box takes no command above 100 kB
# The process's own memory limit raises a MemoryError before the whole box is full.
MEMORY_SHARE = 0.75
PYTHON = tool_of(
    "python",
    "Run Python code. Returns what it prints and the value of its last line. Variables are kept from call to call.",
    "code",
    "The code.",
)

START = """trap '' PIPE
command -v {python} >/dev/null || exit {no_python}
folder=$(mktemp -d) && mkfifo "$folder/i" "$folder/o" || exit {gone}
{python} -s -X utf8 -c {program} "$folder/i" "$folder/o" {memory} {preload} </dev/null 2>&1 &
exec 8>"$folder/i" 9<"$folder/o" && rm -r "$folder"
"""
READY = 'IFS= read -r said <&9 && [ "$said" = ready ] || (exit {gone})'
# The status is set by a function: a subshell may be killed with the Python process, and the shell would print that.
STATUS = '__status() {{ return "$1"; }}; __status "$status"'
CALL = f"printf '%s\\n' {{code}} >&8 && IFS= read -r status <&9 || status={{gone}}; {STATUS}"

KEPT = "; variables are as they were before this call"
WORDS = {
    CallStatus.TIMEOUT: "stopped, it took longer than {timeout_s:g} s" + KEPT,
    CallStatus.MEMORY: "stopped, it needed more memory than there is" + KEPT,
    CallStatus.OUTPUT: "stopped, it printed too much" + KEPT,
    CallStatus.ENDED: "the code ended the Python process" + KEPT,
    CallStatus.LOST: "the Python process is gone: the next call starts a new one, without variables",
}
STATUSES = {
    inside_python.OK: CallStatus.OK,
    inside_python.RAISED: CallStatus.RAISED,
    inside_python.NO_PROCESS: CallStatus.LOST,  # what fills the box ends with its shell
    GONE: CallStatus.LOST,
}
KILLED = {
    KilledBy.TIMEOUT: CallStatus.TIMEOUT,
    KilledBy.OUTPUT: CallStatus.OUTPUT,
    KilledBy.MEMORY: CallStatus.MEMORY,
}


class Interpreter:
    """One Python in one box; one call at a time. BoxError: the box failed. TaskError: it has no Python."""

    def __init__(
        self, box: Sandbox, *, python: str = "python3", preload: Sequence[str] = (), most_characters: int = 8_000
    ) -> None:
        self._box = box
        self._python = python
        self._preload = ",".join(preload)
        self._most_characters = most_characters
        self._shell: Shell | None = None
        self._is_ready = False

    @property
    def tools(self) -> tuple[Tool, ...]:
        """`python`."""
        return (PYTHON,)

    async def start(self) -> None:
        """Starts it, without waiting for the preloaded modules."""
        self._is_ready = False
        command = START.format(
            python=shlex.quote(self._python),
            program=shlex.quote(_program()),
            memory=int(self._box.spec.limits.memory_mb * MEMORY_SHARE),
            preload=shlex.quote(self._preload),
            gone=GONE,
            no_python=NO_PYTHON,
        )
        for attempt in range(ATTEMPTS):
            self._shell = await self._box.open_shell()
            done = await self._shell.run(command, timeout_s=START_S)
            if done.exit_status == NO_PYTHON:
                raise TaskError(f"the box has no {self._python}", fix="give the task a base with Python")
            if done.exit_status == 0 or attempt + 1 == ATTEMPTS:
                break
            await self.aclose()  # this also ends what an earlier call left behind
        _check(done)

    async def call(self, action: Action, *, timeout_s: float) -> CallResult:
        """Runs the code of a call, in the state that earlier calls left."""
        code = action.arguments.get("code")
        if not isinstance(code, str):
            return refused("python needs `code`, a text")
        return await self.run(code, timeout_s=timeout_s)

    async def run(self, code: str, *, timeout_s: float) -> CallResult:
        """Runs code; if it is stopped, the last line says why."""
        quoted = shlex.quote(json.dumps(code))
        if len(quoted) > MOST_CODE_BYTES:
            return refused(f"code of {len(code)} characters is too long for one call")
        shell = await self._ready()
        done = await shell.run(CALL.format(code=quoted, gone=GONE), timeout_s=timeout_s)
        status = _status(done)
        if status is CallStatus.LOST:
            await self.aclose()
        text = cut(done.output, self._most_characters)
        if said := WORDS.get(status):
            text += "" if not text or text.endswith("\n") else "\n"
            text += f"[{said.format(timeout_s=timeout_s)}]"
        return CallResult(text or "[it printed nothing]", status, done.duration_s)

    async def _ready(self) -> Shell:
        if self._shell is None:
            await self.start()
        assert self._shell is not None
        if not self._is_ready:
            _check(await self._shell.run(READY.format(gone=GONE), timeout_s=START_S))
            self._is_ready = True
        return self._shell

    async def aclose(self) -> None:
        """Ends it."""
        shell, self._shell = self._shell, None
        if shell is not None:
            with contextlib.suppress(BoxError):  # a box that is gone has no Python either
                await shell.aclose()


@cache
def _program() -> str:
    return Path(inside_python.__file__).read_text("utf-8")


def _check(done: ShellResult) -> None:
    if done.exit_status != 0 or done.killed_by is not None:
        said = done.output.text.strip()[-500:] or done.killed_by or f"exit status {done.exit_status}"
        raise BoxError(f"Python did not start in the box: {said}")


def _status(done: ShellResult) -> CallStatus:
    if done.is_shell_lost:
        return CallStatus.LOST
    if done.killed_by in KILLED:
        return KILLED[done.killed_by]
    return STATUSES.get(done.exit_status, CallStatus.ENDED)
