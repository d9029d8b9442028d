"""Versions of which every weight was trained: served beside the base and adapters, exactly, and within a limit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_models import Answer, ask, install, off_by, plain_logp, plain_model, prompt_of, run
from torch import Tensor

from openclaw_rl.core.adapter import FULL_WEIGHTS, Adapter, digest_of_folder
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines import LocalEngine
from openclaw_rl.engines.local.build import open_core
from openclaw_rl.engines.local.copies import read_copy
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.wire import ScoreJob
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.errors import AdapterError, ConfigError, EngineError
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Method, MethodSettings, TrainerSettings

PRAISE = TrainerSettings(
    method=MethodSettings(name=Method.BINARY, kl_beta=0.1), parameters="full", lr=1e-3, device="cpu"
)
PROMPT = prompt_of(20)


def full(number: int) -> PolicyVersion:
    return PolicyVersion("shared", number)


def praised(prompt: tuple[int, ...], answer: Answer, version: PolicyVersion = BASE) -> Sample:
    """What the engine sampled, as it recorded it."""
    size = len(answer.tokens)
    return Sample("t", "s", "u", prompt, tuple(answer.tokens), tuple(answer.logp), (True,) * size, version, score=1.0)


@pytest.fixture(scope="module")
def settings(model_of: Callable[[str], Path]) -> EngineSettings:
    return EngineSettings(model=str(model_of("qwen3")), device="cpu", cache_tokens=16384)


@pytest.fixture(scope="module")
def versions(settings: EngineSettings, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Adapter]:
    """Three versions, each some steps of every weight from the one before."""
    folder = tmp_path_factory.mktemp("full")
    trainer = LoraTrainer.open(Path(settings.model), PRAISE)
    made: dict[int, Adapter] = {}
    for number in (1, 2, 3):
        for _ in range(4):
            assert trainer.step([praised(PROMPT, Answer([5, 6, 7], logp=[-4.0] * 3))]).took_step
        made[number] = trainer.export(folder / f"shared.{number}", full(number))
    return made


@pytest.fixture
def core(settings: EngineSettings) -> Core:
    return open_core(settings)


def load(core: Core, settings: EngineSettings, made: Adapter) -> None:
    """Reads and installs, as the host does."""
    core.install(read_copy(made, settings, core.served), made.version, made.digest)


def test_base_adapter_and_two_full_versions_run_in_one_batch_each_as_itself(
    core: Core, settings: EngineSettings, versions: dict[int, Adapter], adapter_of: Callable[..., Adapter]
) -> None:
    lora = adapter_of(9)
    install(core, lora)
    for number in (1, 2):
        load(core, settings, versions[number])
    asked = [BASE, full(1), lora.version, full(2), full(1)]
    prompts = [prompt_of(20 + 7 * at, at) for at in range(len(asked))]
    job = ScoreJob(90, PROMPT, 1, full(2))
    answers = run(core, *(ask(at, prompts[at], version) for at, version in enumerate(asked)), job)
    base = Path(settings.model)
    plain = {
        BASE: plain_model(base),
        lora.version: plain_model(base, lora),
        **{full(number): plain_model(versions[number].folder) for number in (1, 2)},
    }
    for at, version in enumerate(asked):
        assert off_by(plain[version], prompts[at], answers[at]) < 1e-4, version
    others = off_by(plain[BASE], prompts[1], answers[1])
    assert others > 1e-3  # what was trained is what speaks
    scores = answers[90].scores
    assert scores is not None
    want = plain_logp(plain[full(2)], PROMPT)[:-1].gather(1, _column(PROMPT[1:]))[:, 0].tolist()
    assert scores.logp == pytest.approx(want, abs=1e-4)


def test_what_a_full_version_sampled_is_what_the_trainer_computes_for_it(
    core: Core, settings: EngineSettings, versions: dict[int, Adapter]
) -> None:
    load(core, settings, versions[2])
    answer = run(core, ask(1, PROMPT, full(2)))[1]
    trainer = LoraTrainer.open(Path(settings.model), PRAISE)
    trainer.restore(versions[2].folder)
    metrics = trainer.step([praised(PROMPT, answer, full(2))]).metrics
    assert metrics["train_rollout_logp_gap"] < 1e-5
    assert metrics["kl"] > 1e-6  # measured from the base, which stayed as it was


def test_one_copy_more_than_there_may_be_is_told_and_the_place_of_one_that_left_is_free(
    core: Core, settings: EngineSettings, versions: dict[int, Adapter]
) -> None:
    load(core, settings, versions[1])
    load(core, settings, versions[2])
    with pytest.raises(EngineError, match=r"2 whole copies .* engine\.max_full_versions"):
        load(core, settings, versions[3])
    core.submit(ask(1, PROMPT, full(1), max_tokens=3))
    core.unload(full(1))
    with pytest.raises(EngineError, match="whole copies"):  # somebody still runs on it
        load(core, settings, versions[3])
    assert run(core)[1].problem == ""
    load(core, settings, versions[3])
    assert core.stats().versions == ("shared.2", "shared.3")
    assert run(core, ask(2, PROMPT, full(1)))[2].problem == "version shared.1 is not loaded"
    with pytest.raises(AdapterError, match="other weights"):
        core.install(read_copy(versions[1], settings, core.served), full(3), versions[1].digest)


def test_damaged_weights_and_those_of_another_model_are_refused(
    core: Core, settings: EngineSettings, versions: dict[int, Adapter], model_of: Callable[[str], Path]
) -> None:
    other = model_of("llama")
    with pytest.raises(AdapterError, match=r"shared\.7"):
        load(core, settings, Adapter(other, "0" * 64, full(7)))
    gemma = model_of("gemma3")
    with pytest.raises(AdapterError):
        load(core, settings, Adapter(gemma, digest_of_folder(gemma), full(7)))
    gone = replace(versions[1], folder=versions[1].folder / "nowhere")
    with pytest.raises(AdapterError):
        read_copy(gone, settings, core.served)
    assert (versions[1].folder / FULL_WEIGHTS).is_file()
    with pytest.raises(ConfigError, match="at least 2"):
        EngineSettings(max_full_versions=1)


async def test_the_process_serves_full_versions_and_says_when_it_is_full(
    settings: EngineSettings, versions: dict[int, Adapter]
) -> None:
    async with aclosing(await LocalEngine.start(settings)) as engine:
        await engine.load(versions[1])
        await engine.load(versions[2])
        with pytest.raises(EngineError, match="whole copies"):
            await engine.load(versions[3])
        sampling = Sampling(max_tokens=12, seed=1)
        items = [item async for item in engine.generate(Prompt(PROMPT), sampling, full(2))]
        os.kill(engine.pid, signal.SIGKILL)  # started again, the copies with it
        again = [item async for item in engine.generate(Prompt(PROMPT), sampling, full(2))]
    said = Answer([item.token for item in items], logp=[item.logp for item in items])
    assert off_by(plain_model(versions[2].folder), PROMPT, said) < 1e-4
    assert [item.token for item in again] == said.tokens
    assert {item.version for item in items} == {full(2)}


def _column(tokens: tuple[int, ...]) -> Tensor:
    return torch.tensor(tokens)[:, None]
