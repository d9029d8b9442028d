"""What biases and grammars do on engines with a model: a script cannot be held to anything."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from contract_kinds import ENGINES, EngineKind
from tokenizers import Tokenizer

from openclaw_rl.core.completion import Finish, SampledToken
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Grammar, LogitAdjustment, Sampling
from openclaw_rl.core.version import BASE
from openclaw_rl.home.models import model_folder

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROMPT = Prompt((5, 9, 12, 30, 41))


@pytest_asyncio.fixture(
    params=[name for name in ("local", "vllm") if name in ENGINES], scope="module", loop_scope="module"
)
async def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EngineKind]:
    async with ENGINES[request.param](tmp_path_factory.mktemp("adapters")) as made:
        yield made


async def said(kind: EngineKind, sampling: Sampling) -> list[SampledToken]:
    return [token async for token in kind.engine.generate(PROMPT, sampling, BASE)]


async def test_a_bias_decides_what_is_said_and_the_models_own_log_probability_is_told(kind: EngineKind) -> None:
    (free,) = await said(kind, Sampling(1, temperature=0.0, top_logprobs=4))
    rare = 3_000 if free.token != 3_000 else 3_001
    held = await said(kind, Sampling(5, seed=1, leaning=LogitAdjustment(((rare, 100.0),))))
    assert [token.token for token in held] == [rare] * 5
    scores = await kind.engine.score(Prompt((*PROMPT.tokens, rare)), start=len(PROMPT), version=BASE)
    assert held[0].logp == pytest.approx(scores.logp[0], abs=1e-4) and held[0].logp < -1


async def test_an_answer_keeps_to_its_grammar_and_ends_with_it(kind: EngineKind) -> None:
    grammar = Grammar("start: /[0-9]{3}-[a-f]{2}/")
    await kind.engine.check_grammar(grammar)
    end = kind.engine.info.eos_ids[0]
    tokens = await said(kind, Sampling(20, seed=1, stop_ids=(end,), grammar=grammar))
    tokenizer = Tokenizer.from_file(str(model_folder("bundled") / "tokenizer.json"))
    text = tokenizer.decode([token.token for token in tokens if token.token != end])
    assert re.fullmatch("[0-9]{3}-[a-f]{2}", text), text
    assert tokens[-1].finish is Finish.STOP
