"""Measures what a model of the toy world can do, by skill, on problems and often wordings that training never saw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from openclaw_rl.render.template import ChatTemplate, read_template
from openclaw_rl.tiny.cases import SKILLS, SkillCase

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

MAX_NEW = 200  # tokens of an answer
MAX_PADDED = 24_000  # tokens of a batch of prompts, including padding


def of(folder: Path, *, count: int, seed: int, only: str = "", max_new: int = MAX_NEW) -> dict[str, float]:
    """The share of good answers by skill, over `count` cases each; only skills with `only` in their name.

    `max_new` is the most tokens of an answer.
    """
    import torch
    from transformers import Qwen3ForCausalLM

    template = read_template(folder)
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    found: dict[str, float] = {}
    for skill in SKILLS:
        if only and only not in skill.name:
            continue
        torch.manual_seed(seed)
        rng = Random(f"{seed} {skill.name}")
        cases = [skill.case(rng) for _ in range(count)]
        answers = answered(model, template, cases, skill.temperature, max_new=max_new)
        good = sum(case.good(answer) for case, answer in zip(cases, answers, strict=True))
        found[skill.name] = round(good / count, 4)
    return found


def answered(
    model: PreTrainedModel,
    template: ChatTemplate,
    cases: Sequence[SkillCase],
    temperature: float,
    *,
    max_new: int = MAX_NEW,
    at_once: int = 25,
    end: int | None = None,
) -> list[str]:
    """The model's answers, sampled in batches, without special tokens.

    `end` is the token that ends an answer, if it is not the one in the model's configuration.
    """
    prompts = [
        template.encode(
            template.text(case.messages, case.tools, generation_prompt=True, options={"enable_thinking": case.thinking})
        )
        for case in cases
    ]
    answers = [""] * len(cases)
    for batch in _batches(prompts, at_once):
        made = sampled(model, [prompts[index] for index in batch], temperature, max_new, end=end)
        for index, ids in zip(batch, made, strict=True):
            answers[index] = template.tokenizer.decode(ids, skip_special_tokens=True)
    return answers


def _batches(prompts: Sequence[Sequence[int]], at_once: int) -> Iterator[list[int]]:
    """Batches of indexes of prompts of similar length, at most `at_once` in each.

    Several prompts have at most `MAX_PADDED` tokens together, because attention masks grow with the square of the
    length.
    """
    batch: list[int] = []
    for index in sorted(range(len(prompts)), key=lambda index: len(prompts[index])):
        if batch and (len(batch) == at_once or len(prompts[index]) * (len(batch) + 1) > MAX_PADDED):
            yield batch
            batch = []
        batch.append(index)
    yield batch


def sampled(
    model: PreTrainedModel, prompts: list[list[int]], temperature: float, max_new: int, *, end: int | None
) -> Iterable[list[int]]:
    """The ids that the model samples after each prompt, at most `max_new`, padded at the end."""
    import torch

    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    sampling: dict[str, float] = (
        {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
    )
    if end is not None:
        sampling |= {"eos_token_id": end, "pad_token_id": end}
    with torch.no_grad():
        made: Tensor = model.generate(ids, attention_mask=mask, max_new_tokens=max_new, **sampling)
    rows: list[list[int]] = made[:, width:].tolist()
    return rows
