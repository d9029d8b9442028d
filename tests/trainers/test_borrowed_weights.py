"""A trainer whose frozen weights are in another process's memory learns the same, and stops when that process ends."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from trainer_models import Recorder, settings_of
from transformers import AutoModelForCausalLM

from openclaw_rl.core import pipe
from openclaw_rl.errors import TrainerError
from openclaw_rl.trainers.frames import StepCommand, TrainerFailure
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Method, MethodSettings, TeacherKind
from openclaw_rl.trainers.worker import _Answers, _step
from openclaw_rl.weights.lending import Loans, StorageHandle, lent
from openclaw_rl.weights.parts import parts_of

BINARY = settings_of(MethodSettings(name=Method.BINARY), lr=1e-3)


class SameProcess:
    """Lends within one process: a storage is its own handle."""

    def __init__(self) -> None:
        self.given: list[torch.UntypedStorage] = []

    def place(self, device: torch.device) -> str | None:
        """Any device."""
        return str(device)

    def settle(self, device: torch.device) -> None:
        """Nothing is written later."""

    def give(self, storage: torch.UntypedStorage) -> StorageHandle:
        """Its place in the list."""
        self.given.append(storage)
        return StorageHandle(b"", storage.nbytes(), len(self.given) - 1, b"", 0)

    def take(self, handle: StorageHandle, device: torch.device) -> torch.UntypedStorage:
        """The storage itself."""
        return self.given[handle.offset_bytes]


class Lender:
    """The engine's part: the model in its memory, lent until `end`."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.ipc = SameProcess()
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).requires_grad_(False)
        self.size = sum(one.nbytes for one in self.model.parameters())
        self._context = ExitStack()
        self._context.enter_context(lent(parts_of(self.model), folder, ipc=self.ipc, least=0))
        self.loans = Loans(folder, ipc=self.ipc)

    def end(self) -> None:
        """The engine is gone."""
        self._context.close()


@pytest.fixture
def lender(trainer_model: Path, tmp_path: Path) -> Iterator[Lender]:
    made = Lender(trainer_model, tmp_path / "gpu")
    yield made
    made.end()
    made.loans.close()


def _borrowed(trainer: LoraTrainer, lender: Lender) -> set[str]:
    """The lender's tensors in which the trainer's model reads."""
    there = {one.data_ptr(): name for name, one in lender.model.named_parameters()}
    body = trainer.model._body
    return {there[one.data_ptr()] for one in body.parameters() if one.data_ptr() in there}


def test_a_step_on_borrowed_weights_is_the_step_on_own_ones(
    trainer_model: Path, recorder: Recorder, lender: Lender
) -> None:
    own = LoraTrainer.open(trainer_model, BINARY)
    trainer = LoraTrainer.open(trainer_model, BINARY, loans=lender.loans)
    assert _borrowed(trainer, lender) == {name for name, _ in lender.model.named_parameters()}
    assert _borrowed(own, lender) == set()
    before = {name: one.clone() for name, one in lender.model.named_parameters()}
    for one in (own, trainer):
        assert one.step(recorder.batch()).took_step
    assert_close(trainer.model.weights(), own.model.weights(), rtol=0, atol=1e-5)
    assert trainer.model.parameters == own.model.parameters
    for name, one in lender.model.named_parameters():
        assert torch.equal(one, before[name])  # nothing was written there


def test_a_teacher_of_the_same_model_reads_there_too(
    trainer_model: Path, recorder: Recorder, lender: Lender, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for path in trainer_model.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"piece": 0}}}))
    method = MethodSettings(name=Method.TOPK, teacher=TeacherKind.MODEL, teacher_model=str(folder))
    trainer = LoraTrainer.open(folder, settings_of(method, lr=1e-3), loans=lender.loans)
    assert len(lender.loans._held) == 2
    assert trainer.step(recorder.batch()).took_step


def test_weights_that_train_are_never_borrowed(trainer_model: Path, lender: Lender) -> None:
    full = settings_of(BINARY.method, parameters="full", lr=1e-3)
    trainer = LoraTrainer.open(trainer_model, full, loans=lender.loans)
    assert _borrowed(trainer, lender) == set() and lender.loans._held == []


@pytest.mark.parametrize("settings", [{"dtype": "bfloat16"}, {"dtype": "float32"}])
def test_another_number_format_has_its_own_weights(
    trainer_model: Path, lender: Lender, settings: dict[str, str]
) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(BINARY.method, **settings), loans=lender.loans)
    assert (len(_borrowed(trainer, lender)) > 0) == (settings["dtype"] == "float32")


class Pipe:
    """Where the worker's answers go: a file that is always writable. `act` happens at the first report."""

    def __init__(self, place: Path, act: Callable[[], None] = lambda: None) -> None:
        self._file = place.open("wb")
        self._act = act

    def fileno(self) -> int:
        """The file's number."""
        return self._file.fileno()

    def write(self, data: bytes) -> int:
        """The report, and what happens at it."""
        self._act()
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""


@contextmanager
def _answers(place: Path, act: Callable[[], None] = lambda: None) -> Iterator[_Answers]:
    stream = Pipe(place, act)
    yield _Answers(stream)  # type: ignore[arg-type]
    stream._file.close()


def _command(recorder: Recorder) -> StepCommand:
    return StepCommand(tuple(recorder.batch()), None)


def test_a_step_ends_with_the_reason_if_the_lender_is_gone_before_it(
    trainer_model: Path, recorder: Recorder, lender: Lender, tmp_path: Path
) -> None:
    trainer = LoraTrainer.open(trainer_model, BINARY, loans=lender.loans)
    before = trainer.model.weights()
    lender.end()
    with (
        _answers(tmp_path / "answers") as answers,
        pytest.raises(TrainerError, match="whose base weights the trainer reads on the GPU has ended"),
    ):
        _step(trainer, _command(recorder), lender.loans, answers)
    assert_close(trainer.model.weights(), before, rtol=0, atol=0)


@pytest.mark.parametrize("is_error", [False, True])
def test_a_step_in_which_the_lender_ends_is_not_reported(
    trainer_model: Path, recorder: Recorder, lender: Lender, tmp_path: Path, is_error: bool
) -> None:
    trainer = LoraTrainer.open(trainer_model, BINARY, loans=lender.loans)

    def end() -> None:
        lender.end()
        if is_error:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with _answers(tmp_path / "answers", end) as answers, pytest.raises(TrainerError, match="has ended") as told:
        _step(trainer, _command(recorder), lender.loans, answers)
    assert isinstance(told.value.__context__, RuntimeError) == is_error


def test_a_step_after_which_the_lender_lives_is_reported(
    trainer_model: Path, recorder: Recorder, lender: Lender, tmp_path: Path
) -> None:
    trainer = LoraTrainer.open(trainer_model, BINARY, loans=lender.loans)
    with _answers(tmp_path / "answers") as answers:
        assert _step(trainer, _command(recorder), lender.loans, answers).took_step


WATCHER = """
import os, sys
from pathlib import Path
from openclaw_rl.trainers.worker import _Answers, _watch
from openclaw_rl.weights.lending import Loans
loans = Loans(Path(sys.argv[1]).parent)
loans._held.append(os.open(sys.argv[1], os.O_RDONLY))
print("watches", file=sys.stderr, flush=True)
_watch(loans, _Answers(sys.stdout.buffer))
"""


def test_a_trainer_that_waits_ends_too_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / "lent.json"
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = [sys.executable, "-c", WATCHER, str(file)]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert child.stdout is not None and child.stderr is not None
        with child.stdout, child.stderr:
            assert child.stderr.readline() == b"watches\n"
            assert child.poll() is None
            fcntl.flock(lock, fcntl.LOCK_UN)
            answer = pipe.read(child.stdout)
            assert child.wait(timeout=30) == 1
    assert isinstance(answer, TrainerFailure) and "has ended" in answer.problem and not answer.is_memory
