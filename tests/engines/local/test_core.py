"""Requests join and leave between steps, and none of them can tell who else is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from engine_models import Answer, StepClock, ask, enter, install, off_by, plain_logp, plain_model, prompt_of, run

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.completion import Finish
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.pace import LEAST, LEAST_IDLE
from openclaw_rl.engines.local.sampler import uniform
from openclaw_rl.engines.local.wire import ScoreJob, Submit


def test_a_seed_gives_the_same_tokens_whoever_else_is_in_the_batch(open_tiny: Callable[..., Core]) -> None:
    core = open_tiny()
    alone = run(core, ask(1, prompt_of(20), temperature=0.8, top_p=0.9, max_tokens=30))[1]
    crowd = [ask(number, prompt_of(number * 7, number), max_tokens=5 * number) for number in range(2, 9)]
    crowded = run(core, *crowd, ask(1, prompt_of(20), temperature=0.8, top_p=0.9, max_tokens=30))[1]
    assert crowded.tokens == alone.tokens
    assert crowded.logp == pytest.approx(alone.logp, abs=1e-5)
    other = Submit(1, prompt_of(20), ask(1, prompt_of(20), max_tokens=30).sampling, BASE, seed=2)
    assert run(core, other)[1].tokens != alone.tokens


def test_each_token_is_the_one_its_own_random_number_falls_on(
    open_tiny: Callable[..., Core], model_of: Callable[[str], Path]
) -> None:
    prompt = prompt_of(20)
    answer = run(open_tiny(), ask(3, prompt, max_tokens=50))[3]
    shares = plain_logp(plain_model(model_of("qwen3")), [*prompt, *answer.tokens]).exp()[19:].cumsum(-1)
    for draw, token in enumerate(answer.tokens):
        below = float(shares[draw, token - 1]) if token else 0.0
        assert below - 1e-5 <= uniform(3, draw) <= float(shares[draw, token]) + 1e-5


def test_a_request_taken_up_again_goes_on_in_its_own_stream_of_random_numbers(open_tiny: Callable[..., Core]) -> None:
    core, prompt = open_tiny(), prompt_of(20)
    whole = run(core, ask(5, prompt, max_tokens=20))[5]
    rest = Submit(5, (*prompt, *whole.tokens[:8]), ask(5, prompt, max_tokens=12).sampling, BASE, seed=5, drawn=8)
    assert run(core, rest)[5].tokens == whole.tokens[8:]


def test_versions_mixed_in_one_batch_equal_each_version_alone(
    open_tiny: Callable[..., Core], adapter_of: Callable[..., Adapter], model_of: Callable[[str], Path]
) -> None:
    core, prompt = open_tiny(), prompt_of(25)
    adapters = [adapter_of(1), adapter_of(2, rank=8), adapter_of(3, rank=2)]
    for adapter in adapters:
        install(core, adapter)
    versions = [BASE, *(adapter.version for adapter in adapters)]
    asks = [ask(number, prompt, versions[number % 4], max_tokens=20) for number in range(8)]
    answers = run(core, *asks)
    for number, answer in answers.items():
        adapter = None if number % 4 == 0 else adapters[number % 4 - 1]
        assert off_by(plain_model(model_of("qwen3"), adapter), prompt, answer) < 1e-5


def test_a_version_unloaded_in_mid_stream_serves_its_requests_to_the_end_and_its_slot_is_free_then(
    open_tiny: Callable[..., Core], adapter_of: Callable[..., Adapter], model_of: Callable[[str], Path]
) -> None:
    core, prompt, answers = open_tiny(max_versions=1), prompt_of(25), dict[int, Answer]()
    install(core, adapter_of(1))
    core.submit(ask(1, prompt, adapter_of(1).version, max_tokens=20))
    enter(core.step(), answers)
    core.unload(adapter_of(1).version)
    assert run(core, ask(2, prompt, adapter_of(1).version), answers=answers)[2].problem
    assert off_by(plain_model(model_of("qwen3"), adapter_of(1)), prompt, answers[1]) < 1e-5
    install(core, adapter_of(2))
    assert (
        off_by(
            plain_model(model_of("qwen3"), adapter_of(2)), prompt, run(core, ask(3, prompt, adapter_of(2).version))[3]
        )
        < 1e-5
    )


def test_version_nought_of_every_scope_is_the_base_model(open_tiny: Callable[..., Core]) -> None:
    core = open_tiny()
    shared = run(core, ask(1, prompt_of(40), BASE))[1]
    again = run(core, ask(1, prompt_of(40), PolicyVersion("ann", 0)))[1]
    assert again.tokens == shared.tokens
    assert again.cached == 39  # one model, one cache


def test_greedy_takes_the_likeliest_token_and_is_certain_of_it(
    open_tiny: Callable[..., Core], model_of: Callable[[str], Path]
) -> None:
    answer = run(open_tiny(), ask(1, prompt_of(10), temperature=0.0, top_logprobs=4))[1]
    assert answer.logp_sampled == [0.0] * 12
    assert [top[0][0] for top in answer.top] == answer.tokens
    assert [top[0][1] for top in answer.top] == pytest.approx(answer.logp, abs=1e-6)
    assert all(len(top) == 4 for top in answer.top)
    assert off_by(plain_model(model_of("qwen3")), prompt_of(10), answer) < 1e-5


def test_a_stop_id_ends_an_answer_and_is_its_last_token(open_tiny: Callable[..., Core]) -> None:
    core = open_tiny()
    whole = run(core, ask(1, prompt_of(10), max_tokens=30))[1]
    stop = whole.tokens[11]
    cut = run(core, ask(1, prompt_of(10), max_tokens=30, stop_ids=(stop,)))[1]
    assert cut.tokens == whole.tokens[: whole.tokens.index(stop) + 1]
    assert (cut.finish, whole.finish) == (Finish.STOP, Finish.LENGTH)


def test_an_answer_ends_where_the_context_does(open_tiny: Callable[..., Core]) -> None:
    core = open_tiny(cache_tokens=512)
    assert core.context == 512
    answer = run(core, ask(1, prompt_of(500), max_tokens=100))[1]
    assert (len(answer.tokens), answer.finish) == (12, Finish.LENGTH)


def test_a_cancelled_request_samples_no_more_and_frees_its_place(open_tiny: Callable[..., Core]) -> None:
    core, answers = open_tiny(max_rows=1), dict[int, Answer]()
    core.submit(ask(1, prompt_of(10), max_tokens=1000))
    core.submit(ask(2, prompt_of(10), max_tokens=3))
    for _ in range(5):
        enter(core.step(), answers)
    assert 2 not in answers
    core.cancel(1)
    run(core, answers=answers)
    assert (len(answers[1].tokens), len(answers[2].tokens)) == (5, 3)
    core.cancel(2)  # it has ended: nothing to do
    assert not core.has_work


def test_requests_wait_for_a_row_and_none_is_lost(open_tiny: Callable[..., Core]) -> None:
    core = open_tiny(max_rows=2)
    answers = run(core, *(ask(number, prompt_of(10, number)) for number in range(9)))
    assert [len(answers[number].tokens) for number in range(9)] == [12] * 9


def test_a_long_prompt_is_read_in_pieces_while_others_stream(
    open_tiny: Callable[..., Core], model_of: Callable[[str], Path]
) -> None:
    core, answers, prompt = (
        open_tiny(clock=StepClock(0.0, 1.0), step_target_ms=0.01),
        dict[int, Answer](),
        prompt_of(600),
    )
    core.submit(ask(1, prompt_of(10), max_tokens=200))
    enter(core.step(), answers)
    core.submit(ask(2, prompt, max_tokens=20))
    enter(core.step(), answers)
    while 2 not in answers:
        before = len(answers[1].tokens)
        enter(core.step(), answers)
        assert len(answers[1].tokens) == before + 1
    assert len(answers[1].tokens) > 10
    run(core, answers=answers)
    model = plain_model(model_of("qwen3"))
    assert max(off_by(model, prompt_of(10), answers[1]), off_by(model, prompt, answers[2])) < 1e-5


def test_a_score_runs_beside_streams_and_in_pieces(open_tiny: Callable[..., Core]) -> None:
    core, prompt = open_tiny(), prompt_of(700)
    alone = run(core, ScoreJob(1, prompt, 1, BASE))[1].scores
    core = open_tiny(clock=StepClock(0.0, 1.0), step_target_ms=0.01)
    core.submit(ask(2, prompt_of(10), max_tokens=300))
    core.step()
    beside = run(core, ScoreJob(1, prompt, 1, BASE))[1].scores
    assert alone is not None
    assert beside is not None
    assert beside.logp == pytest.approx(alone.logp, abs=1e-5)
    assert len(alone.logp) == 699


def test_a_prompt_beside_rows_slower_than_the_target_gets_as_long_as_they_take(open_tiny: Callable[..., Core]) -> None:
    # a step takes 0.1 s, four times the target, and a token of a prompt 0.002 s besides: 50 tokens are another 0.1 s
    core = open_tiny(clock=StepClock(0.1, 0.002))
    run(core, *(ask(number, prompt_of(1900, number), max_tokens=1) for number in (3, 4, 5)))  # shows what a token takes
    core.submit(ask(1, prompt_of(10), max_tokens=100))
    for _ in range(3):
        core.step()
    core.submit(ask(2, prompt_of(1900), max_tokens=1))
    read = []
    for _ in range(35):
        before = core.stats().prompt_tokens_read
        core.step()
        read.append(core.stats().prompt_tokens_read - before)
    assert 35 <= sorted(read)[18] <= 60
    assert read.count(0) <= 3  # steps that show what the rows alone take


def test_a_slow_model_reads_no_small_pieces_of_a_prompt_while_nothing_else_runs(
    open_tiny: Callable[..., Core],
) -> None:
    def most_read_in_a_step(*jobs: Submit | ScoreJob) -> int:
        core, read = open_tiny(clock=StepClock(0.001, 0.0)), []
        for job in jobs:
            core.submit(job) if isinstance(job, Submit) else core.score(job)
            for _ in range(3):  # one of them reads nothing, and shows what the rows alone take
                before = core.stats().prompt_tokens_read
                core.pace.rate = 1.0  # so slow that not one token fits into the time of a step
                core.step()
                read.append(core.stats().prompt_tokens_read - before)
        return max(read)

    assert most_read_in_a_step(ask(1, prompt_of(300), max_tokens=1)) == LEAST_IDLE
    assert most_read_in_a_step(ask(1, prompt_of(4), max_tokens=9), ask(2, prompt_of(300), max_tokens=1)) == LEAST
    assert most_read_in_a_step(ScoreJob(1, prompt_of(300), 1, BASE)) == LEAST  # nobody waits for it


def test_numbers_that_are_not_finite_end_their_request_and_no_other(
    open_tiny: Callable[..., Core], adapter_of: Callable[..., Adapter], model_of: Callable[[str], Path]
) -> None:
    core, prompt = open_tiny(), prompt_of(8)  # too short to be kept, so that the places after it are free again
    install(core, adapter_of(1))
    for stack in core.adapters.stacks.values():
        stack.up.fill_(1e30)  # finite, as a check of the file sees it; the products are not
    answers = run(core, ask(1, prompt_of(200), adapter_of(1).version), *(ask(n, prompt, max_tokens=4) for n in (2, 3)))
    assert "not finite" in answers[1].problem
    assert not answers[1].tokens
    # whoever gets that place next, shorter than its neighbour, is read together with what lies behind its end
    core.unload(adapter_of(1).version)
    sizes = {number: 5 + 29 * (number % 3) for number in range(4, 12)}
    later = run(core, *(ask(number, prompt_of(size, number)) for number, size in sizes.items()))
    model = plain_model(model_of("qwen3"))
    assert max(off_by(model, prompt, answers[2]), off_by(model, prompt, answers[3])) < 1e-5
    for number, size in sizes.items():
        assert len(later[number].tokens) == 12
        assert off_by(model, prompt_of(size, number), later[number]) < 1e-5


def test_a_short_prompt_does_not_wait_until_a_long_one_is_read(open_tiny: Callable[..., Core]) -> None:
    core, answers, steps = open_tiny(clock=StepClock(0.0, 1.0), step_target_ms=0.01), dict[int, Answer](), 0
    core.submit(ask(1, prompt_of(8, 1), max_tokens=200))
    enter(core.step(), answers)
    core.submit(ask(2, prompt_of(240, 2), max_tokens=1))
    enter(core.step(), answers)
    core.submit(ask(3, prompt_of(8, 3), max_tokens=1))
    while 3 not in answers or not answers[3].tokens:
        enter(core.step(), answers)
        steps += 1
    assert steps <= 4
    assert 2 not in answers or not answers[2].tokens
    while 2 not in answers or not answers[2].tokens:  # nor does the long one wait for ever
        enter(core.step(), answers)
