"""A user's version on top of the shared one: the engine samples from the sum that was trained, beside everybody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine_models import Answer, ask, install, off_by, plain_model, prompt_of, run

from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines.local.core import Core
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Method, MethodSettings, TrainerSettings

SHARED, ANN, BOB = PolicyVersion("shared", 1), PolicyVersion("user-ann", 1), PolicyVersion("user-bob", 1)
SETTINGS = TrainerSettings(method=MethodSettings(name=Method.BINARY), rank=4, alpha=8.0, lr=0.02, device="cpu")
PROMPT = prompt_of(20)


def scored(answer: Answer, version: PolicyVersion, score: float) -> Sample:
    size = len(answer.tokens)
    return Sample("t", "s", "u", PROMPT, tuple(answer.tokens), tuple(answer.logp), (True,) * size, version, score=score)


def test_two_users_and_the_shared_version_run_in_one_batch_and_training_meets_what_was_recorded(
    open_tiny: Callable[..., Core], model_of: Callable[[str], Path], tmp_path: Path
) -> None:
    core, model = open_tiny(), model_of("qwen3")
    trainer = LoraTrainer.open(model, SETTINGS)
    first = run(core, ask(1, PROMPT))[1]
    assert trainer.step([scored(first, BASE, 1.0)]).metrics["train_rollout_logp_gap"] < 1e-5
    shared = trainer.export(tmp_path / "shared.1", SHARED)
    install(core, shared)
    of_shared = run(core, ask(2, PROMPT, SHARED))[2]
    made = [shared]
    for version, score in ((ANN, 1.0), (BOB, -1.0)):  # opposite views of one reply
        trainer.restore(None, shared.folder)
        assert trainer.step([scored(of_shared, SHARED, score)]).metrics["train_rollout_logp_gap"] < 1e-5
        made.append(trainer.export(tmp_path / str(version), version))
        install(core, made[-1])
    answers = run(core, *(ask(10 + at, PROMPT, adapter.version) for at, adapter in enumerate(made)))
    for at, adapter in enumerate(made):
        assert off_by(plain_model(model, adapter), PROMPT, answers[10 + at]) < 1e-4
    trainer.restore(made[1].folder, shared.folder)
    again = trainer.step([scored(answers[11], ANN, 1.0)]).metrics
    assert again["train_rollout_logp_gap"] < 1e-5
