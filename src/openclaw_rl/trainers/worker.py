"""The trainer's process: reads calls on stdin, answers on stdout, and exits as soon as stdin closes.

Any error ends it, so that a call never meets a trainer in an unknown state; its owner starts another from the last
version.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from openclaw_rl.core import pipe
from openclaw_rl.core.adapter import StepProgress, StepReport
from openclaw_rl.core.disk import FREE_SPACE, FULL
from openclaw_rl.core.logs import set_up_logging
from openclaw_rl.core.memory import give_back, map_large
from openclaw_rl.errors import OpenClawRLError, TrainerError
from openclaw_rl.trainers.frames import (
    PLACE,
    Answer,
    ExportCommand,
    OpenCommand,
    Opened,
    RebaseCommand,
    StepCommand,
    TrainerFailure,
    is_follower,
)

if TYPE_CHECKING:
    from openclaw_rl.trainers.lora import LoraTrainer
    from openclaw_rl.weights.lending import Loans

log = logging.getLogger(__name__)
LOOK_S = 0.5  # between two checks whether the process whose weights are read here still lives
REPORT_S = 0.5  # between two reports of a step's progress
RANKS_S = 3.0  # how long a rank whose exchange failed waits for the report of the one that caused it


def main() -> None:
    """Serves calls until stdin closes; a rank other than the first serves those that the first passes on."""
    set_up_logging(logging.WARNING, text="trainer: %(message)s")
    answers = _Answers(_own_stdout())
    calls: queue.Queue[object] = queue.Queue(
        maxsize=4
    )  # the owner waits for each answer; further calls wait in the pipe
    if not is_follower() or PLACE in os.environ:  # else stdin is the first rank's, inherited through a launcher
        threading.Thread(target=_listen, args=(sys.stdin.buffer, calls), daemon=True).start()
    try:
        _serve(calls, answers)
    except OpenClawRLError as problem:
        answers.fail(TrainerFailure(problem.problem, problem.fix))
    except Exception as problem:  # the edge of the process: its owner must receive it
        if is_out_of_room(problem):
            answers.fail(TrainerFailure("the trainer cannot write its version: the disk is full", FREE_SPACE))
        if is_out_of_memory(problem):
            fix = "lower trainer.max_tokens_per_pass, or train.max_sample_tokens if conversations are long"
            answers.fail(TrainerFailure("the trainer ran out of memory", fix, is_memory=True))
        if isinstance(problem, RuntimeError) and answers.has_others:
            time.sleep(RANKS_S)  # the ranks that wait notice one that is gone: its own report comes first
        log.exception("the step failed")
        answers.fail(TrainerFailure(f"{type(problem).__name__}: {problem}"))


class _Answers:
    """The answers to the owner. Other ranks' failures are sent here too, from other threads."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.has_others = False
        self.is_first = not is_follower()
        self._one = threading.Lock()

    def give(self, answer: object) -> None:
        """Sends the first rank's answer; the others send none."""
        if self.is_first:
            with self._one:
                pipe.write(self.stream, answer)

    def fail(self, failure: TrainerFailure) -> NoReturn:
        """Reports why this process ends, and ends it. With a launcher only the first rank reports."""
        with self._one:
            if self.is_first or PLACE in os.environ:
                pipe.write(self.stream, failure)
            else:
                sys.stderr.write(f"{failure.problem}\n")
            os._exit(1)


def is_out_of_memory(problem: Exception) -> bool:
    """Whether memory ran out: torch reports it only in the message on a CPU, by an exception class on a GPU."""
    words = str(problem).lower()
    return isinstance(problem, MemoryError) or "out of memory" in words or "can't allocate memory" in words


def is_out_of_room(problem: Exception) -> bool:
    """Whether the disk was full: the library that writes weights reports it only in the message."""
    return (isinstance(problem, OSError) and problem.errno in FULL) or "No space left on device" in str(problem)


def _own_stdout() -> BinaryIO:
    """The real stdout; from now on printed text goes to stderr instead of between the answers."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _listen(stream: BinaryIO, calls: queue.Queue[object]) -> None:
    while (call := pipe.read(stream)) is not None:
        calls.put(call)
    os._exit(0)  # the owner is gone; a step in progress is useless


def _reporter(answers: _Answers) -> Callable[[StepProgress], None]:
    """Reports a step's progress to the owner at intervals; never waits for an owner that does not read."""
    last_s = -REPORT_S

    def report(progress: StepProgress) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        # A pipe that takes anything takes 4,096 bytes at once, and a report is far smaller.
        if now_s - last_s >= REPORT_S and select.select([], [answers.stream], [], 0)[1]:
            last_s = now_s
            answers.give(progress)

    return report


def _step(trainer: LoraTrainer, call: StepCommand, loans: Loans, answers: _Answers) -> StepReport:
    """One step, from weights that were valid from its beginning to its end. Raises TrainerError if they were not."""
    loans.check()
    try:
        return trainer.step(call.samples, _reporter(answers), gentleness=call.gentleness)
    finally:
        loans.check()  # in place of the GPU's error, too: it is the cause


def _watch(loans: Loans, answers: _Answers) -> NoReturn:
    """Ends this process soon after the one whose weights it reads: while they are mapped, their memory is not free."""
    while True:
        time.sleep(LOOK_S)
        try:
            loans.check()
        except TrainerError as problem:
            answers.fail(TrainerFailure(problem.problem, problem.fix))


def _serve(calls: queue.Queue[object], answers: _Answers) -> None:
    opening = None if is_follower() else calls.get()
    if isinstance(opening, OpenCommand):
        with contextlib.suppress(OSError):
            os.nice(opening.settings.nice)
        answers.has_others = opening.settings.ranks > 1
    import torch

    from openclaw_rl.trainers.lora import LoraTrainer
    from openclaw_rl.trainers.ranks import joined
    from openclaw_rl.weights.lending import Loans, loan_folder
    from openclaw_rl.weights.mapped_files import cache_folder

    ranks = joined(opening.settings if isinstance(opening, OpenCommand) else None, answers.fail)
    answers.has_others = ranks.count > 1
    first = ranks.shared(opening)
    if not isinstance(first, OpenCommand):
        raise TypeError(f"the first call was {type(first).__name__}")
    torch.set_num_threads(first.settings.threads)
    loans = Loans(loan_folder(cache_folder()))
    trainer = LoraTrainer.open(first.model, first.settings, ranks, loans=loans)
    if loans.count:
        threading.Thread(target=_watch, args=(loans, answers), daemon=True).start()
    gc.collect()
    give_back()
    map_large(trainer.model.parameters)
    if first.resume is not None:
        trainer.restore(first.resume)
    held: tuple[Path | None, Path | None] = (first.resume, None)
    is_held = True  # whether the weights are those of `held`
    answers.give(Opened())
    while True:
        call = ranks.shared(calls.get() if ranks.is_first else None)
        answer: Answer
        if isinstance(call, StepCommand | RebaseCommand):
            if not is_held or (call.resume, call.under) != held:
                trainer.restore(call.resume, call.under)
                held, is_held = (call.resume, call.under), True
            answer = Opened()
            if isinstance(call, StepCommand):
                answer = _step(trainer, call, loans, answers)
                is_held = False  # an abandoned step may have made some of its updates
        elif isinstance(call, ExportCommand):
            answer = trainer.export(call.folder, call.version)
            held, is_held = (call.folder, held[1]), True
        else:
            raise TypeError(f"a {type(call).__name__} is not a call")
        answers.give(answer)


if __name__ == "__main__":
    main()
