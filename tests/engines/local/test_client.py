"""The engine as the program has it: a child process that may die without any reader noticing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from engine_models import VOCAB, Answer, off_by, plain_logp, plain_model, prompt_of

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.completion import Finish, SampledToken
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines import EngineSettings, LocalEngine
from openclaw_rl.errors import AdapterError, EngineError, ModelError, RequestError

# one process for all that leave it whole: starting one takes seconds
pytestmark = pytest.mark.asyncio(loop_scope="module")


def _settings(model_of: Callable[[str], Path]) -> EngineSettings:
    return EngineSettings(
        model=str(model_of("qwen3")), device="cpu", cache_tokens=16384, max_rows=4, max_waiting=2, max_restarts=1
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(model_of: Callable[[str], Path]) -> AsyncIterator[LocalEngine]:
    """An engine on the tiny Qwen3."""
    engine = await LocalEngine.start(_settings(model_of))
    yield engine
    await engine.aclose()


async def _all(
    engine: LocalEngine, prompt: tuple[int, ...], version: PolicyVersion = BASE, *, max_tokens: int = 12, seed: int = 1
) -> list[SampledToken]:
    sampling = Sampling(max_tokens=max_tokens, seed=seed)
    return [item async for item in engine.generate(Prompt(prompt), sampling, version)]


def _answer(items: list[SampledToken]) -> Answer:
    return Answer(tokens=[item.token for item in items], logp=[item.logp for item in items])


async def test_streams_scores_and_versions_go_through_the_process(
    engine: LocalEngine, adapter_of: Callable[..., Adapter], model_of: Callable[[str], Path]
) -> None:
    assert "torch" not in sys.modules or engine.info.vocab_size == VOCAB
    assert (engine.info.eos_ids, engine.info.context_length) == ((3,), 2048)
    adapter, prompt = adapter_of(1), prompt_of(30)
    with pytest.raises(EngineError, match=r"shared\.1 is not loaded"):
        await _all(engine, prompt, adapter.version)
    await engine.load(adapter)
    base, adapted = await asyncio.gather(_all(engine, prompt), _all(engine, prompt, adapter.version))
    assert off_by(plain_model(model_of("qwen3")), prompt, _answer(base)) < 1e-5
    assert off_by(plain_model(model_of("qwen3"), adapter), prompt, _answer(adapted)) < 1e-5
    assert {item.version for item in adapted} == {adapter.version}
    assert [item.finish for item in base] == [None] * 11 + [Finish.LENGTH]
    scores = await engine.score(Prompt(prompt), start=29, version=adapter.version)
    want = plain_logp(plain_model(model_of("qwen3"), adapter), prompt)[28, prompt[29]]
    assert scores.logp == pytest.approx([float(want)], abs=1e-5)
    await engine.unload(adapter.version)
    with pytest.raises(EngineError, match="not loaded"):
        await engine.score(Prompt(prompt), start=1, version=adapter.version)


async def test_a_killed_process_is_a_pause_to_its_readers(
    engine: LocalEngine, adapter_of: Callable[..., Adapter], model_of: Callable[[str], Path]
) -> None:
    adapter, prompt = adapter_of(1), prompt_of(30)
    await engine.load(adapter)
    whole = await _all(engine, prompt, adapter.version, max_tokens=400)

    async def killing() -> list[SampledToken]:
        items = []
        async for item in engine.generate(Prompt(prompt), Sampling(max_tokens=400, seed=1), adapter.version):
            items.append(item)
            if len(items) == 5:
                os.kill(engine.pid, signal.SIGKILL)
        return items

    long = prompt_of(900)
    killed, scores, other = await asyncio.gather(
        killing(),
        engine.score(Prompt(long), start=1, version=BASE),
        _all(engine, prompt_of(50), max_tokens=300),
    )
    assert [item.token for item in killed] == [item.token for item in whole]
    assert sum(item.cached > 0 for item in killed) <= 1
    assert off_by(plain_model(model_of("qwen3"), adapter), prompt, _answer(killed)) < 1e-5
    assert off_by(plain_model(model_of("qwen3")), prompt_of(50), _answer(other)) < 1e-5
    assert len(scores.logp) == 899
    assert (await engine.stats()).restarts == 1
    await engine.unload(adapter.version)


async def test_a_reader_who_leaves_frees_the_row(engine: LocalEngine) -> None:
    before = (await engine.stats()).tokens_sampled
    stream = engine.generate(Prompt(prompt_of(30)), Sampling(max_tokens=1900), BASE)
    assert (await anext(stream)).finish is None
    await stream.aclose()
    while (await engine.stats()).running:
        pass
    assert (await engine.stats()).tokens_sampled - before < 1900


async def test_one_request_more_than_may_wait_is_told_to_come_again(engine: LocalEngine) -> None:
    streams = [engine.generate(Prompt(prompt_of(30)), Sampling(max_tokens=1900), BASE) for _ in range(6)]
    first = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await asyncio.wait(first[:4])
    with pytest.raises(RequestError, match="6 requests are running or waiting") as caught:
        await _all(engine, prompt_of(30))
    assert (caught.value.status, caught.value.code) == (429, "queue_full")
    for task in first[4:]:
        task.cancel()
    await asyncio.gather(*first, return_exceptions=True)
    for stream in streams:
        await stream.aclose()
    assert len(await _all(engine, prompt_of(30))) == 12


async def test_what_does_not_fit_or_is_no_text_is_refused_at_once(engine: LocalEngine) -> None:
    with pytest.raises(RequestError, match="2048 tokens, the context of qwen3 is 2048") as caught:
        await _all(engine, prompt_of(2048))
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
    assert len(await _all(engine, prompt_of(2040), max_tokens=100)) == 8
    with pytest.raises(RequestError, match="reads text only"):
        await anext(engine.generate(Prompt((5,), images=("file:a.png",)), Sampling(max_tokens=1), BASE))
    with pytest.raises(RequestError, match="token id is outside"):
        await _all(engine, (5, VOCAB))


async def test_a_version_let_go_and_asked_for_again_before_its_last_stream_ended_stays(
    engine: LocalEngine, adapter_of: Callable[..., Adapter], model_of: Callable[[str], Path]
) -> None:
    adapter, prompt = adapter_of(1), prompt_of(30)
    await engine.load(adapter)
    stream = engine.generate(Prompt(prompt), Sampling(max_tokens=50, seed=1), adapter.version)
    first = await anext(stream)
    await engine.unload(adapter.version)
    await engine.load(adapter)
    items = [first, *[item async for item in stream]]
    assert off_by(plain_model(model_of("qwen3"), adapter), prompt, _answer(items)) < 1e-5
    assert len(await _all(engine, prompt, adapter.version)) == 12
    await engine.unload(adapter.version)


async def test_a_bad_adapter_changes_nothing(
    engine: LocalEngine, adapter_of: Callable[..., Adapter], tmp_path: Path
) -> None:
    good = adapter_of(1)
    with pytest.raises(AdapterError, match="digest"):
        await engine.load(Adapter(good.folder, "0" * 64, good.version))
    with pytest.raises(AdapterError, match="cannot be read"):
        await engine.load(Adapter(tmp_path, good.digest, good.version))
    with pytest.raises(AdapterError, match="base model"):
        await engine.load(Adapter(good.folder, good.digest, BASE))
    with pytest.raises(EngineError, match="not loaded"):
        await _all(engine, prompt_of(5), good.version)
    await engine.load(good)
    assert len(await _all(engine, prompt_of(5), good.version)) == 12
    await engine.unload(good.version)


async def test_a_process_that_dies_too_often_is_given_up_in_plain_words(model_of: Callable[[str], Path]) -> None:
    engine, items = await LocalEngine.start(_settings(model_of)), 0
    with pytest.raises(EngineError, match="died 2 times"):
        async for _ in engine.generate(Prompt(prompt_of(30)), Sampling(max_tokens=1900, seed=1), BASE):
            items += 1
            if items % 5 == 0:
                os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="died 2 times"):
        await _all(engine, prompt_of(30))
    await engine.aclose()


class Poison(int):
    """A number that ends the process it is sent to."""

    def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
        return os._exit, (1,)


async def test_a_request_that_ends_the_process_each_time_is_given_up_and_the_others_go_on(
    model_of: Callable[[str], Path],
) -> None:
    engine = await LocalEngine.start(replace(_settings(model_of), max_restarts=5))
    other = asyncio.ensure_future(_all(engine, prompt_of(50), max_tokens=400))
    poison = Sampling(max_tokens=9, top_k=Poison())
    with pytest.raises(EngineError, match="ended again and again while it worked on this request"):
        async for _ in engine.generate(Prompt(prompt_of(30)), poison, BASE):
            pass
    assert off_by(plain_model(model_of("qwen3")), prompt_of(50), _answer(await other)) < 1e-5
    assert (await engine.stats()).restarts == 2
    await engine.aclose()


async def test_a_process_killed_while_it_takes_up_its_versions_again_is_started_once_more(
    adapter_of: Callable[..., Adapter], model_of: Callable[[str], Path]
) -> None:
    engine = await LocalEngine.start(replace(_settings(model_of), max_restarts=5))
    adapter = adapter_of(1)
    await engine.load(adapter)
    first, asking = engine.pid, asyncio.ensure_future(_all(engine, prompt_of(30), adapter.version))
    os.kill(first, signal.SIGKILL)
    while engine.pid == first or not engine.is_up:
        await asyncio.wait([asking], timeout=0.0)
    second = engine.pid
    os.kill(second, signal.SIGKILL)  # it serves again from here on, but its versions are still on their way
    assert len(await asking) == 12
    assert engine.pid not in (first, second)
    await engine.aclose()


async def test_closing_ends_the_process_and_says_so_to_who_still_reads(model_of: Callable[[str], Path]) -> None:
    engine = await LocalEngine.start(_settings(model_of))
    stream = engine.generate(Prompt(prompt_of(30)), Sampling(max_tokens=1900), BASE)
    await anext(stream)
    await engine.aclose()
    with pytest.raises(EngineError, match="was closed"):
        async for _ in stream:
            pass
    with pytest.raises(ProcessLookupError):
        os.kill(engine.pid, 0)


async def test_the_process_does_not_outlive_a_parent_that_was_killed(model_of: Callable[[str], Path]) -> None:
    program = f"""
import asyncio
from openclaw_rl.engines import LocalEngine, EngineSettings

async def main():
    engine = await LocalEngine.start(EngineSettings(model={str(model_of("qwen3"))!r}, device="cpu"))
    print(engine.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    assert parent.stderr is not None
    child = int(await parent.stdout.readline())
    assert child != parent.pid
    parent.kill()
    await parent.wait()
    async with asyncio.timeout(60):
        await parent.stderr.read()  # ends when the last process that holds it does: the engine's


async def test_a_model_that_cannot_be_served_is_named_at_start(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model folder"):
        await LocalEngine.start(EngineSettings(model=str(tmp_path / "none")))
