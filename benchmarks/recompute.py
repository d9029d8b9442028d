"""Answers computed again by transformers and peft alone: the same log-probabilities, and the same tokens drawn."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from openclaw_rl.core.adapter import Adapter, digest_of_folder
from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.engines.local.sampler import uniform

SLACK = 1e-4  # nats, and of the running sum a draw falls into
AT_ONCE = 32
Asked = tuple[tuple[int, ...], Sampling, list[SampledToken]]


def make_adapter(model: Path, folder: Path, number: int) -> Adapter:
    """A random adapter over all linears, far enough from the base to change what is said."""
    torch.manual_seed(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = get_peft_model(_base(model), LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"))
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                nn.init.normal_(parameter, std=0.05)
        wrapped.save_pretrained(folder)
    return Adapter(folder, digest_of_folder(folder), PolicyVersion(SHARED, number))


def is_right(model: Path, adapter: Adapter | None, asked: Sequence[Asked]) -> list[bool]:
    """For each answer, whether this version alone gives the same; all prompts and answers are of one length."""
    rows = _logp(model, adapter, [(prompt, items) for prompt, _, items in asked])
    return [_same(logp, *entry) for logp, entry in zip(rows, asked, strict=True)]


def logp_gaps(
    model: Path, adapter: Adapter | None, asked: Sequence[tuple[tuple[int, ...], list[SampledToken]]]
) -> list[list[float]]:
    """For each answer, |recorded - recomputed| of each token in nats; all prompts and answers are of one length."""
    found = []
    for logp, (prompt, items) in zip(_logp(model, adapter, asked), asked, strict=True):
        own, told = _own(logp, prompt, items)
        found.append((own - told).abs().tolist())
    return found


def _logp(
    model: Path, adapter: Adapter | None, asked: Sequence[tuple[tuple[int, ...], list[SampledToken]]]
) -> Iterator[Tensor]:
    """Log-probabilities [tokens, V] of each whole answer under one version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone: nn.Module = _base(model)
        if adapter is not None:
            alone = PeftModel.from_pretrained(alone, str(adapter.folder))
    for at in range(0, len(asked), AT_ONCE):
        part = asked[at : at + AT_ONCE]
        tokens = torch.tensor([[*prompt, *(item.token for item in items)] for prompt, items in part])
        with torch.inference_mode():
            yield from torch.log_softmax(alone(input_ids=tokens).logits.float(), -1)


def _own(logp: Tensor, prompt: tuple[int, ...], items: list[SampledToken]) -> tuple[Tensor, Tensor]:
    """What was sampled costs by this computation, and as it was recorded."""
    chosen = torch.tensor([item.token for item in items])
    return logp[len(prompt) - 1 : -1].gather(1, chosen[:, None])[:, 0], torch.tensor([item.logp for item in items])


def _same(logp: Tensor, prompt: tuple[int, ...], sampling: Sampling, items: list[SampledToken]) -> bool:
    rows = logp[len(prompt) - 1 : -1]
    chosen = torch.tensor([item.token for item in items])
    own, told = _own(logp, prompt, items)
    if float((own - told).abs().max()) > SLACK:
        return False
    if sampling.temperature == 0.0:
        return bool((own >= rows.max(-1).values - SLACK).all())
    seed = sampling.seed or 0
    draws = torch.tensor([uniform(seed, draw) for draw in range(len(items))], dtype=torch.float64)
    sums = rows.double().exp().cumsum(-1)
    draws = draws * sums[:, -1]
    upper = sums.gather(1, chosen[:, None])[:, 0]
    return bool(((draws <= upper + SLACK) & (draws >= upper - own.double().exp() - SLACK)).all())


def _base(model: Path) -> nn.Module:
    base: nn.Module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    return base
