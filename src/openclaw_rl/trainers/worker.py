"""The trainer's process: reads calls on stdin, answers on stdout, and is gone the moment stdin closes.

Whatever goes wrong ends it, so that a call never meets a trainer in an unknown state; its owner starts another from the
last version.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from openclaw_rl.core import pipe
from openclaw_rl.core.adapter import StepProgress
from openclaw_rl.core.disk import FREE_SPACE, FULL
from openclaw_rl.core.logs import set_up_logging
from openclaw_rl.errors import OpenClawRLError
from openclaw_rl.trainers.frames import (
    Answer,
    ExportCommand,
    OpenCommand,
    Opened,
    RebaseCommand,
    StepCommand,
    TrainerFailure,
)

log = logging.getLogger(__name__)
REPORT_S = 0.5  # between two reports of a step's progress


def main() -> None:
    """Serves calls until stdin closes."""
    set_up_logging(logging.WARNING, text="trainer: %(message)s")
    answers = _own_stdout()
    calls: queue.Queue[object] = queue.Queue(maxsize=4)  # the owner waits for each answer; the pipe waits beyond
    threading.Thread(target=_listen, args=(sys.stdin.buffer, calls), daemon=True).start()
    try:
        _serve(calls, answers)
    except OpenClawRLError as problem:
        pipe.write(answers, TrainerFailure(problem.problem, problem.fix))
    except Exception as problem:  # the edge of the process: its owner must hear of it
        if is_out_of_room(problem):
            pipe.write(answers, TrainerFailure("the trainer cannot write its version: the disk is full", FREE_SPACE))
        elif is_out_of_memory(problem):
            fix = "lower trainer.max_tokens_per_pass, or train.max_sample_tokens where conversations are long"
            pipe.write(answers, TrainerFailure("the trainer ran out of memory", fix, is_memory=True))
        else:
            log.exception("the step broke")
            pipe.write(answers, TrainerFailure(f"{type(problem).__name__}: {problem}"))
    os._exit(1)


def is_out_of_memory(problem: Exception) -> bool:
    """Whether memory is what was lacking: torch says so in words alone on a CPU, by a kind of its own on a GPU."""
    words = str(problem).lower()
    return isinstance(problem, MemoryError) or "out of memory" in words or "can't allocate memory" in words


def is_out_of_room(problem: Exception) -> bool:
    """Whether the disk is what was lacking: the library that writes weights says so in words alone."""
    return (isinstance(problem, OSError) and problem.errno in FULL) or "No space left on device" in str(problem)


def _own_stdout() -> BinaryIO:
    """The real stdout; from now on whatever prints goes to stderr instead of between the answers."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _listen(stream: BinaryIO, calls: queue.Queue[object]) -> None:
    while (call := pipe.read(stream)) is not None:
        calls.put(call)
    os._exit(0)  # the owner is gone; a step in progress is of no use to anybody


def _reporter(answers: BinaryIO) -> Callable[[StepProgress], None]:
    """Tells the owner how far a step has come, now and then; never waits for an owner who does not listen."""
    last_s = -REPORT_S

    def report(progress: StepProgress) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        # A pipe that takes anything takes 4,096 bytes at once, and a report is far smaller.
        if now_s - last_s >= REPORT_S and select.select([], [answers], [], 0)[1]:
            last_s = now_s
            pipe.write(answers, progress)

    return report


def _serve(calls: queue.Queue[object], answers: BinaryIO) -> None:
    first = calls.get()
    if not isinstance(first, OpenCommand):
        raise TypeError(f"the first call was {type(first).__name__}")
    with contextlib.suppress(OSError):
        os.nice(first.settings.nice)
    import torch

    from openclaw_rl.trainers.lora import LoraTrainer
    from openclaw_rl.weights.trimming import give_back

    torch.set_num_threads(first.settings.threads)
    trainer = LoraTrainer.open(first.model, first.settings)
    give_back()
    if first.resume is not None:
        trainer.restore(first.resume)
    held: tuple[Path | None, Path | None] = (first.resume, None)
    is_held = True  # whether the weights are those of `held`
    pipe.write(answers, Opened())
    while True:
        call = calls.get()
        answer: Answer
        if isinstance(call, StepCommand | RebaseCommand):
            if not is_held or (call.resume, call.under) != held:
                trainer.restore(call.resume, call.under)
                held, is_held = (call.resume, call.under), True
            answer = Opened()
            if isinstance(call, StepCommand):
                answer = trainer.step(call.samples, _reporter(answers), gentleness=call.gentleness)
                is_held = False  # one that was given up may have made some of its updates
        elif isinstance(call, ExportCommand):
            answer = trainer.export(call.folder, call.version)
            held, is_held = (call.folder, held[1]), True
        else:
            raise TypeError(f"no call is a {type(call).__name__}")
        pipe.write(answers, answer)


if __name__ == "__main__":
    main()
