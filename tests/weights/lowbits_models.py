"""A made model whose layers are wide enough for few bits, its engine and its trainer, and an adapter for both."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines.local.adapters import read_adapter
from openclaw_rl.engines.local.build import open_core
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.wire import Submit
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.trainers.batch import Reading, read_once, token_logp
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import TrainerSettings

VOCABULARY = 160
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,  # far from uniform, so that a wrong weight shows
}


def save_model(folder: Path, kind: str) -> Path:
    """A random model of a family."""
    torch.manual_seed(3)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SHAPE)).save_pretrained(folder)
    return folder


def engine_of(model: Path, weights: str, dtype: str) -> Core:
    """The local engine's core."""
    settings = {"device": "cpu", "cache_tokens": 8192, "weights": weights, "dtype": dtype}
    return open_core(EngineSettings(model=str(model), **settings))  # type: ignore[arg-type]


def trainer_of(model: Path, weights: str, dtype: str) -> LoraTrainer:
    """The local trainer."""
    settings = {"rank": 4, "alpha": 8.0, "device": "cpu", "weights": weights, "dtype": dtype}
    return LoraTrainer.open(model, TrainerSettings(**settings))  # type: ignore[arg-type]


def adapter_of(trainer: LoraTrainer, folder: Path) -> Adapter:
    """Random LoRA weights, in the trainer from now on, and as a version's folder."""
    torch.manual_seed(5)
    trainer.model.set_weights({name: 0.1 * torch.randn_like(one) for name, one in trainer.model.weights().items()})
    return trainer.export(folder, PolicyVersion("shared", 1))


def sampled(
    core: Core, adapter: Adapter | None, *, answers: int = 6
) -> list[tuple[tuple[int, ...], list[int], list[float]]]:
    """Prompts, sampled tokens and the log-probabilities that the engine records."""
    version = BASE
    if adapter is not None:
        core.install(read_adapter(adapter, core.adapters.linears()), adapter.version, adapter.digest)
        version = adapter.version
    source = random.Random(1)
    prompts = [tuple(source.randrange(VOCABULARY) for _ in range(20 + 9 * number)) for number in range(answers)]
    found: dict[int, tuple[list[int], list[float]]] = {number: ([], []) for number in range(answers)}
    for number, prompt in enumerate(prompts):
        core.submit(Submit(number, prompt, Sampling(max_tokens=24), version, seed=number))
    while core.has_work:
        step = core.step()
        for spot, number in enumerate(step.rows):
            found[number][0].append(step.tokens[spot])
            found[number][1].append(step.logp[spot])
    return [(prompt, *found[number]) for number, prompt in enumerate(prompts)]


def recomputed(trainer: LoraTrainer, prompt: tuple[int, ...], tokens: list[int]) -> Tensor:
    """The trainer's log-probabilities of the same tokens."""
    ids = (*prompt, *tokens)
    reading = Reading(ids, tuple(range(len(prompt), len(ids))))
    hidden = read_once(trainer.model, [reading], 2048)[0]
    return token_logp(trainer.model, hidden, torch.tensor(tokens), 1 << 20)
