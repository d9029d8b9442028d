"""What every trainer does, the double included: a later kind is added to TRAINERS and has to pass as it is."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from contract_kinds import TRAINERS, version

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, digest_of_folder
from openclaw_rl.core.protocols import Trainer
from openclaw_rl.core.sample import Sample
from openclaw_rl.errors import TrainerError
from openclaw_rl.testing.turns import a_sample, a_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")


def batch(*words: str, score: float = -1.0) -> list[Sample]:
    return [a_sample(a_turn(word, "What is it?", word), score=score) for word in words]


ONE, OTHER = batch("cake", "tea"), batch("rain", score=1.0)


@pytest_asyncio.fixture(params=TRAINERS, scope="module", loop_scope="module")
async def trainer(request: pytest.FixtureRequest) -> AsyncIterator[Trainer]:
    async with TRAINERS[request.param]() as made:
        yield made


async def made(
    trainer: Trainer, samples: Sequence[Sample], out: Path, *, resume: Path | None = None, under: Path | None = None
) -> str:
    """The digest of what a step makes of these samples, written into `out`."""
    report = await trainer.step(samples, resume=resume, under=under)
    assert report.took_step, report.why
    return (await trainer.export(out, version(1))).digest


async def test_a_step_over_a_signal_is_taken_and_measured(trainer: Trainer, tmp_path: Path) -> None:
    report = await trainer.step(ONE, resume=None)
    assert report.took_step
    assert report.dropped == ()
    assert math.isfinite(report.metrics["loss"])
    assert trainer.progress is None  # nothing is under way
    adapter = await trainer.export(tmp_path / "1", version(3))
    assert adapter.version == version(3)
    assert adapter.digest == digest_of_folder(tmp_path / "1")
    assert (tmp_path / "1" / CONFIG).is_file() and (tmp_path / "1" / WEIGHTS).is_file()


async def test_a_step_without_a_signal_is_not_taken_and_says_why(trainer: Trainer) -> None:
    report = await trainer.step(batch("cake", score=0.0), resume=None)
    assert not report.took_step
    assert "signal" in report.why


async def test_a_step_starts_from_the_weights_it_is_given_whatever_came_between(
    trainer: Trainer, tmp_path: Path
) -> None:
    first = await made(trainer, ONE, tmp_path / "1")
    second = await made(trainer, OTHER, tmp_path / "2", resume=tmp_path / "1")
    again = await made(trainer, OTHER, tmp_path / "3", resume=tmp_path / "1")  # as after a refusal at the gate
    anew = await made(trainer, ONE, tmp_path / "4")
    assert again == second != first == anew


async def test_what_a_step_stands_on_is_part_of_what_it_makes(trainer: Trainer, tmp_path: Path) -> None:
    await made(trainer, OTHER, tmp_path / "shared")
    bare = await made(trainer, ONE, tmp_path / "bare")
    upon = await made(trainer, ONE, tmp_path / "upon", under=tmp_path / "shared")
    assert upon != bare


async def test_a_version_is_put_on_top_of_another(trainer: Trainer, tmp_path: Path) -> None:
    shared, own = await made(trainer, OTHER, tmp_path / "shared"), await made(trainer, ONE, tmp_path / "own")
    await trainer.rebase(resume=tmp_path / "own", under=tmp_path / "shared")
    adapter = await trainer.export(tmp_path / "both", version(2))
    assert adapter.digest not in (shared, own)
    await trainer.rebase(resume=tmp_path / "own", under=tmp_path / "shared")
    assert (await trainer.export(tmp_path / "again", version(2))).digest == adapter.digest


async def test_weights_that_are_not_there_are_an_error_after_which_it_goes_on(trainer: Trainer, tmp_path: Path) -> None:
    with pytest.raises(TrainerError):
        await trainer.step(ONE, resume=tmp_path / "nothing")
    assert (await trainer.step(ONE, resume=None)).took_step


async def test_a_step_that_is_lost_cannot_be_written_and_the_next_can(trainer: Trainer, tmp_path: Path) -> None:
    await trainer.step(ONE, resume=None)
    await trainer.aclose()
    await trainer.aclose()  # as harmless as once
    with pytest.raises(TrainerError):
        await trainer.export(tmp_path / "lost", version(1))
    assert await made(trainer, ONE, tmp_path / "1")
