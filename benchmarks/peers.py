"""The engine's core and transformers' `generate`, each asked for the same: tokens and their log-probabilities.

And what is asked of the engine behind them: streams of random prompts, timed token by token.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from benchmarks.common import VOCAB
from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE
from openclaw_rl.engines import LocalEngine
from openclaw_rl.engines.local.build import open_core
from openclaw_rl.engines.local.wire import Submit
from openclaw_rl.engines.settings import EngineSettings


def ids(count: int, seed: int) -> tuple[int, ...]:
    """Random ids that every vocabulary here has."""
    source = random.Random(seed)
    return tuple(source.randrange(VOCAB) for _ in range(count))


async def stream(
    engine: LocalEngine, prompt: tuple[int, ...], sampling: Sampling
) -> tuple[list[SampledToken], list[float]]:
    """What one stream said on the base model, and when each token came."""
    items: list[SampledToken] = []
    times: list[float] = []
    async for item in engine.generate(Prompt(prompt), sampling, BASE):
        items.append(item)
        times.append(time.perf_counter())
    return items, times


async def second_turn(engine: LocalEngine, seed: int, *, history: int, more: int) -> tuple[float, float]:
    """Seconds to the first token: of a history cold, and of the turn after it with so many new tokens."""
    asked = ids(history, 900_000 + seed)
    begin = time.perf_counter()
    said, times = await stream(engine, asked, Sampling(max_tokens=16, seed=seed))
    cold = times[0] - begin
    again = (*asked, *(item.token for item in said), *ids(more, 950_000 + seed))
    begin = time.perf_counter()
    _, times = await stream(engine, again, Sampling(max_tokens=1, seed=seed))
    return cold, times[0] - begin


class Ours:
    """The core, in this process, its tokens taken out step by step."""

    def __init__(self, model: Path, *, device: str = "cpu", dtype: str = "auto") -> None:
        self.core = open_core(EngineSettings(model=str(model), device=device, dtype=dtype, threads=1))
        self._asked = 0

    def seconds(self, prompts: list[tuple[int, ...]], count: int) -> float:
        """How long so many tokens behind each prompt take."""
        taken = []
        begin = time.perf_counter()
        for prompt in prompts:
            self._asked += 1
            self.core.submit(Submit(self._asked, prompt, Sampling(max_tokens=count), BASE, seed=self._asked))
        while self.core.has_work:
            step = self.core.step()
            taken.append((step.rows, step.tokens, step.logp_sampled, step.logp))
        seconds = time.perf_counter() - begin
        assert sum(len(rows) for rows, _, _, _ in taken) == len(prompts) * count
        return seconds


class Theirs:
    """`generate` on the same weights, with the raw logits and the log-probabilities of what was sampled."""

    def __init__(self, model: Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval().to(device)

    @torch.inference_mode()
    def seconds(self, prompts: list[tuple[int, ...]], count: int) -> float:
        """How long so many tokens behind each prompt take; all prompts are of one length."""
        begin = time.perf_counter()
        tokens = torch.tensor(prompts, device=self.model.device)
        out = self.model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=True,
            top_k=0,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        logp = torch.log_softmax(torch.stack(out.logits, 1).float(), -1)
        logp.gather(-1, out.sequences[:, tokens.shape[1] :, None]).tolist()
        return time.perf_counter() - begin
