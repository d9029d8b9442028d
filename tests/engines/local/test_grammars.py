"""Answers held to a grammar: what is said, what is recorded of it, and whom it concerns."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_models import VOCAB, Answer, enter, install, plain_logp, plain_model, write_adapter
from llguidance import LLMatcher, LLTokenizer

import openclaw_rl
from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.completion import Finish
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Grammar, LogitAdjustment, Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines.local import guide_process
from openclaw_rl.engines.local.build import open_core
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.local.grammars import MOST_CHARS
from openclaw_rl.engines.local.guide_process import GuideProcess
from openclaw_rl.engines.local.wire import Submit
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.errors import RequestError

BUNDLED = Path(openclaw_rl.__file__).parent / "tiny" / "weights"
END = 2  # <|im_end|>
PROMPT = (1, 300, 400, 500, 2, 198, 1, 77)
SPACE = {"x-guidance": {"whitespace_flexible": False}}
PERSON = {
    **SPACE,
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def _json(schema: dict[str, object]) -> Grammar:
    return Grammar(f"start: %json {json.dumps(schema)}", (END,))


GRAMMARS = (
    _json(PERSON),
    _json({**SPACE, "enum": ["red", "green", 7]}),
    Grammar('start: "yes" | "no"', (END,)),
    Grammar("start: /[0-9]{3}-[a-f]{2}/", (END,)),
)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Adapter:
    return write_adapter(BUNDLED, tmp_path_factory.mktemp("adapter"), PolicyVersion("shared", 1), rank=4)


@pytest.fixture(params=[False, True], ids=["within", "apart"])
def core(request: pytest.FixtureRequest) -> Iterator[Core]:
    settings = EngineSettings(model=str(BUNDLED), device="cpu", dtype="float32", cache_tokens=16384)
    made = open_core(settings, is_apart=request.param)
    yield made
    if isinstance(made.grammars, GuideProcess):
        made.grammars.close()


def _ask(number: int, grammar: Grammar | None, version: PolicyVersion = BASE, **sampling: object) -> Submit:
    values = {"max_tokens": 60, "stop_ids": (END,), "grammar": grammar, **sampling}
    return Submit(number, PROMPT, Sampling(**values), version, seed=number)  # type: ignore[arg-type]


def _submit(core: Core, ask: Submit) -> None:
    grammar = ask.sampling.grammar
    said = ask.tokens[len(ask.tokens) - ask.drawn :]
    core.submit(ask, None if grammar is None else core.grammars.guide(grammar, said))


def _run(core: Core, *asks: Submit) -> dict[int, Answer]:
    answers: dict[int, Answer] = {}
    for ask in asks:
        _submit(core, ask)
    while core.has_work:
        enter(core.step(), answers)
    return answers


def _text(tokens: list[int]) -> str:
    library = LLTokenizer((BUNDLED / "tokenizer.json").read_text("utf-8"))
    return library.decode_bytes([token for token in tokens if token != END]).decode()


def _fits(grammar: Grammar, text: str) -> bool:
    if grammar is GRAMMARS[0]:
        held = json.loads(text)
        return set(held) == {"name", "age"} and len(held["name"]) <= 8 and 0 <= held["age"] <= 99
    if grammar is GRAMMARS[1]:
        return json.loads(text) in ("red", "green", 7)
    if grammar is GRAMMARS[2]:
        return text in ("yes", "no")
    return len(text) == 6 and text[:3].isdigit() and text[3] == "-" and set(text[4:]) <= set("abcdef")


def test_rows_of_several_versions_follow_their_own_grammars_in_one_batch_as_each_would_alone(
    core: Core, adapter: Adapter
) -> None:
    install(core, adapter)
    asks = [_ask(number, GRAMMARS[number % 4], (BASE, adapter.version)[number % 2]) for number in range(1, 9)]
    together = _run(core, *asks, _ask(9, None, max_tokens=12))
    for ask in asks:
        answer, grammar = together[ask.id], ask.sampling.grammar
        assert grammar is not None
        assert answer.finish is Finish.STOP
        assert _fits(grammar, _text(answer.tokens))
        alone = _run(core, ask)[ask.id]
        assert alone.tokens == answer.tokens
    free = _run(core, _ask(9, None, max_tokens=12))[9]
    assert together[9].tokens == free.tokens
    assert free.masked == [] and together[9].masked == []


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
def test_the_masked_log_probability_is_that_of_a_plain_forward_among_what_the_grammar_allows(
    core: Core, adapter: Adapter, temperature: float
) -> None:
    install(core, adapter)
    grammar = GRAMMARS[0]
    answer = _run(core, _ask(5, grammar, adapter.version, temperature=temperature))[5]
    logp_all = plain_logp(plain_model(BUNDLED, adapter), [*PROMPT, *answer.tokens])[len(PROMPT) - 1 :]
    library = LLTokenizer((BUNDLED / "tokenizer.json").read_text("utf-8"), eos_token=END)
    matcher = LLMatcher(library, grammar.text)
    words = np.zeros((1, 128), dtype=np.int32)
    assert len(answer.masked) == len(answer.tokens)
    for at, token in enumerate(answer.tokens):
        forced = matcher.compute_ff_tokens()
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        allowed = torch.from_numpy(np.unpackbits(words.view(np.uint8), bitorder="little")).bool()
        if forced:  # of the cuts of text that is certain, the tokenizer's own
            assert token == forced[0]
            allowed = torch.arange(4096) == token
        held = logp_all[at].masked_fill(~allowed, -torch.inf)
        logp, is_forced = answer.masked[at]
        assert answer.logp[at] == pytest.approx(float(logp_all[at, token]), abs=1e-4)
        assert logp == pytest.approx(float(held.log_softmax(-1)[token]), abs=1e-4)
        assert is_forced == (int(allowed.sum()) == 1)
        heat = temperature or 1.0
        expected = float((held / heat).log_softmax(-1)[token]) if temperature else 0.0
        assert answer.logp_sampled[at] == pytest.approx(expected, abs=1e-4)
        if token != END:
            assert matcher.consume_token(token)
    assert matcher.is_accepting() and answer.tokens[-1] == END
    assert any(is_forced for _, is_forced in answer.masked) and not all(is_forced for _, is_forced in answer.masked)


def test_a_forced_token_is_certain_under_the_mask_and_not_under_the_model(core: Core) -> None:
    answer = _run(core, _ask(1, Grammar('start: "The quick brown fox"', (END,))))[1]
    assert _text(answer.tokens) == "The quick brown fox"
    assert answer.masked == [(0.0, True)] * len(answer.tokens)
    assert max(answer.logp) < 0.0


def test_an_answer_cut_by_length_says_so_and_one_that_is_cancelled_frees_its_row(core: Core) -> None:
    answer = _run(core, _ask(1, GRAMMARS[0], max_tokens=3))[1]
    assert answer.finish is Finish.LENGTH and len(answer.tokens) == 3
    _submit(core, _ask(2, GRAMMARS[0]))
    core.step()
    core.cancel(2)
    assert not core.has_work
    assert _fits(GRAMMARS[0], _text(_run(core, _ask(3, GRAMMARS[0]))[3].tokens))


def test_an_answer_taken_up_again_goes_on_where_it_stood_in_its_grammar(core: Core) -> None:
    whole = _run(core, _ask(4, GRAMMARS[0]))[4]
    half = len(whole.tokens) // 2
    rest = Submit(4, (*PROMPT, *whole.tokens[:half]), _ask(4, GRAMMARS[0]).sampling, BASE, seed=4, drawn=half)
    assert _run(core, rest)[4].tokens == whole.tokens[half:]


def test_an_answer_without_an_end_of_its_own_ends_where_its_grammar_does(core: Core) -> None:
    answer = _run(core, _ask(1, Grammar('start: "yes" | "no"'), stop_ids=()))[1]
    assert answer.finish is Finish.STOP
    assert _text(answer.tokens) in ("yes", "no")


def test_cuts_apply_to_what_the_grammar_leaves(core: Core) -> None:
    for number in range(1, 6):
        answer = _run(core, _ask(number, GRAMMARS[3], top_p=0.5, top_k=4, min_p=0.01))[number]
        assert _fits(GRAMMARS[3], _text(answer.tokens))


def test_a_bias_and_a_grammar_work_together_and_the_models_own_log_probability_stays(core: Core) -> None:
    grammar = GRAMMARS[2]
    first = _run(core, _ask(1, grammar, temperature=0.0))[1].tokens[0]
    biased = _run(core, _ask(2, grammar, temperature=0.0, leaning=LogitAdjustment(bias=((first, -100.0),))))[2]
    assert _text(biased.tokens) in ("yes", "no")
    assert biased.tokens[0] != first
    logp_all = plain_logp(plain_model(BUNDLED), [*PROMPT, *biased.tokens])[len(PROMPT) - 1 :]
    assert biased.logp[0] == pytest.approx(float(logp_all[0, biased.tokens[0]]), abs=1e-4)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("start: nowhere", "nowhere"),
        ("start: %json " + json.dumps({"type": "string", "unevaluatedItems": False, "not": {"const": "a"}}), "not"),
        ("start: /(?=a)b/", "look-around"),
        (
            "start: %json " + json.dumps({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
            "could ever be complete",
        ),
        ("start: " + "(" * 5000 + '"a"' + ")" * 5000, "nested"),
        ("start: %json " + json.dumps({"properties": {f"p{at}": {} for at in range(2000)}, "type": "object"}), "items"),
        ('start: "' + "a" * MOST_CHARS + '"', "characters"),
    ],
)
def test_what_the_library_does_not_take_is_refused_in_its_words(core: Core, text: str, word: str) -> None:
    with pytest.raises(RequestError) as told:
        core.grammars.compile(Grammar(text))
    assert word in told.value.problem
    assert told.value.code == "unsupported_format"


def test_an_answer_that_its_grammar_leads_nowhere_fails_and_does_not_end_as_if_it_were_whole(core: Core) -> None:
    nowhere = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    grammar = Grammar(f'start: "the answer is a long one, and then " %json {json.dumps(nowhere)}', (END,))
    answer = _run(core, _ask(1, grammar))[1]
    assert answer.finish is None
    assert "nowhere" in answer.problem or "cannot be followed" in answer.problem


@pytest.mark.parametrize("core", [True], indirect=True, ids=["apart"])
@pytest.mark.parametrize("ends", [(END,), ()])
def test_answers_go_on_where_the_process_that_follows_grammars_is_killed(core: Core, ends: tuple[int, ...]) -> None:
    grammars = [Grammar(grammar.text, ends) for grammar in GRAMMARS]
    asks = [_ask(number, grammars[number % 4], stop_ids=ends) for number in range(1, 9)]
    whole = _run(core, *asks)
    process = core.grammars
    assert isinstance(process, GuideProcess)
    pids = set[int]()
    answers: dict[int, Answer] = {}
    for ask in asks:
        _submit(core, ask)
    while core.has_work:
        enter(core.step(), answers)
        if len(pids) < 3:
            pids.add(process.pid)
            os.kill(process.pid, signal.SIGKILL)
    assert len(pids) == 3
    assert {number: answer.tokens for number, answer in answers.items()} == {
        number: answer.tokens for number, answer in whole.items()
    }
    assert all(answer.finish is Finish.STOP for answer in answers.values())


@pytest.mark.parametrize("core", [True], indirect=True, ids=["apart"])
def test_answers_go_on_where_the_process_that_follows_grammars_hangs(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guide_process, "ANSWER_S", 1.0)
    whole = _run(core, _ask(1, GRAMMARS[0]))[1]
    process = core.grammars
    assert isinstance(process, GuideProcess)
    os.kill(process.pid, signal.SIGSTOP)
    assert _run(core, _ask(1, GRAMMARS[0]))[1].tokens == whole.tokens


@pytest.mark.parametrize("core", [True], indirect=True, ids=["apart"])
def test_a_grammar_is_compiled_where_the_process_was_killed_before(core: Core) -> None:
    process = core.grammars
    assert isinstance(process, GuideProcess)
    process.compile(GRAMMARS[0])
    os.kill(process.pid, signal.SIGKILL)
    process.compile(GRAMMARS[1])
    assert _fits(GRAMMARS[0], _text(_run(core, _ask(1, GRAMMARS[0]))[1].tokens))


def test_compiled_grammars_are_kept_up_to_a_bound(core: Core) -> None:
    for number in range(300):
        core.grammars.compile(Grammar(f'start: "{number}"'))
    assert not core.grammars.holds(Grammar('start: "0"'))
    assert core.grammars.holds(Grammar('start: "299"'))


def test_a_model_without_a_tokenizer_of_that_kind_says_so(open_tiny: Callable[..., Core]) -> None:
    assert VOCAB < 4096  # the tests' own models have ids and no text
    with pytest.raises(RequestError, match="tokenizer"):
        open_tiny().grammars.compile(Grammar('start: "a"'))


async def test_a_grammar_is_checked_beside_streams_and_held_through_the_death_of_the_process() -> None:
    engine = await LocalEngine.start(EngineSettings(model=str(BUNDLED), device="cpu", dtype="float32"))
    try:
        with pytest.raises(RequestError, match="nowhere"):
            await engine.check_grammar(Grammar("start: nowhere"))
        await engine.check_grammar(GRAMMARS[0])
        sampling = Sampling(max_tokens=60, seed=3, stop_ids=(END,), grammar=GRAMMARS[0])
        whole = [item async for item in engine.generate(Prompt(PROMPT), sampling, BASE)]
        assert _fits(GRAMMARS[0], _text([item.token for item in whole]))
        assert all(item.logp_masked is not None for item in whole)
        again = []
        async for item in engine.generate(Prompt(PROMPT), sampling, BASE):
            again.append(item)
            if len(again) == 2:
                os.kill(engine.pid, signal.SIGKILL)
        assert [item.token for item in again] == [item.token for item in whole]
    finally:
        await engine.aclose()
