"""Decode steps that are recorded and repeated, and attention of rows by one kernel.

On a CPU a recorder stands in that repeats the work itself; what is marked gpu records CUDA graphs.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from engine_models import ask, enter, install, off_by, plain_model, prompt_of, run, write_adapter
from torch import Tensor

from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines import EngineSettings
from openclaw_rl.engines.local.build import open_core
from openclaw_rl.engines.local.cache import AttentionParams
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.graphs import WORTH_RECORDING

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
FIRST, SECOND = PolicyVersion("main", 1), PolicyVersion("main", 2)


def rows_by_torch(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    blocks: Tensor,
    lengths: Tensor,
    *,
    key_heads: int,
    look: AttentionParams,
) -> Tensor:
    """What the kernel of rows computes, row by row."""
    outs = []
    for row, (base, size, length) in enumerate(zip(*blocks.tolist(), lengths.tolist(), strict=True)):
        first = max(0, length - look.window) if look.window else 0
        key, value = (
            one[base * key_heads : (base + size) * key_heads].view(1, key_heads, size, -1) for one in (keys, values)
        )
        seen = F.scaled_dot_product_attention(
            query[row][None, :, None],
            key[:, :, first:length],
            value[:, :, first:length],
            scale=look.scaling,
            enable_gqa=True,
        )
        outs.append(seen[0, :, 0])
    return torch.stack(outs)


@dataclass
class Repeats:
    """A recorder that repeats the work; `spoil` changes the logits, `refuse` raises."""

    recorded: int = 0
    repeated: int = 0
    refuse: bool = False
    spoil: Callable[[], None] = field(default=lambda: None)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """What runs the work again."""
        if self.refuse:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.recorded += 1

        def repeat() -> None:
            self.repeated += 1
            work()
            self.spoil()

        return repeat


def opened(model: Path, recorder: Repeats | None, **values: object) -> Core:
    """An engine on the CPU that decodes as on a GPU."""
    settings = EngineSettings(model=str(model), device="cpu", dtype="float32", cache_tokens=16384, **values)  # type: ignore[arg-type]
    if recorder is None:
        return open_core(settings)
    return open_core(settings, rows_kernel=rows_by_torch, recorder=recorder)


def test_repeated_steps_answer_as_computed_ones(model_of: Callable[[str], Path]) -> None:
    model = model_of("qwen3")
    asked = [ask(number, prompt_of(20 + 40 * number), max_tokens=30 + number) for number in range(7)]
    recorder = Repeats()
    plain, repeated = run(opened(model, None), *asked), run(opened(model, recorder), *asked)
    assert {number: answer.tokens for number, answer in plain.items()} == {
        number: answer.tokens for number, answer in repeated.items()
    }
    assert max(off_by(plain_model(model), prompt_of(20 + 40 * number), repeated[number]) for number in range(7)) < 1e-3
    assert recorder.recorded and recorder.repeated > 20


def test_a_step_is_recorded_after_a_few_of_its_shape(model_of: Callable[[str], Path]) -> None:
    recorder = Repeats()
    core = opened(model_of("qwen3"), recorder)
    core.submit(ask(1, prompt_of(20), max_tokens=WORTH_RECORDING + 1))  # the prompt's pass samples the first
    answers = {}
    for _ in range(WORTH_RECORDING):
        enter(core.step(), answers)
    assert recorder.recorded == 0
    enter(core.step(), answers)
    assert recorder.recorded == 1 and not core.has_work


def test_rows_of_several_versions_repeat_with_their_own_adapters(
    model_of: Callable[[str], Path], tmp_path: Path
) -> None:
    model, recorder = model_of("qwen3"), Repeats()
    first = write_adapter(model, tmp_path / "1", FIRST, rank=3)
    second = write_adapter(model, tmp_path / "2", SECOND, rank=8)
    core = opened(model, recorder)
    install(core, first)
    answers = {}
    versions = [BASE, FIRST, FIRST]
    for number, version in enumerate(versions):
        core.submit(ask(number, prompt_of(30 + number), version, max_tokens=40))
    for _ in range(15):
        enter(core.step(), answers)
    before = recorder.recorded
    assert before
    install(core, second)  # a higher rank: the adapters' memory is replaced while rows run
    core.submit(ask(3, prompt_of(33), SECOND, max_tokens=30))
    run(core, answers=answers)
    assert recorder.recorded > before
    for number, adapter in enumerate([None, first, first, second]):
        assert off_by(plain_model(model, adapter), prompt_of(30 + number), answers[number]) < 1e-3


def test_what_was_recorded_is_dropped_when_adapters_move(model_of: Callable[[str], Path], tmp_path: Path) -> None:
    model, recorder = model_of("qwen3"), Repeats()
    core = opened(model, recorder)
    run(core, ask(1, prompt_of(30), max_tokens=12))
    assert recorder.recorded == 1
    run(core, ask(2, prompt_of(31), max_tokens=12))
    assert recorder.recorded == 1
    install(core, write_adapter(model, tmp_path / "1", FIRST, rank=3))
    run(core, ask(3, prompt_of(32), max_tokens=12))
    assert recorder.recorded == 2


@pytest.mark.parametrize("how", ["refused", "other logits"])
def test_where_recording_fails_steps_are_computed(
    how: str, model_of: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    model = model_of("qwen3")
    recorder = Repeats(refuse=how == "refused")
    core = opened(model, recorder)
    if how == "other logits":
        recorder.spoil = lambda: core._passes._graphs._logits.add_(1.0)  # type: ignore[union-attr]
    with caplog.at_level(logging.WARNING):
        answers = run(core, *(ask(number, prompt_of(20 + number), max_tokens=40) for number in range(3)))
    assert caplog.text.count("without CUDA graphs") == 1 and recorder.repeated <= 1
    for number, answer in answers.items():
        assert off_by(plain_model(model), prompt_of(20 + number), answer) < 1e-3


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral", "qwen3moe"])
def test_one_kernel_serves_the_rows_of_other_families(family: str, model_of: Callable[[str], Path]) -> None:
    core = open_core(
        EngineSettings(model=str(model_of(family)), device="cpu", dtype="float32", cache_tokens=16384),
        rows_kernel=rows_by_torch,
    )
    answers = run(core, *(ask(number, prompt_of(30 + number), max_tokens=40) for number in range(5)))
    for number, answer in answers.items():
        assert off_by(plain_model(model_of(family)), prompt_of(30 + number), answer) < 1e-3


@pytest.mark.gpu
@needs_gpu
def test_cuda_graphs_answer_as_the_model_and_peft_do(model_of: Callable[[str], Path], tmp_path: Path) -> None:
    model = model_of("qwen3")
    first = write_adapter(model, tmp_path / "1", FIRST, rank=3)
    second = write_adapter(model, tmp_path / "2", SECOND, rank=8)
    core = open_core(EngineSettings(model=str(model), device="cuda", dtype="float32", cache_tokens=16384))
    install(core, first)
    answers = {}
    for number, version in enumerate([BASE, FIRST, FIRST, BASE, FIRST]):
        core.submit(ask(number, prompt_of(30 + 50 * number), version, max_tokens=60))
    for _ in range(20):
        enter(core.step(), answers)
    install(core, second)
    for number in range(5, 9):
        core.submit(ask(number, prompt_of(30 + 50 * number), SECOND, max_tokens=50))
    run(core, answers=answers)
    graphs = core._passes._graphs
    assert graphs is not None and not graphs.is_off and graphs._replays
    adapters = [None, first, first, None, first, second, second, second, second]
    for number, adapter in enumerate(adapters):
        assert off_by(plain_model(model, adapter), prompt_of(30 + 50 * number), answers[number]) < 1e-3
