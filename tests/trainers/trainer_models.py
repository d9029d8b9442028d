"""Tiny random models, and samples drawn from them the way an engine would record them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.version import BASE
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import MethodSettings, TrainerSettings

VOCABULARY = 64
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SHAPE = {**SMALL, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": VOCABULARY, "max_position_embeddings": 256}
OF_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def save_model(folder: Path, kind: str = "qwen3") -> Path:
    """A random model of a family, saved as users' models are."""
    own = OF_EXPERTS if kind == "qwen3_moe" else {}
    config = AutoConfig.for_model(kind, **SHAPE, **own, tie_word_embeddings=True, pad_token_id=0)
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.15)  # sharper than the usual start: there is something to tell apart
            elif parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))  # biases too, where a family has them
    model.save_pretrained(folder)
    return folder


class Recorder:
    """Makes samples whose log-probabilities are the base model's own, computed by plain transformers."""

    def __init__(self, folder: Path) -> None:
        self.model: nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()

    def logp(self, prompt: tuple[int, ...], response: tuple[int, ...]) -> tuple[float, ...]:
        """Of each response token at temperature 1."""
        with torch.no_grad():
            every = self.model(input_ids=torch.tensor([prompt + response])).logits[0].log_softmax(-1)
        rows = every[len(prompt) - 1 : -1]
        return tuple(rows.gather(-1, torch.tensor(response).unsqueeze(-1)).squeeze(-1).tolist())

    def sample(
        self,
        prompt: tuple[int, ...],
        response: tuple[int, ...],
        *,
        turn: str = "turn",
        score: float | None = None,
        hints: tuple[HintPrompt, ...] = (),
    ) -> Sample:
        """A turn of the base model."""
        return Sample(
            turn=turn,
            session="session",
            user="user",
            prompt=prompt,
            response=response,
            logp=self.logp(prompt, response),
            mask=(True,) * len(response),
            version=BASE,
            score=score,
            hints=hints,
        )

    def batch(self) -> list[Sample]:
        """Three turns: one with a hint, one praised, one blamed."""
        hint = HintPrompt("say the other thing", (1, 2, 3, 40, 41, 42, 43))
        return [
            self.sample((1, 2, 3), (10, 11, 12, 13), turn="hinted", hints=(hint,)),
            self.sample((4, 5, 6, 7), (20, 21, 22), turn="praised", score=1.0),
            self.sample((8, 9), (30, 31, 32, 33, 34), turn="blamed", score=-1.0),
        ]

    def long_batch(self) -> list[Sample]:
        """Enough for a step to be found in the middle of it."""
        response = tuple(range(10, 60)) * 4
        return [self.sample((1, number % 60), response, turn=str(number), score=1.0) for number in range(60)]


@dataclass
class Rows:
    """A speaker whose hidden states are its logits."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    vocabulary: int = 3

    def hidden(self, ids: Tensor) -> Tensor:
        raise NotImplementedError

    def logits(self, rows: Tensor) -> Tensor:
        return rows


def settings_of(method: MethodSettings | None = None, **settings: object) -> TrainerSettings:
    """Small LoRA weights."""
    plain = TrainerSettings(rank=4, alpha=8.0, method=method or MethodSettings())
    return replace(plain, **settings)  # type: ignore[arg-type]


def policy_logp(trainer: LoraTrainer, sample: Sample) -> torch.Tensor:
    """What the trainer's policy now gives a sample's response."""
    model = trainer.model
    with torch.no_grad():
        hidden = model.hidden(torch.tensor([sample.prompt + sample.response]))[0]
        every = model.logits(hidden[len(sample.prompt) - 1 : -1]).log_softmax(-1)
    return every.gather(-1, torch.tensor(sample.response).unsqueeze(-1)).squeeze(-1)
