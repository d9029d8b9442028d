"""A step taken by several ranks together, against the same step taken by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rank_parts import together
from safetensors.torch import load_file
from torch import Tensor
from trainer_models import Recorder, settings_of

from openclaw_rl.core.adapter import StepReport, files_of
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, Sample, SampledReply
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.trainers.batch import Reading, balanced, tokens_of
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.ranks import ALONE, Ranks
from openclaw_rl.trainers.settings import Method, MethodSettings, TrainerSettings

TAIL = settings_of(MethodSettings(name=Method.TOPK, top_k=8), updates=4, enough=0.0)
HYBRID = settings_of(MethodSettings(name=Method.HYBRID))
DIVIDED = replace(HYBRID, shard="always")
FULL = settings_of(MethodSettings(name=Method.HYBRID, w_opd=1.0), parameters="full", lr=1e-3)
ONE = PolicyVersion("shared", 1)
CLOSE = 2e-6  # of weights of about 0.1, after two steps


def session(recorder: Recorder) -> list[Sample]:
    """Turns that continue each other, one given a hint, and turns apart."""
    hint = HintPrompt("say the other thing", (1, 2, 3, 40, 41, 42, 43))
    later = HintPrompt("shorter", (1, 2, 3, 10, 11, 12, 50, 51))
    return [
        *recorder.batch(),
        recorder.sample((1, 2, 3), (10, 11, 12), turn="first", hints=(hint,)),
        recorder.sample((1, 2, 3, 10, 11, 12, 5, 6), (13, 14), turn="second", hints=(later, hint)),
        recorder.sample((9, 9, 9, 9), (33, 34, 35, 36), turn="apart", score=-1.0),
    ]


def two_steps(
    model: Path, settings: TrainerSettings, samples: Sequence[Sample], ranks: Ranks = ALONE, *, into: Path
) -> list[StepReport]:
    """Two steps and a version written after each."""
    trainer = LoraTrainer.open(model, settings, ranks)
    reports = []
    for number in (1, 2):
        reports.append(trainer.step(samples))
        trainer.export(into / str(number), replace(ONE, number=number))
    return reports


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / files_of(folder)[1])


def furthest(one: Path, other: Path) -> float:
    """The largest difference between two versions' weights."""
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("settings", [TAIL, HYBRID, DIVIDED, FULL], ids=["tail", "hybrid", "divided", "full"])
def test_ranks_together_do_what_one_does(
    trainer_model: Path, recorder: Recorder, tmp_path: Path, settings: TrainerSettings, count: int
) -> None:
    samples = session(recorder)
    alone = two_steps(trainer_model, settings, samples, into=tmp_path / "alone")
    found = together(
        count,
        lambda ranks: two_steps(trainer_model, settings, samples, ranks, into=tmp_path / "ranks"),
        tmp_path / "meet",
    )
    for number in ("1", "2"):
        assert furthest(tmp_path / "alone" / number, tmp_path / "ranks" / number) < CLOSE
    for reports in found:  # every rank measured, and decided, the same
        for own, one in zip(reports, alone, strict=True):
            assert own.took_step and one.took_step
            for name in ("loss", "grad_norm", "tokens", "updates", "updates_undone", "kl", "loss_distill_last"):
                assert own.metrics[name] == pytest.approx(one.metrics[name], rel=1e-4, abs=1e-6), name
                assert own.metrics[name] == found[0][reports.index(own)].metrics[name]


@pytest.mark.parametrize("settings", [TAIL, replace(TAIL, shard="always")], ids=["tail", "divided"])
def test_ranks_go_on_together_with_a_check_that_the_step_missed(
    trainer_model: Path, recorder: Recorder, tmp_path: Path, settings: TrainerSettings
) -> None:
    hinted = HintPrompt("say the other thing", (4, 5, 40, 41, 42, 43))
    check = OtherRequestReply((4, 5), hinted, SampledReply((30, 31, 32), (0.0,) * 3, BASE), is_check=True)
    samples = [replace(one, elsewhere=(check,)) if one.turn == "first" else one for one in session(recorder)]
    alone = two_steps(trainer_model, settings, samples, into=tmp_path / "alone")
    found = together(
        2, lambda ranks: two_steps(trainer_model, settings, samples, ranks, into=tmp_path / "ranks"), tmp_path / "meet"
    )
    assert [report.metrics["checks_missed"] for report in (*alone, *found[0], *found[1])] == [1.0] * 6
    for number in ("1", "2"):
        assert furthest(tmp_path / "alone" / number, tmp_path / "ranks" / number) < CLOSE


def test_training_goes_on_from_a_version_of_another_number_of_ranks(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    samples = session(recorder)

    def go_on(ranks: Ranks, *, first: Path, into: Path) -> None:
        trainer = LoraTrainer.open(trainer_model, FULL, ranks)
        trainer.restore(first)
        trainer.step(samples)
        trainer.export(into, replace(ONE, number=2))

    two_steps(trainer_model, FULL, samples, into=tmp_path / "alone")
    first = tmp_path / "alone" / "1"
    together(2, lambda ranks: go_on(ranks, first=first, into=tmp_path / "two"), tmp_path / "meet")
    assert furthest(tmp_path / "alone" / "2", tmp_path / "two") < CLOSE
    go_on(ALONE, first=tmp_path / "two", into=tmp_path / "one")
    together(3, lambda ranks: go_on(ranks, first=tmp_path / "two", into=tmp_path / "three"), tmp_path / "meet3")
    assert furthest(tmp_path / "one", tmp_path / "three") < CLOSE
    assert furthest(tmp_path / "one", tmp_path / "two") > 100 * CLOSE


def test_a_loss_that_is_not_finite_on_one_rank_ends_the_step_on_all(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    broken = replace(recorder.batch()[1], logp=(-2000.0, -1.0, -1.0), turn="broken", score=-1.0)
    samples = [*session(recorder), broken]
    method = MethodSettings(name=Method.COMBINE, tis_clip=0.0)
    for settings in (replace(HYBRID, method=method), replace(FULL, method=method)):
        found = together(
            2,
            lambda ranks, own=settings: LoraTrainer.open(trainer_model, own, ranks).step(samples),
            tmp_path / settings.parameters,
        )
        for report in found:
            assert not report.took_step and report.dropped == (("broken", "not_finite"),)


def test_a_rank_that_has_nothing_to_read_takes_part(trainer_model: Path, recorder: Recorder, tmp_path: Path) -> None:
    samples = recorder.batch()[:1]
    for name, settings in {"divided": DIVIDED, "plain": TAIL, "full": FULL}.items():
        two_steps(trainer_model, settings, samples, into=tmp_path / name / "alone")
        together(
            2,
            lambda ranks, own=settings, into=tmp_path / name / "two": two_steps(
                trainer_model, own, samples, ranks, into=into
            ),
            tmp_path / name / "meet",
        )
        assert furthest(tmp_path / name / "alone" / "2", tmp_path / name / "two" / "2") < CLOSE


def reading(*tokens: int, trained: int = 1) -> Reading:
    return Reading(tokens, tuple(range(len(tokens) - trained, len(tokens))))


def test_turns_that_continue_each_other_are_never_parted_and_tokens_are_balanced() -> None:
    generator = torch.Generator().manual_seed(3)
    system = tuple(range(100, 150))
    readings, sessions = [], []
    for number in range(40):
        turns = int(torch.randint(1, 6, (), generator=generator))
        tokens = (*system, 1000 + number)
        for _ in range(turns):
            tokens = (*tokens, *torch.randint(1, 99, (30,), generator=generator).tolist())
            readings.append(reading(*tokens, trained=10))
            sessions.append(number)
    for ranks in (2, 4):
        parts = balanced(readings, ranks)
        assert sorted(index for part in parts for index in part) == list(range(len(readings)))
        where = {sessions[index]: {rank for rank, part in enumerate(parts) if index in part} for index in range(40)}
        assert all(len(found) == 1 for found in where.values())
        loads = [tokens_of([readings[index] for index in part]) for part in parts]
        assert max(loads) < 1.1 * sum(loads) / ranks


def test_what_shares_a_prompt_is_read_on_one_rank_if_pieces_stay_small() -> None:
    prompts = [tuple(range(base, base + 100)) for base in (0, 1000, 2000, 3000)]
    readings = [reading(*prompt, 9000 + reply, 1) for reply in range(3) for prompt in prompts]
    many = [reading(*range(base, base + 400), 1) for base in range(10_000, 40_000, 1000)]
    parts = balanced([*readings, *many], 2)
    for prompt in range(4):
        members = {prompt + 4 * reply for reply in range(3)}
        assert any(members <= set(part) for part in parts)
