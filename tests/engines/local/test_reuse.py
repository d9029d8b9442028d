"""Keys and values are computed once, within a budget, and never cross versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine_models import Answer, StepClock, ask, enter, install, off_by, plain_model, prompt_of, run

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.version import BASE
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.wire import ScoreJob


def test_the_next_turn_reads_only_what_is_new(open_tiny: Callable[..., Core], model_of: Callable[[str], Path]) -> None:
    core, first = open_tiny(), prompt_of(100)
    said = run(core, ask(1, first))[1]
    second = (*first, *said.tokens, *prompt_of(9, 1))
    read = core.stats().prompt_tokens_read
    answer = run(core, ask(2, second))[2]
    # the last token sampled was never fed, so it and the 9 new ones are read
    assert answer.cached == 111
    assert core.stats().prompt_tokens_read - read == 10
    assert off_by(plain_model(model_of("qwen3")), second, answer) < 1e-5


def test_the_next_turn_takes_the_row_over_and_a_second_user_of_it_gets_a_copy(
    open_tiny: Callable[..., Core], model_of: Callable[[str], Path]
) -> None:
    core, first = open_tiny(), prompt_of(100)
    said = run(core, ask(1, first))[1]
    free = core.room.blocks.free
    turns = {number: (*first, *said.tokens, *prompt_of(9, number)) for number in (2, 3, 4)}
    for number, turn in turns.items():
        core.submit(ask(number, turn, max_tokens=50))
    answers: dict[int, Answer] = {}
    enter(core.step(), answers)
    assert core.room.blocks.free == free - 2 * 256
    run(core, answers=answers)
    for number, turn in turns.items():
        assert answers[number].cached == 111
        assert off_by(plain_model(model_of("qwen3")), turn, answers[number]) < 1e-5


def test_an_answer_asked_for_again_shares_the_prompt_and_leaves_the_first_answer_kept(
    open_tiny: Callable[..., Core],
) -> None:
    core, prompt = open_tiny(), prompt_of(100)
    first = run(core, ask(1, prompt))[1]
    assert run(core, ask(2, prompt))[2].cached == 99
    assert run(core, ask(3, (*prompt, *first.tokens, 5)))[3].cached == 111


def test_a_sibling_waits_for_the_prompt_that_is_being_read_and_copies_it(
    open_tiny: Callable[..., Core], model_of: Callable[[str], Path]
) -> None:
    core, prompt = open_tiny(clock=StepClock(0.0, 1.0), step_target_ms=0.01), prompt_of(400)
    answers = run(core, *(ask(number, prompt) for number in (1, 2, 3, 4)))
    assert core.stats().prompt_tokens_read == 403
    for answer in answers.values():
        assert off_by(plain_model(model_of("qwen3")), prompt, answer) < 1e-5


def test_what_was_cached_under_one_version_is_not_used_by_another(
    open_tiny: Callable[..., Core], adapter_of: Callable[..., Adapter], model_of: Callable[[str], Path]
) -> None:
    core, prompt = open_tiny(), prompt_of(100)
    install(core, adapter_of(1))
    install(core, adapter_of(2))
    for number, adapter in enumerate((None, adapter_of(1), adapter_of(2))):
        version = BASE if adapter is None else adapter.version
        answer = run(core, ask(number, prompt, version))[number]
        assert answer.cached == 0
        assert off_by(plain_model(model_of("qwen3"), adapter), prompt, answer) < 1e-5
        assert run(core, ask(number + 10, prompt, version))[number + 10].cached == 99


def test_a_prompt_another_version_has_read_and_still_runs_on_is_read_again(
    open_tiny: Callable[..., Core], adapter_of: Callable[..., Adapter], model_of: Callable[[str], Path]
) -> None:
    core, prompt, answers = open_tiny(), prompt_of(200), dict[int, Answer]()
    install(core, adapter_of(1))
    core.submit(ask(1, prompt, max_tokens=30))
    enter(core.step(), answers)
    run(core, ask(2, prompt, adapter_of(1).version), ask(3, prompt), answers=answers)
    assert (answers[2].cached, answers[3].cached) == (0, 199)
    assert off_by(plain_model(model_of("qwen3"), adapter_of(1)), prompt, answers[2]) < 1e-5


def test_a_version_that_is_gone_leaves_nothing_for_one_of_the_same_name(
    open_tiny: Callable[..., Core], adapter_of: Callable[..., Adapter], model_of: Callable[[str], Path]
) -> None:
    core, prompt = open_tiny(), prompt_of(100)
    install(core, adapter_of(1))
    run(core, ask(1, prompt, adapter_of(1).version))
    core.unload(adapter_of(1).version)
    assert core.room.kept.tokens == 0
    renamed = Adapter(adapter_of(2).folder, adapter_of(2).digest, adapter_of(1).version)
    install(core, renamed)
    answer = run(core, ask(2, prompt, renamed.version))[2]
    assert answer.cached == 0
    assert off_by(plain_model(model_of("qwen3"), renamed), prompt, answer) < 1e-5


def test_scores_share_a_prefix_but_compute_what_they_score(open_tiny: Callable[..., Core]) -> None:
    core, prompt = open_tiny(), prompt_of(100)
    cold = run(core, ScoreJob(1, prompt, 60, BASE))[1].scores
    read = core.stats().prompt_tokens_read
    warm = run(core, ScoreJob(2, prompt, 60, BASE))[2].scores
    assert core.stats().prompt_tokens_read - read == 40
    assert cold is not None
    assert warm is not None
    assert max(abs(a - b) for a, b in zip(cold.logp, warm.logp, strict=True)) < 1e-5


def test_what_was_used_least_lately_gives_way_within_the_budget(open_tiny: Callable[..., Core]) -> None:
    core = open_tiny(cache_tokens=1024, max_rows=2)
    prompts = [prompt_of(100, number) for number in range(4)]
    for number, prompt in enumerate(prompts):
        run(core, ask(number, prompt))
    assert core.room.blocks.free == 0
    run(core, ask(10, (*prompts[0], 7)))  # used again: now the second is the oldest
    run(core, ask(11, prompt_of(100, 99)))
    assert core.stats().cached_tokens <= 1024
    assert run(core, ask(12, (*prompts[0], 8)))[12].cached == 100
    assert run(core, ask(13, (*prompts[1], 8)))[13].cached == 0


def test_rows_that_outgrow_the_cache_together_wait_and_all_come_to_their_end(
    open_tiny: Callable[..., Core], model_of: Callable[[str], Path]
) -> None:
    core = open_tiny(cache_tokens=1024)
    prompts = {number: prompt_of(120, number) for number in range(4)}
    answers = run(core, *(ask(number, prompt, max_tokens=300) for number, prompt in prompts.items()))
    for number, prompt in prompts.items():
        assert len(answers[number].tokens) == 300
        assert off_by(plain_model(model_of("qwen3")), prompt, answers[number]) < 1e-5
    assert core.room.blocks.total == 1024


def test_a_row_that_grows_keeps_its_log_probabilities(
    open_tiny: Callable[..., Core], model_of: Callable[[str], Path]
) -> None:
    core, prompt = open_tiny(), prompt_of(200)
    answer = run(core, ask(1, prompt, max_tokens=700), ask(2, prompt_of(30), max_tokens=700))[1]
    assert off_by(plain_model(model_of("qwen3")), prompt, answer) < 1e-5


def test_what_is_flushed_is_overwritten_and_read_again(
    open_tiny: Callable[..., Core], model_of: Callable[[str], Path]
) -> None:
    core, prompt, other = open_tiny(), prompt_of(400), prompt_of(300, 7)
    run(core, ask(1, prompt))
    core.submit(ask(2, other, max_tokens=50))
    answers: dict[int, Answer] = {}
    enter(core.step(), answers)
    kept = core.room.kept.oldest()
    assert kept is not None
    places = core.room.cache.view(0, kept.block.base, 1, kept.block.size)
    assert all(bool(place.any()) for place in places)
    core.flush()
    assert core.stats().cached_tokens == 0
    assert core.stats().unwiped_tokens == kept.block.size
    run(core, answers=answers)
    assert off_by(plain_model(model_of("qwen3")), other, answers[2]) < 1e-5  # what ran on was not disturbed
    assert (core.stats().cached_tokens, core.stats().unwiped_tokens, core.has_work) == (0, 0, False)
    assert not any(
        bool(place.any()) for at in (0, 1) for place in (core.room.cache.keys[at], core.room.cache.values[at])
    )
    for number, asked in ((3, prompt), (4, other)):
        answer = run(core, ask(number, asked))[number]
        assert answer.cached == 0
        assert off_by(plain_model(model_of("qwen3")), asked, answer) < 1e-5
    assert run(core, ask(5, prompt))[5].cached == 399  # from now on it is kept again


def test_a_place_taken_before_it_was_overwritten_holds_nothing_of_what_was_flushed(
    open_tiny: Callable[..., Core],
) -> None:
    core, prompt = open_tiny(), prompt_of(400)
    run(core, ask(1, prompt))
    core.flush()
    core.submit(ask(2, prompt_of(40, 9)))
    taken = core.room.find_room(512)  # where the first one lay
    assert taken is not None
    assert not core.room.cache.view(0, taken.base, 1, taken.size)[0].any()
