"""A trainer in a separate process, which may crash or run out of memory without affecting the server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from openclaw_rl.core import pipe
from openclaw_rl.core.adapter import Adapter, StepProgress, StepReport
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import StepTooCostlyError, TrainerError
from openclaw_rl.trainers.frames import (
    PLACE,
    Answer,
    Call,
    ExportCommand,
    OpenCommand,
    Opened,
    RebaseCommand,
    StepCommand,
    TrainerFailure,
    place_of,
)
from openclaw_rl.trainers.settings import TrainerSettings
from openclaw_rl.weights.mapped_files import cache_folder, remove_unused

KILLED = "it was killed, as happens when memory runs out"


class TrainerProcess:
    """Starts its process when it is first needed, and again after it died."""

    def __init__(self, model: Path, settings: TrainerSettings) -> None:
        self._model = model
        self._settings = settings
        self._child: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()  # one call at a time; others wait
        self._heard: StepProgress | None = None  # of the current step
        self._asked_s = 0.0
        self._meeting: TemporaryDirectory[str] | None = None  # where the ranks find each other

    @classmethod
    async def start(cls, model: Path, settings: TrainerSettings, *, resume: Path | None = None) -> TrainerProcess:
        """A trainer whose model is loaded. Raises TrainerError."""
        trainer = cls(model, settings)
        async with trainer._turn:
            await trainer._ready(resume)
        return trainer

    @property
    def pid(self) -> int | None:
        """The process's id while it lives."""
        return None if self._child is None or self._child.returncode is not None else self._child.pid

    @property
    def progress(self) -> StepProgress | None:
        """The last reported progress of the current step; None if there is none."""
        return None if self._heard is None else replace(self._heard, spent_s=time.monotonic() - self._asked_s)

    async def prepare(self) -> None:
        """Starts the process and loads the model, if it does not run. Raises TrainerError."""
        async with self._turn:
            await self._ready(None)

    async def step(
        self, samples: Sequence[Sample], *, resume: Path | None, under: Path | None = None, gentleness: int = 0
    ) -> StepReport:
        """One step from the version whose folder is `resume`; None is a fresh adapter, which adds nothing.

        It is based on the adapter in `under`, None being the base model, and an export then contains both.
        Raises TrainerError if the process died or failed, and StepTooDearError if it took longer than `timeout_s` or
        ran out of memory. The next call starts a new process.
        """
        async with self._turn:
            await self._ready(None)
            self._heard, self._asked_s = StepProgress(), time.monotonic()
            try:
                answer = await self._ask(StepCommand(tuple(samples), resume, under, gentleness))
            finally:
                self._heard = None
        if not isinstance(answer, StepReport):
            raise TrainerError(f"the trainer answered a step with {type(answer).__name__}")
        return answer

    async def rebase(self, *, resume: Path, under: Path | None) -> None:
        """Bases a version on another than it was made on, to be exported so. Raises TrainerError."""
        async with self._turn:
            await self._ready(None)
            answer = await self._ask(RebaseCommand(resume, under))
        if not isinstance(answer, Opened):
            raise TrainerError(f"the trainer answered a rebase with {type(answer).__name__}")

    async def export(self, folder: Path, version: PolicyVersion) -> Adapter:
        """Writes the result of the last step to disk. Raises TrainerError, also if it was lost with its process."""
        async with self._turn:
            if self.pid is None:
                raise TrainerError("the trainer's process is gone, and with it the step that should be written")
            answer = await self._ask(ExportCommand(folder, version))
        if not isinstance(answer, Adapter):
            raise TrainerError(f"the trainer answered an export with {type(answer).__name__}")
        return answer

    async def aclose(self) -> None:
        """Ends the process, even in the middle of a step, and waits until it is gone."""
        await self._end()
        await asyncio.to_thread(remove_unused, cache_folder())

    async def _ready(self, resume: Path | None) -> None:
        if self.pid is not None:
            return
        settings = self._settings
        environment = os.environ | {"OMP_NUM_THREADS": str(settings.threads), "TOKENIZERS_PARALLELISM": "false"}
        if settings.ranks > 1 and not settings.launcher:
            self._meeting = TemporaryDirectory(prefix="openclaw-rl-ranks-")
            environment |= {PLACE: place_of(0, settings.ranks, Path(self._meeting.name) / "ranks")}
        self._child = await asyncio.create_subprocess_exec(
            *(shlex.split(settings.launcher) or [sys.executable]),
            "-m",
            "openclaw_rl.trainers.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,  # a Ctrl-C at the terminal is for the owner, who ends its children in order
        )
        answer = await self._ask(OpenCommand(self._model, self._settings, resume))
        if not isinstance(answer, Opened):
            raise TrainerError(f"the trainer answered its start with {type(answer).__name__}")

    async def _ask(self, call: Call) -> Answer:
        """The answer to a call. Anything else, including a cancelled wait, ends the process."""
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                answer = await self._exchange(call)
        except TimeoutError:
            await self._end()
            problem = f"the trainer did not answer within {self._settings.timeout_s:g} s"
            if isinstance(call, StepCommand):
                fix = "raise trainer.timeout_s, or train on a GPU"
                raise StepTooCostlyError(problem, fix=fix, after_s=self._settings.timeout_s) from None
            raise TrainerError(problem, fix="raise trainer.timeout_s") from None
        except (OSError, asyncio.IncompleteReadError):
            how = await self._end()
            kind = StepTooCostlyError if isinstance(call, StepCommand) and how == KILLED else TrainerError
            raise kind(f"the trainer's process ended: {how}") from None
        except BaseException:
            await self._end()
            raise
        if isinstance(answer, TrainerFailure):
            await self._end()
            kind = StepTooCostlyError if isinstance(call, StepCommand) and answer.is_memory else TrainerError
            raise kind(answer.problem, fix=answer.fix)
        return answer

    async def _exchange(self, call: Call) -> Answer:
        child = self._child
        assert child is not None and child.stdin is not None and child.stdout is not None
        child.stdin.write(pipe.packed(call))
        await child.stdin.drain()
        while True:
            (size,) = pipe.HEADER.unpack(await child.stdout.readexactly(pipe.HEADER.size))
            answer: Answer = pickle.loads(await child.stdout.readexactly(size))
            if not isinstance(answer, StepProgress):
                return answer
            self._heard = answer

    async def _end(self) -> str:
        """Ends the process if it still runs, and returns how it ended."""
        child, self._child = self._child, None
        if child is None:
            return "it was not running"
        try:
            return await _ended(child)
        finally:
            if self._meeting is not None:
                self._meeting.cleanup()
                self._meeting = None


async def _ended(child: asyncio.subprocess.Process) -> str:
    if child.stdin is not None:
        child.stdin.close()  # makes it exit
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await child.wait()
    if child.returncode is None:
        child.kill()
        await child.wait()
    code = child.returncode
    if code == -signal.SIGKILL:
        return KILLED
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
