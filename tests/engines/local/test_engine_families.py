"""Every family is computed as transformers computes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_models import ask, install, off_by, plain_logp, plain_model, prompt_of, run

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.version import BASE
from openclaw_rl.engines.local import attention, scored
from openclaw_rl.engines.local.cache import AttentionParams, Block
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.wire import ScoreJob
from openclaw_rl.errors import ModelError

FAMILIES = ("qwen3", "qwen2", "llama", "gemma", "gemma3", "qwen3moe", "mistral", "gemma2", "gptoss")


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_are_those_of_a_plain_forward(
    family: str, open_tiny: Callable[..., Core], model_of: Callable[[str], Path]
) -> None:
    prompts = {index: prompt_of(size, index) for index, size in enumerate((3, 40, 61, 7))}
    answers = run(open_tiny(family), *(ask(index, prompt, max_tokens=40) for index, prompt in prompts.items()))
    model = plain_model(model_of(family))
    for index, prompt in prompts.items():
        assert len(answers[index].tokens) == 40
        assert off_by(model, prompt, answers[index]) < 1e-5


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])  # the second looks through windows
def test_rows_that_are_no_neighbours_may_be_brought_together(
    family: str, open_tiny: Callable[..., Core], model_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered: list[bool] = []

    def noted(rows: list[tuple[Block, int]], *, gathers: bool) -> list[object]:
        runs = planned(rows, gathers=gathers)
        gathered.extend(run.gathered for run in runs)
        return runs

    planned = attention._runs
    monkeypatch.setattr(attention, "gathers", lambda device: True)
    monkeypatch.setattr(attention, "_runs", noted)
    prompts = {index: prompt_of(size, index) for index, size in enumerate((3, 270, 61, 7))}
    answers = run(open_tiny(family), *(ask(index, prompt, max_tokens=30) for index, prompt in prompts.items()))
    assert True in gathered and False in gathered
    model = plain_model(model_of(family))
    for index, prompt in prompts.items():
        assert off_by(model, prompt, answers[index]) < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_a_plain_forward(
    family: str, open_tiny: Callable[..., Core], model_of: Callable[[str], Path]
) -> None:
    prompt = prompt_of(50)
    scores = run(open_tiny(family), ScoreJob(1, prompt, 20, BASE, 3))[1].scores
    assert scores is not None
    logp = plain_logp(plain_model(model_of(family)), prompt)
    for at, value in enumerate(scores.logp):
        assert value == pytest.approx(float(logp[19 + at, prompt[20 + at]]), abs=1e-5)
    best = logp[19].topk(3)
    assert [token for token, _ in scores.top[0]] == best.indices.tolist()
    assert [value for _, value in scores.top[0]] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert len(scores.logp) == len(scores.top) == 30


@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapter_is_computed_as_peft_computes_it(
    family: str,
    open_tiny: Callable[..., Core],
    model_of: Callable[[str], Path],
    adapter_of: Callable[..., Adapter],
) -> None:
    core, adapter, prompt = open_tiny(family), adapter_of(1, family), prompt_of(30)
    install(core, adapter)
    answer = run(core, ask(1, prompt, adapter.version, max_tokens=20))[1]
    assert off_by(plain_model(model_of(family), adapter), prompt, answer) < 1e-5
    assert off_by(plain_model(model_of(family)), prompt, answer) > 0.01


def test_layers_without_attention_are_refused(open_tiny: Callable[..., Core]) -> None:
    with pytest.raises(ModelError, match="layers of kind linear_attention") as refused:
        open_tiny("qwen3next")
    assert refused.value.fix.startswith("choose a model of plain full or sliding-window attention")
    assert "vLLM" in refused.value.fix


def test_scores_are_capped_and_share_with_sinks_however_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    query, keys, values = (torch.randn(2, heads, 9, 8, generator=draw) for heads in (4, 2, 2))
    mask = torch.zeros(9, 9).masked_fill_(torch.ones(9, 9).triu(1).bool(), -torch.inf)
    sinks = torch.tensor([0.5, -2.0, 3.0, 0.0])
    scores = query @ keys.repeat_interleave(2, 1).transpose(-1, -2) * 0.7
    capped = 1.5 * torch.tanh(scores / 1.5) + mask
    shares = torch.cat([capped, sinks.view(1, 4, 1, 1).expand(2, 4, 9, 1)], -1).softmax(-1)[..., :-1]
    want = shares @ values.repeat_interleave(2, 1)
    for at_once in (1 << 24, 100):
        monkeypatch.setattr(scored, "AT_ONCE", at_once)
        out = scored.attend_scored(query, keys, values, mask, AttentionParams(0.7, None, 1.5, sinks))
        assert torch.allclose(out, want, rtol=0, atol=1e-6)
