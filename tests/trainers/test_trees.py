"""Sequences read as trees come out as when read apart: for every family, with a window, behind constant prompts."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from trainer_models import SHAPE, Recorder, save_model, settings_of
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.trainers import attention_plan, trees
from openclaw_rl.trainers.attention_plan import plan_of
from openclaw_rl.trainers.batch import ConstantPrompts, Reading, read
from openclaw_rl.trainers.forest import SequenceTail, packed, planted
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.model import load
from openclaw_rl.trainers.settings import Method, MethodSettings
from openclaw_rl.trainers.trees import Trees

FAMILIES = ["llama", "qwen2", "qwen3", "qwen3_moe", "mistral", "gemma3_text"]
SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=12)


@pytest.fixture(params=["separate", "separate in small calls", "together"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The two forms of attention, the first also as if these small branches were long ones."""
    monkeypatch.setattr(trees, "is_separate_on", lambda device: request.param != "together")
    if request.param == "separate in small calls":
        monkeypatch.setattr(attention_plan, "TOGETHER", 4)
    return str(request.param)


def readings() -> list[Reading]:
    """Three replies to one prompt, a turn that goes on from one of them, one of the same opening, and a stranger."""
    prompt = tuple(range(10, 30))
    replies = [(*prompt, 40, 41, 42), (*prompt, 40, 43, 44, 45), (*prompt, 50)]
    further = (*replies[1], 60, 61, 62, 31, 32)
    other = (*prompt[:8], 33, 34, 35, 36)
    return [
        *(Reading(reply, tuple(range(20, len(reply)))) for reply in replies),
        Reading(further, (27, 28)),
        Reading(other, (10, 11)),
        Reading((9, 8, 7, 6), (1, 3)),
    ]


def outputs(model: PreTrainedModel, one: Reading) -> Tensor:
    """By plain transformers."""
    hidden: Tensor = model.base_model(input_ids=torch.tensor([one.tokens]), use_cache=False).last_hidden_state[0]
    return hidden[[position - 1 for position in one.wanted]]


@settings(deadline=None, max_examples=200)
@given(SEQUENCES)
def test_every_distinct_token_stands_once_and_every_sequence_can_be_read_off(sequences: list[list[int]]) -> None:
    forest = planted(sequences)
    for index, sequence in enumerate(sequences):
        places = forest.places(index)
        assert forest.tokens[places].tolist() == sequence
        assert forest.positions[places].tolist() == list(range(len(sequence)))
        seen = forest.ancestors[forest.owners[places[-1]]][forest.owners] & (forest.positions <= len(sequence) - 1)
        assert np.flatnonzero(seen).tolist() == sorted(places.tolist())
    prefixes = {tuple(sequence[: at + 1]) for sequence in sequences for at in range(len(sequence))}
    assert len(forest.tokens) == len(prefixes)


@settings(deadline=None, max_examples=200)
@given(SEQUENCES, st.integers(1, 20))
def test_groups_hold_every_sequence_once_and_little_beside_what_they_share(
    sequences: list[list[int]], most: int
) -> None:
    groups = packed(sequences, most)
    assert sorted(index for group in groups for index in group) == list(range(len(sequences)))
    for group in groups:
        held = planted([sequences[index] for index in group])
        stems = [stem - begin for begin, stem, _ in held.trees]
        shared = stems[0] if len(stems) == 1 else 0
        assert len(group) == 1 or len(held.tokens) - shared <= max(most, 2 * shared)


@pytest.mark.parametrize("kind", FAMILIES)
def test_read_as_trees_a_model_says_what_it_says_of_sequences_apart(tmp_path: Path, kind: str, form: str) -> None:
    folder = save_model(tmp_path / kind, kind)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    model = load(folder, settings_of(MethodSettings()))
    assert model.trees is not None, "this family is read apart"
    asked = readings()
    wanted = [outputs(plain, one) for one in asked]
    for passes in (read(model, asked, 4096), read(model, asked, 1), ConstantPrompts(model, asked, 4096).passes()):
        for one in passes:
            for index, rows in one.parts:
                assert torch.allclose(one.hidden[rows], wanted[index], atol=2e-5)


@pytest.mark.parametrize("most", [1 << 26, 40])
def test_a_window_is_kept_and_long_calls_are_cut(monkeypatch: pytest.MonkeyPatch, most: int, form: str) -> None:
    monkeypatch.setattr(attention_plan, "MASK_PLACES", most)
    torch.manual_seed(3)
    config = AutoConfig.for_model("mistral", **{**SHAPE, "sliding_window": 6})
    model = AutoModelForCausalLM.from_config(config).eval()
    asked = readings()
    with torch.no_grad():
        wanted = [outputs(model, one) for one in asked]
        free = AutoModelForCausalLM.from_config(AutoConfig.for_model("mistral", **{**SHAPE, "sliding_window": None}))
        free.load_state_dict(model.state_dict())
        assert not torch.allclose(outputs(free.eval(), asked[0]), wanted[0], atol=1e-3)  # the window matters here
        reader = Trees.of(model)
        assert reader is not None
        forest = planted([one.needed for one in asked])
        hidden = reader.hidden(forest)
        bank = reader.bank(planted([one.tokens[:9] for one in asked[:5]]))
        twigs = [SequenceTail(one.needed[9:], 9, path) for one, path in zip(asked[:5], bank.forest.paths, strict=True)]
        behind = reader.behind(bank, twigs).split([len(twig.tokens) for twig in twigs])
    for index, one in enumerate(asked):
        places = forest.places(index)[[position - 1 for position in one.wanted]]
        assert torch.allclose(hidden[torch.from_numpy(places)], wanted[index], atol=2e-5)
    for index, one in enumerate(asked[:5]):
        assert torch.allclose(behind[index][[position - 10 for position in one.wanted]], wanted[index], atol=2e-5)


def test_a_model_whose_attention_is_another_one_is_read_apart_and_left_as_it_was() -> None:
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", **SHAPE), attn_implementation="eager")
    assert Trees.of(model) is None
    assert model.config._attn_implementation == "eager"


def taught(recorder: Recorder) -> list[Sample]:
    """Corrected replies of one prompt, with what the teacher shows beside one, and a reply to another prompt."""
    prompt = tuple(range(5, 25))
    hint = HintPrompt("hint", (*prompt[:-1], 60, 61, prompt[-1]))
    made = [
        recorder.sample(prompt, reply, turn=str(number), score=-1.0, hints=(hint,))
        for number, reply in enumerate([(30, 31, 32), (30, 33), (40, 41, 42, 43)])
    ]
    return [*made, recorder.sample((7, 8, 9), (10, 11), turn="other", score=1.0)]


def gradient_of(model: Path, samples: list[Sample], **facts: object) -> dict[str, Tensor]:
    method = MethodSettings(name=Method.TOPK)
    trainer = LoraTrainer.open(model, settings_of(method, grad_clip=1e9, updates=1, **facts))
    trainer.model.set_weights({name: torch.full_like(one, 0.01) for name, one in trainer.model.weights().items()})
    assert trainer.step(samples).took_step
    return {name: one for name, one in trainer.optimizer_state().items() if name.endswith("exp_avg")}


def test_the_gradient_of_trees_is_that_of_sequences_apart(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    samples = taught(recorder)
    together = gradient_of(trainer_model, samples, prompts="exact")
    again = gradient_of(trainer_model, samples, prompts="exact", recompute_layers=True)
    monkeypatch.setattr(Trees, "of", lambda *given: None)
    apart = gradient_of(trainer_model, samples, prompts="exact")
    for name, value in apart.items():
        close = 1e-7 + 1e-5 * float(value.abs().max())
        assert float((together[name] - value).abs().max()) < close
        assert float((again[name] - value).abs().max()) < close


def test_a_constant_prompt_has_no_share_in_the_gradient_and_replies_have_all_of_theirs(
    trainer_model: Path, recorder: Recorder, form: str
) -> None:
    """Against plain autograd over one reply, its prompt's keys and values given as they were, without a graph."""
    model = load(trainer_model, settings_of(MethodSettings()))
    model.set_weights({name: torch.full_like(one, 0.01) for name, one in model.weights().items()})
    tokens = tuple(range(5, 29))
    asked = [Reading(tokens, (22, 23))]

    def gradient(hidden: Tensor) -> dict[str, Tensor]:
        for _, parameter in model.named():
            parameter.grad = None
        hidden.square().sum().backward()  # type: ignore[no-untyped-call]
        return {name: one.grad.clone() for name, one in model.named() if one.grad is not None}

    (one,) = ConstantPrompts(model, asked, 4096).passes()
    constant = gradient(one.hidden)
    assert model.trees is not None
    bank = model.trees.bank(planted([tokens[:21]]))
    by_hand = gradient(model.trees.behind(bank, [SequenceTail(tokens[21:23], 21, bank.forest.paths[0])]))
    (whole,) = read(model, asked, 4096)
    exact = gradient(whole.hidden)
    assert torch.allclose(one.hidden, whole.hidden, atol=2e-5)
    assert all(torch.allclose(constant[name], value, atol=1e-6) for name, value in by_hand.items())
    assert any(float((constant[name] - value).abs().max()) > 1e-4 for name, value in exact.items())


@pytest.mark.parametrize(("prompts", "reads"), [("constant", 1), ("exact", 4)])
def test_with_constant_prompts_a_step_reads_each_of_them_once(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, prompts: str, reads: int
) -> None:
    counted: list[int] = []
    usual = Trees._read
    monkeypatch.setattr(
        Trees, "_read", lambda self, tokens, plan: (counted.append(len(tokens)), usual(self, tokens, plan))[1]
    )
    trainer = LoraTrainer.open(
        trainer_model,
        settings_of(MethodSettings(name=Method.TOPK, kl_beta=0.0), updates=3, enough=0.0, prompts=prompts),
    )
    counted.clear()
    samples = [replace(one, hints=one.hints[:1]) for one in taught(recorder)[:3]]
    assert trainer.step(samples).metrics["updates"] == 3.0
    teacher, *student = counted
    assert teacher == 22 + 2 + 3  # the prompt with its hint, and the replies but for the last token of each
    assert sum(size >= 19 for size in student) == reads  # exactly: for three updates, and a look at what they came to


def shapes_kept(model: Path, queries: int) -> set[tuple[int, ...]]:
    """Of the tensors that a reply of so many tokens keeps for its backward pass, after a prompt of 150."""
    loaded = load(model, settings_of(MethodSettings()))
    assert loaded.trees is not None
    prompt = tuple(5 + number % 50 for number in range(150))
    bank = loaded.trees.bank(planted([prompt]))
    kept: set[tuple[int, ...]] = set()

    def note(tensor: Tensor) -> Tensor:
        kept.add(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loaded.trees.behind(bank, [SequenceTail(prompt[:queries], 150, bank.forest.paths[0])])
    return kept


@pytest.mark.parametrize(("queries", "copies"), [(20, 0), (60, 1)])  # 2 key heads of 8: up to 32 queries are folded
def test_a_short_reply_keeps_no_copies_of_its_prompts_keys_for_each_head(
    trainer_model: Path, monkeypatch: pytest.MonkeyPatch, queries: int, copies: int
) -> None:
    monkeypatch.setattr(trees, "is_separate_on", lambda device: False)
    kept = shapes_kept(trainer_model, queries)
    assert ((1, 4, 150 + queries, 8) in kept) == bool(copies)
    assert ((1, 2, 150 + queries, 8) in kept) != bool(copies)


def test_computed_span_by_span_a_reply_keeps_nothing_as_long_as_its_prompt(trainer_model: Path) -> None:
    assert (1, 2, 20, 8) in (kept := shapes_kept(trainer_model, 20))
    assert all(size < 150 for shape in kept for size in shape)


@settings(deadline=None, max_examples=200)
@given(SEQUENCES, st.integers(1, 12))
def test_by_spans_each_token_is_asked_once_and_compared_with_its_own_path(
    sequences: list[list[int]], most: int
) -> None:
    forest = planted(sequences)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(attention_plan, "TOGETHER", most)
        plan = plan_of(forest, is_separate=True)
    assert plan.calls[0].first == 0
    assert plan.calls[-1].last == len(forest.tokens)
    assert all(one.last == two.first for one, two in itertools.pairwise(plan.calls))
    places = np.arange(len(forest.tokens))
    for call in plan.calls:
        keys = np.concatenate([np.arange(*span) for span in call.spans])
        assert len(keys) == len(set(keys.tolist()))
        assert call.last - call.first <= most or len(set(forest.owners[call.first : call.last].tolist())) == 1
        for place in range(call.first, call.last):
            path = forest.ancestors[forest.owners[place]][forest.owners] & (places <= place)
            assert set(places[path].tolist()) <= set(keys.tolist())
