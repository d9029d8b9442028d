"""What every engine does, the double included: a later kind is added to ENGINES and has to pass as it is."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from contract_kinds import ENGINES, EngineKind, version
from safetensors.numpy import save_file

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, Adapter, digest_of_folder
from openclaw_rl.core.completion import Finish, SampledToken, completion_of
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import AdapterError, EngineError, RequestError

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROMPT = Prompt((5, 9, 12, 30, 41))
FIVE = Sampling(5, seed=3)


@pytest_asyncio.fixture(params=ENGINES, scope="module", loop_scope="module")
async def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EngineKind]:
    async with ENGINES[request.param](tmp_path_factory.mktemp("adapters")) as made:
        yield made


async def said(
    kind: EngineKind, sampling: Sampling = FIVE, *, prompt: Prompt = PROMPT, by: PolicyVersion = BASE
) -> list[SampledToken]:
    return [token async for token in kind.engine.generate(prompt, sampling, by)]


async def test_an_answer_ends_at_its_length_and_only_its_last_token_says_so(kind: EngineKind) -> None:
    tokens = await said(kind)
    assert [token.finish for token in tokens] == [None] * 4 + [Finish.LENGTH]
    assert completion_of(tokens, BASE, Finish.LENGTH).version == BASE


async def test_an_answer_ends_with_a_stop_id_which_it_gives(kind: EngineKind) -> None:
    tokens = [token.token for token in await said(kind)]
    stop = tokens[2]
    stopped = await said(kind, replace(FIVE, stop_ids=(stop,)))
    assert [token.token for token in stopped] == tokens[: tokens.index(stop) + 1]
    assert stopped[-1].finish is Finish.STOP
    # also where it is the last one allowed
    both = await said(kind, replace(FIVE, max_tokens=len(stopped), stop_ids=(stop,)))
    assert both[-1].finish is Finish.STOP


async def test_log_probabilities_are_nats_and_the_likeliest_come_first(kind: EngineKind) -> None:
    for token in await said(kind, replace(FIVE, top_logprobs=3)):
        assert math.isfinite(token.logp) and token.logp <= 1e-6
        assert math.isfinite(token.logp_sampled) and token.logp_sampled <= 1e-6
        nats = [value for _, value in token.top]
        assert len(nats) == 3 and nats == sorted(nats, reverse=True)
        assert dict(token.top).get(token.token, token.logp) == pytest.approx(token.logp, abs=1e-5)


async def test_a_seed_says_the_same_again_and_another_something_else(kind: EngineKind) -> None:
    long = Sampling(20, seed=3)
    asked = (long, long, Sampling(20, seed=4))
    first, again, other = [[token.token for token in await said(kind, each)] for each in asked]
    assert first == again != other


async def test_a_version_that_is_not_loaded_is_refused(kind: EngineKind) -> None:
    with pytest.raises(EngineError, match=r"shared\.7 is not loaded"):
        await said(kind, by=version(7))
    with pytest.raises(EngineError, match=r"shared\.7 is not loaded"):
        await kind.engine.score(PROMPT, start=1, version=version(7))


async def test_a_request_ends_on_the_version_it_began_with(kind: EngineKind) -> None:
    await kind.engine.load(kind.adapter(1))
    async with aclosing(kind.engine.generate(PROMPT, Sampling(40, seed=1), version(1))) as stream:  # type: ignore[type-var]
        first = await anext(stream)
        await kind.engine.unload(version(1))
        with pytest.raises(EngineError, match="not loaded"):
            await said(kind, by=version(1))
        rest = [token async for token in stream]
    assert {token.version for token in (first, *rest)} == {version(1)}
    assert rest[-1].finish is Finish.LENGTH
    assert len(rest) == 39
    await kind.engine.load(kind.adapter(1))  # it may come back
    assert len(await said(kind, by=version(1))) == 5
    await kind.engine.unload(version(1))


async def test_unloading_what_is_not_there_and_the_base_changes_nothing(kind: EngineKind) -> None:
    await kind.engine.unload(version(7))
    await kind.engine.unload(BASE)
    assert len(await said(kind)) == 5


async def test_an_adapter_that_cannot_be_read_is_refused_and_nothing_has_changed(
    kind: EngineKind, tmp_path: Path
) -> None:
    good = kind.adapter(2)
    shutil.copytree(good.folder, tmp_path / "3")
    (tmp_path / "3" / WEIGHTS).unlink()
    with pytest.raises(AdapterError):
        await kind.engine.load(Adapter(tmp_path / "3", good.digest, version(3)))
    with pytest.raises(AdapterError, match="base model"):
        await kind.engine.load(replace(good, version=BASE))
    with pytest.raises(EngineError):
        await said(kind, by=version(3))
    assert len(await said(kind)) == 5


@pytest.mark.parametrize("layer", ["model.layers.0.self_attn.q_proj", "model.layers.99.self_attn.q_proj"])
async def test_an_adapter_of_another_model_is_refused_and_nothing_has_changed(
    kind: EngineKind, tmp_path: Path, layer: str
) -> None:
    if kind.model is None:
        pytest.skip("it has no model")
    settings = json.loads((kind.model / "config.json").read_text("utf-8"))
    wider = settings["hidden_size"] + 64
    halves = {"A": np.zeros((4, wider), np.float32), "B": np.zeros((wider, 4), np.float32)}
    save_file({f"base_model.model.{layer}.lora_{half}.weight": one for half, one in halves.items()}, tmp_path / WEIGHTS)
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (tmp_path / CONFIG).write_text(json.dumps(config), "utf-8")
    with pytest.raises(AdapterError, match=layer):
        await kind.engine.load(Adapter(tmp_path, digest_of_folder(tmp_path), version(4)))
    with pytest.raises(EngineError):
        await said(kind, by=version(4))
    assert len(await said(kind)) == 5


async def test_scores_belong_to_the_prompts_own_ids(kind: EngineKind) -> None:
    scores = await kind.engine.score(PROMPT, start=2, version=BASE, top_k=2)
    assert scores.start == 2
    assert len(scores.logp) == len(scores.top) == 3
    assert all(math.isfinite(value) and value <= 1e-6 for value in scores.logp)
    for (_, likeliest), (_, second) in scores.top:
        assert likeliest >= second
    assert (await kind.engine.score(PROMPT, start=2, version=BASE)).logp == pytest.approx(scores.logp, abs=1e-5)
    assert (await kind.engine.score(PROMPT, start=2, version=BASE)).top == ()


async def test_what_was_sampled_costs_what_a_score_says(kind: EngineKind) -> None:
    tokens = await said(kind)
    whole = Prompt((*PROMPT.tokens, *(token.token for token in tokens)))
    scores = await kind.engine.score(whole, start=len(PROMPT), version=BASE)
    assert scores.logp == pytest.approx([token.logp for token in tokens], abs=1e-4)


@pytest.mark.parametrize("start", [0, 5])
async def test_where_there_is_nothing_to_score_the_request_is_refused(kind: EngineKind, start: int) -> None:
    with pytest.raises(RequestError, match=f"cannot score from token {start} of 5"):
        await kind.engine.score(PROMPT, start=start, version=BASE)


async def test_a_prompt_that_leaves_no_room_for_an_answer_is_refused(kind: EngineKind) -> None:
    whole = Prompt((7,) * kind.context_length)
    with pytest.raises(RequestError, match="context") as refused:
        await said(kind, prompt=whole)
    assert refused.value.code == "context_length_exceeded"
    assert len((await kind.engine.score(whole, start=1, version=BASE)).logp) == kind.context_length - 1


async def test_an_answer_given_up_midway_leaves_the_others_alone(kind: EngineKind) -> None:
    alone = [token.token for token in await said(kind, Sampling(12, seed=9))]
    async with aclosing(kind.engine.generate(PROMPT, Sampling(200, seed=1), BASE)) as given_up:  # type: ignore[type-var]
        await anext(given_up)
        beside = kind.engine.generate(PROMPT, Sampling(12, seed=9), BASE)
        began = [(await anext(beside)).token]
    assert [*began, *[token.token async for token in beside]] == alone


async def test_it_says_what_it_serves(kind: EngineKind) -> None:
    info = kind.engine.info
    assert info.name and info.eos_ids
    assert max(PROMPT.tokens) < info.vocab_size
    assert info.context_length >= kind.context_length


async def test_its_counters_know_what_runs_and_which_versions_are_loaded(kind: EngineKind) -> None:
    await kind.engine.load(kind.adapter(1))
    async with aclosing(kind.engine.generate(PROMPT, Sampling(40, seed=1), version(1))) as stream:  # type: ignore[type-var]
        await anext(stream)
        now = await kind.engine.stats()
        assert now.running == 1 and str(version(1)) in now.versions
        async for _ in stream:
            pass
    await kind.engine.unload(version(1))
    later = await kind.engine.stats()
    assert later.running == 0 and str(version(1)) not in later.versions


async def test_a_closed_engine_ends_its_streams_and_answers_nothing_more(kind: EngineKind) -> None:
    """The last one: later tests would find the engine closed."""
    stream = kind.engine.generate(PROMPT, Sampling(400, seed=1), BASE)
    await anext(stream)
    await kind.engine.aclose()
    with pytest.raises(EngineError):
        async for _ in stream:
            pass
    with pytest.raises(EngineError):
        await said(kind)
    await kind.engine.aclose()  # as harmless as once
