from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.modules.module import register_module_forward_hook
from trainer_models import Recorder, settings_of

from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.trainers import recompute
from openclaw_rl.trainers.batch import BatchRow, Reading, merged, passes
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Mean, Method, MethodSettings


def session(recorder: Recorder, turns: int) -> list[Sample]:
    """Turns that continue each other id for id, scored in turn."""
    samples: list[Sample] = []
    prompt = (1, 2, 3)
    for number in range(turns):
        response = tuple((7 * number + at) % 50 + 4 for at in range(5))
        sample = recorder.sample(prompt, response, turn=str(number), score=1.0 if number % 2 else -1.0)
        hint = HintPrompt("hint", (*prompt[:-1], 60, 61, prompt[-1]))
        samples.append(replace(sample, hints=(hint,)))
        prompt = (*prompt, *response, 62, number + 20, 63)
    return samples


def gradients(model: Path, samples: list[Sample], **facts: object) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss and the gradient of one step, from the moments of a fresh optimiser: exp_avg = 0.1 gradient."""
    method = MethodSettings(name=Method.HYBRID, w_opd=1.0)
    method = replace(method, mean=facts.pop("mean", Mean.TOKEN))  # type: ignore[arg-type]
    trainer = LoraTrainer.open(model, settings_of(method, grad_clip=1e9, **facts))
    trainer.model.set_weights({name: torch.full_like(one, 0.01) for name, one in trainer.model.weights().items()})
    report = trainer.step(samples)
    assert report.took_step
    state = trainer.optimizer_state()
    return report.metrics["loss"], {name: value for name, value in state.items() if name.endswith("exp_avg")}


def apart(samples: list[Sample]) -> list[Sample]:
    """The same turns so that none continues another: each followed by a token of its own that is not trained."""
    return [
        replace(one, response=(*one.response, 3), logp=(*one.logp, -1.0), mask=(*one.mask, False)) for one in samples
    ]


def assert_same(a: tuple[float, dict[str, torch.Tensor]], b: tuple[float, dict[str, torch.Tensor]]) -> None:
    assert a[0] == pytest.approx(b[0], abs=1e-6)
    for name, value in a[1].items():
        assert float((value - b[1][name]).abs().max()) < 1e-7 + 1e-5 * float(value.abs().max())


@pytest.mark.parametrize("mean", list(Mean))
def test_a_session_read_once_gives_the_loss_and_gradient_of_its_turns_read_apart(
    trainer_model: Path, recorder: Recorder, mean: Mean
) -> None:
    turns = session(recorder, 5)
    assert len(merged([Reading(one.prompt + one.response, (len(one.prompt),)) for one in turns])) == 1
    assert len(merged([Reading(one.prompt + one.response, (len(one.prompt),)) for one in apart(turns)])) == 5
    together, separate = gradients(trainer_model, turns, mean=mean), gradients(trainer_model, apart(turns), mean=mean)
    assert max(float(value.abs().max()) for value in together[1].values()) > 1e-3
    assert_same(together, separate)


def test_padding_and_the_size_of_passes_and_chunks_change_nothing(trainer_model: Path, recorder: Recorder) -> None:
    samples = [*session(recorder, 3), *recorder.batch()]
    whole = gradients(trainer_model, samples)
    assert_same(whole, gradients(trainer_model, samples, max_tokens_per_pass=1))
    assert_same(whole, gradients(trainer_model, samples, logits_per_chunk=1))
    assert_same(whole, gradients(trainer_model, samples[::-1]))
    assert_same(whole, gradients(trainer_model, samples, recompute_layers=True))


@pytest.mark.parametrize(("parameters", "lacks_memory"), [("lora", False), ("full", False), ("lora", True)])
def test_a_pass_too_long_or_large_for_memory_computes_its_layers_again_and_others_do_not(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, parameters: str, lacks_memory: bool
) -> None:
    samples = session(recorder, 3)
    longest = max(len(one.prompt) + len(one.response) for one in samples) - 1  # nobody asks what follows the last
    calls: list[str] = []
    method = MethodSettings(name=Method.HYBRID, w_opd=1.0)
    found = []
    for spare in (0, -1):  # the turns are read as one sequence
        if lacks_memory:
            free = (longest + spare) * 30 * 2 * 32 * 4 / 0.75  # layers, width, bytes
            monkeypatch.setattr(recompute, "free_bytes", lambda device, free=free: free)
        else:
            monkeypatch.setattr(recompute, "LONG_TOKENS", longest + spare)
        calls.clear()
        trainer = LoraTrainer.open(trainer_model, settings_of(method, parameters=parameters))
        hook = register_module_forward_hook(lambda module, given, got: calls.append(type(module).__name__))
        report = trainer.step(samples)
        hook.remove()
        found.append((report.metrics, calls.count("Qwen3Attention"), trainer.model.weights()))
    (kept, few, before), (again, more, after) = found
    assert again["loss"] == pytest.approx(kept["loss"])
    assert more == few + 2 * kept["updates"]  # two layers
    assert all(torch.allclose(after[name], value, atol=1e-6) for name, value in before.items())


def test_the_keys_of_a_long_constant_prompt_count_when_memory_is_short(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, reply = (1, 2, 3, 4, 5) * 20, (6, 7, 8)
    hint = HintPrompt("", (*prompt, 9))
    sample = recorder.sample(prompt, reply, hints=(hint,))
    # the last prompt token and two of the reply are computed, 99 before them are constant. A layer keeps of each of
    # the three 30 hidden states of 32 numbers, and of each of the 99 keys and values of 2 heads of 8 and the mask of
    # the three for the 2 heads that share one; 2 layers, 4 bytes
    needed = (3 * 30 * 32 + 99 * (2 * 2 * 8 + 2 * 3)) * 2 * 4
    counted = []
    for free in (needed / 0.75 + 1, needed / 0.75 - 1):
        monkeypatch.setattr(recompute, "free_bytes", lambda device, free=free: free)
        calls: list[str] = []
        trainer = LoraTrainer.open(trainer_model, settings_of(MethodSettings(), updates=1, prompts="constant"))
        hook = register_module_forward_hook(lambda module, given, got, calls=calls: calls.append(type(module).__name__))
        trainer.step([sample])
        hook.remove()
        counted.append(calls.count("Qwen3Attention"))
    assert counted[1] == counted[0] + 2  # both layers a second time


def test_siblings_share_no_sequence() -> None:
    parent = Reading((1, 2, 3), (2,))
    siblings = [Reading((1, 2, 3, 4, number), (4,)) for number in (5, 6)]
    rows = merged([siblings[0], parent, siblings[1]])
    assert [row.tokens for row in rows] == [(1, 2, 3, 4, 5), (1, 2, 3, 4, 6)]
    assert sorted(index for row in rows for index in row.readings) == [0, 1, 2]


def test_a_first_token_cannot_be_wanted() -> None:
    with pytest.raises(ValueError, match="not the first"):
        Reading((1, 2), (0,))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=5), min_size=1, max_size=12), st.integers(1, 12))
def test_every_reading_lies_in_one_row_and_every_row_in_one_pass(sequences: list[list[int]], budget: int) -> None:
    readings = [Reading(tuple(one), (1,)) for one in sequences]
    rows = merged(readings)
    assert sorted(index for row in rows for index in row.readings) == list(range(len(readings)))
    for row in rows:
        for index in row.readings:
            assert row.tokens[: len(readings[index].tokens)] == readings[index].tokens
    # no row continues another
    assert not any(a is not b and b.tokens[: len(a.tokens)] == a.tokens for a in rows for b in rows)
    groups = passes(rows, budget)
    assert sorted(row.tokens for group in groups for row in group) == sorted(row.tokens for row in rows)
    for group in groups:
        assert len(group) == 1 or len(group) * max(len(row.tokens) for row in group) <= budget


def test_rows_of_like_length_go_together() -> None:
    rows = [BatchRow((0,) * length, ()) for length in (2, 9, 3, 8)]
    assert [[len(row.tokens) for row in group] for group in passes(rows, 18)] == [[9, 8], [3, 2]]


def test_where_no_memory_is_left_the_layers_inputs_wait_on_the_host(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = session(recorder, 3)
    whole = gradients(trainer_model, samples)
    waited: list[bool] = []

    class Noted(recompute.save_on_cpu):
        def __init__(self) -> None:
            waited.append(True)
            super().__init__()

    monkeypatch.setattr(recompute, "save_on_cpu", Noted)
    monkeypatch.setattr(recompute, "free_bytes", lambda device: 0.0)
    assert_same(whole, gradients(trainer_model, samples))
    assert waited
