"""Every family is computed as transformers computes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from engine_models import ask, install, off_by, plain_logp, plain_model, prompt_of, run

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.version import BASE
from openclaw_rl.engines.local import attention
from openclaw_rl.engines.local.cache import Block
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.wire import ScoreJob
from openclaw_rl.errors import ModelError

FAMILIES = ("qwen3", "qwen2", "llama", "gemma", "gemma3", "qwen3moe", "mistral")


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


def test_soft_capped_attention_is_refused(open_tiny: Callable[..., Core]) -> None:
    with pytest.raises(ModelError, match="caps its attention") as refused:
        open_tiny("gemma2")
    assert refused.value.fix.startswith("choose a model of plain full or sliding-window attention")
